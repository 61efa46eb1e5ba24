/**
 * Everything that the program prints, answers and shows, with good and bad requests, at trace level: it contains no secret,
 * no API key and no token, in any spelling.
 */

import { readdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { beforeAll, expect, onTestFinished, test } from 'vitest'
import { type Canaries, canariesOf, randomSecret } from '../../support/canaries.ts'
import { get, head } from '../../support/case-table.ts'
import { eventually } from '../../support/changes.ts'
import { HANDSHAKE } from '../../support/handshake.ts'
import type { OriginScript } from '../../support/origin-connection.ts'
import { RawClient } from '../../support/raw-client.ts'
import type { Service } from '../../support/service.ts'
import { serviceForFile } from '../../support/service-for-file.ts'
import { spawnProxy } from '../../support/spawn-proxy.ts'
import type { MintScript } from '../../support/token-endpoint.ts'

const CALLER_KEY = randomSecret().replace('é', 'e')
const SERVICE_KEY = randomSecret().replace('é', 'e')
const ENDPOINT_KEY = randomSecret().replace('é', 'e')

/** A token endpoint whose replies contain secrets, depending on the Org. */
const mint: MintScript = (asked) => {
  const told = [...asked.request.values('authorization'), ...asked.request.values('x-endpoint-key')].join()
  switch (asked.org) {
    case 'refused':
      return { status: 403, reason: 'Forbidden', fields: ['X-Told', told], content: told }
    case 'broken':
      return { content: `<html>${asked.org} ${told}</html>` }
    case 'half':
      return { content: `{"orgAccessToken":"${service.tokens.issueToken('half')}` }
    case 'spaced':
      return { content: JSON.stringify({ orgAccessToken: `${service.tokens.issueToken('spaced')} x` }) }
    case 'redirected':
      return { status: 302, fields: ['Location', `/elsewhere?${encodeURIComponent(told)}`] }
    case 'failing':
      return { status: 503, reason: told, content: told }
    case 'repeated': {
      // As PHP writes JSON.
      const request = JSON.stringify({ client_secret: service.tokens.appSecret }).replaceAll('/', '\\/')
      return {
        status: 400,
        content: JSON.stringify({ error: 'invalid_request', message: `not understood: ${request}` }),
      }
    }
    case 'reset':
      asked.request.connection.reset()
      return undefined
    default:
      return asked.issue()
  }
}

let rejections = 0

const script: OriginScript = (seen, connection) => {
  const { pathname } = new URL(seen.target, 'http://origin')
  switch (pathname) {
    case '/v2/reset':
      connection.reset()
      return undefined
    case '/v2/cut':
      connection.write('HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\ncut')
      connection.end()
      return undefined
    case '/v2/garbage':
      connection.write(`${[...seen.values('authorization'), ...seen.values('x-service-key')].join()}\r\n\r\n`)
      connection.end()
      return undefined
    case '/v2/framing':
      connection.write(
        `HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\nX: ${seen.values('authorization')}${seen.values('x-service-key')}\r\n\r\n`,
      )
      return undefined
    case '/v2/silent':
      return undefined
    case '/v2/rejected':
      return rejections++ === 0 ? { status: 401, reason: 'Unauthorized', content: 'no' } : { content: 'yes' }
    default:
      return { content: 'hello' }
  }
}

const served = serviceForFile({ mint, script, acceptsAnyToken: true })
let service: Service
let env: typeof served.env & { readonly OAP_CONFIG?: string }
let canaries: Canaries
let secretFile: string

beforeAll(async () => {
  ;({ service, env } = served)
  secretFile = env.OAP_APP_SECRET_FILE
  canaries = canariesOf(service.tokens).add('caller key', CALLER_KEY)
  canaries.add('key for the service', SERVICE_KEY).add('key for the endpoint', ENDPOINT_KEY)
  const files = { 'service.key': SERVICE_KEY, 'endpoint.key': ENDPOINT_KEY, 'keys.yaml': KEYS }
  for (const [name, text] of Object.entries(files)) await writeFile(join(secretFile, '..', name), text, { mode: 0o600 })
  env = { ...env, OAP_CONFIG: join(secretFile, '../keys.yaml') }
})

const KEYS = `
origin: { secretHeaders: { X-Service-Key: service.key } }
tokens: { secretHeaders: { X-Endpoint-Key: endpoint.key } }
`

function expectClean(bytes: string | Uint8Array, where: string): void {
  expect(canaries.search(bytes), where).toEqual([])
}

/** Sends the bytes, ends the connection, and resolves with everything that came back. */
async function exchange(port: number, raw: string): Promise<Buffer> {
  await using client = await RawClient.sending(port, raw, { deadlineMs: 10_000 })
  if (!raw.includes('/v2/leaves')) await client.untilClosed()
  return client.received
}

const KEY = `X-Proxy-Key: ${CALLER_KEY}`
const close = (target: string, org: string, ...lines: string[]) => get(target, org, KEY, 'Connection: close', ...lines)

/** Good, refused, damaged and failing requests. */
const TRAFFIC: readonly string[] = [
  close('/v2/good?key=value', 'acme'),
  close('/v2/rejected', 'acme'),
  close('/v2/reset', 'acme'),
  close('/v2/cut', 'acme'),
  close('/v2/garbage', 'acme'),
  close('/v2/framing', 'acme'),
  close('/v2/silent', 'acme'),
  close('/v2/leaves', 'acme'),
  close('/v2/ws', 'acme', ...HANDSHAKE),
  ...['refused', 'broken', 'half', 'spaced', 'redirected', 'repeated', 'failing', 'reset'].map((org) =>
    close('/v2/x', org),
  ),
  close('/v2/x', 'bad org'),
  close('/v2/orgs/acme/access', 'acme').replace('GET', 'POST'),
  close('/v2/x', 'acme', 'Origin: https://evil.example'),
  close('/v2/x', 'acme', 'Authorization: Bearer mine', 'Authorization: Basic mine'),
  get('/v2/x', 'acme', 'Connection: close', `X-Proxy-Key: ${CALLER_KEY.slice(0, -1)}`),
  head('GET /v2/x HTTP/1.1', 'Host: evil.example', KEY, 'Connection: close'),
  head('TRACE /v2/x HTTP/1.1', 'Host: localhost', 'X-Org-Id: acme', KEY, 'Connection: close'),
  head('CONNECT localhost:80 HTTP/1.1', 'Host: localhost', KEY),
  `${close('/v2/x', 'acme', 'Content-Length: 5').replace('GET', 'POST')}he`,
  `\x16\x03\x01 ${KEY}\r\n\r\n`,
  `GET /v2/x HTTP/1.1\r\n${KEY}\r\nContent-Length: -1\r\n\r\n`,
]

async function startTraced(nodeArgs: readonly string[] = []) {
  const callerKeyFile = join(secretFile, '../caller-key')
  await writeFile(callerKeyFile, CALLER_KEY, { mode: 0o600 })
  const settings = {
    OAP_LOG_LEVEL: 'trace',
    OAP_ADMIN_ADDRESS: '127.0.0.1:0',
    OAP_LISTEN_CALLER_KEY_FILE: callerKeyFile,
    OAP_LISTEN_IDLE_TIMEOUT: '300ms',
    OAP_ORIGIN_RESPONSE_TIMEOUT: '300ms',
    OAP_TOKENS_MINT_TIMEOUT: '500ms',
  }
  const proxy = spawnProxy({ env: { ...env, ...settings }, nodeArgs })
  onTestFinished(() => proxy[Symbol.asyncDispose]())
  return { proxy, ...(await proxy.ready()) }
}

test('responses, logs, admin pages and the process in /proc', async () => {
  const { proxy, port, adminPort } = await startTraced()
  for (const raw of TRAFFIC) expectClean(await exchange(port, raw), `the answer to ${raw.slice(0, 60)}`)
  for (const path of ['/', '/metrics', '/status', '/readyz?verbose', '/livez', '/healthz', '/nowhere']) {
    const raw = head(`GET ${path} HTTP/1.1`, 'Host: localhost', 'Connection: close')
    const answer = await exchange(adminPort, raw)
    expect(answer.length, path).toBeGreaterThan(100)
    expectClean(answer, path)
  }
  for (const name of ['environ', 'cmdline', 'maps', 'status']) {
    expectClean(await readFile(`/proc/${proxy.pid}/${name}`), `/proc/PID/${name}`)
  }
  await writeFile(secretFile, `${service.tokens.appSecret} no more`)
  proxy.signal('SIGHUP')
  await proxy.waitForLine(/secret/)
  proxy.signal('SIGTERM')
  await proxy.exited
  await writeFile(secretFile, service.tokens.appSecret)
  expectClean(proxy.output, 'the log')
  expect(proxy.logs.filter(({ msg }) => msg === 'request').length, 'lines that were searched').toBeGreaterThan(15)
  const failed = proxy.logs.filter(({ msg }) => msg === 'mint failed')
  expect(failed.find(({ orgId }) => orgId === 'repeated')?.['detail']).toContain('It says: invalid_request. ')
})

/** Keeps the head of the last mint on its way to the socket, and throws it on SIGUSR2. */
const CRASH = `import { Socket } from 'node:net'
let last = 'no mint'
const { write } = Socket.prototype
Socket.prototype.write = function (chunk, ...rest) {
  if (/X-Endpoint-Key/.test(chunk)) last = String(chunk)
  return write.call(this, chunk, ...rest)
}
process.on('SIGUSR2', () => {
  process.stderr.write('crash after ' + last.slice(0, 13))
  throw Object.assign(new Error('crash'), { last, headers: [last], cause: new Error('within', { cause: { last } }) })
})`

test('a crash with the credentials of a request in its error', async () => {
  const { proxy, port } = await startTraced(['--import', `data:text/javascript,${encodeURIComponent(CRASH)}`])
  await exchange(port, close('/v2/good', 'acme'))
  proxy.signal('SIGUSR2')
  expect((await proxy.exited).code).toBe(1)
  expect(proxy.output, 'what was thrown').toContain('crash after POST /v2/orgs')
  expect(proxy.output).toContain('unexpected failure')
  expectClean(proxy.output, 'the dump')
})

test('a diagnostic report', async () => {
  const folder = join(secretFile, '..')
  const args = ['--report-on-signal', '--report-signal=SIGUSR2', `--report-directory=${folder}`]
  const { proxy, port } = await startTraced(args)
  await exchange(port, close('/v2/good', 'acme'))
  proxy.signal('SIGUSR2')
  const report = await eventually(async () => {
    const name = (await readdir(folder)).find((file) => file.startsWith('report.'))
    const text = name === undefined ? '' : await readFile(join(folder, name), 'utf8')
    return text.trimEnd().endsWith('}') ? text : undefined
  }, 'the report')
  expect(JSON.parse(report).header.processId).toBe(proxy.pid)
  expectClean(report, 'the report')
})

test.each<[string, readonly string[], (folder: string) => Record<string, string>]>([
  ['check', ['check'], () => ({})],
  ['a good mint', ['check', '--mint', 'acme'], () => ({})],
  ['a refused mint', ['check', '--mint', 'refused'], () => ({})],
  ['a broken mint', ['check', '--mint', 'half'], () => ({})],
  ['a mint that is reset', ['check', '--mint', 'reset'], () => ({ OAP_TOKENS_MINT_TIMEOUT: '300ms' })],
  ['healthcheck', ['healthcheck'], () => ({ OAP_ADMIN_ADDRESS: '127.0.0.1:1' })],
  ['--help', ['--help'], () => ({})],
  ['both secrets', ['serve'], () => ({ OAP_APP_SECRET: service.tokens.appSecret })],
  ['the secret in the URL', ['serve'], () => ({ OAP_BASE_URL: `http://a:${service.tokens.marker}@localhost/` })],
  ['the API key in the URL', ['serve'], () => ({ OAP_BASE_URL: `http://localhost/?key=${service.tokens.marker}` })],
  ['the secret in the config file', ['serve'], (folder) => ({ OAP_CONFIG: join(folder, 'with-secret.yaml') })],
])('%s', async (name, args, more) => {
  const folder = join(secretFile, '..')
  await writeFile(join(folder, 'with-secret.yaml'), `appSecret: ${JSON.stringify(service.tokens.appSecret)}\n`)
  await using proxy = spawnProxy({ args, env: { ...env, OAP_LOG_LEVEL: 'trace', ...more(folder) } })
  await proxy.exited
  expectClean(proxy.output, name)
  expect(proxy.output).toContain(args.includes('--mint') ? 'mint: ' : ' ')
})
