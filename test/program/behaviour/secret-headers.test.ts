/** Fields with more secrets than the token, such as the key of an API gateway: `origin.secretHeaders`, `tokens.secretHeaders`. */

import { rename, writeFile } from 'node:fs/promises'
import { describe, expect, test } from 'vitest'
import { check } from '../../../src/cli/check.ts'
import { Canaries, randomMarker } from '../../support/canaries.ts'
import { head } from '../../support/case-table.ts'
import { HANDSHAKE } from '../../support/handshake.ts'
import { outcomeOf, request } from '../../support/raw-client.ts'
import { startBoth } from '../../support/start-proxy.ts'
import { echoServer } from '../../support/websocket-echo.ts'
import { runProbe } from '../../units/probe/run-probe.ts'
import { startMinter, startSidecar } from '../minter/minters.ts'

const NAME = 'Ocp-Apim-Subscription-Key'
const FILE = `
origin: { secretHeaders: { ${NAME}: service.key, X-Second: second.key } }
tokens: { secretHeaders: { X-Gateway: endpoint.key } }
appRoutes: ["GET /v2/links"]
`

async function start(text = FILE) {
  const keys = { service: `service ${randomMarker()}`, second: randomMarker(), endpoint: randomMarker() }
  const both = await startBoth(
    { acceptsAnyToken: true, script: echoServer({ content: 'hello' }).script },
    { 'admin.address': 'localhost:0' },
    {
      'proxy.yaml': text,
      'service.key': `${keys.service}\n`,
      'second.key': keys.second,
      'endpoint.key': keys.endpoint,
    },
  )
  const { proxy, service } = both
  const send = (path: string, ...lines: string[]) =>
    request(proxy.port, head(`GET ${path} HTTP/1.1`, 'Host: localhost', 'X-Org-Id: acme', ...lines))
  const mints = () => service.origin.requests.filter((each) => service.orgOfMint(each) !== undefined)
  const write = async (name: string, content: string) => {
    await writeFile(proxy.at('.new'), content, { mode: 0o600 })
    await rename(proxy.at('.new'), proxy.at(name))
    await proxy.app.reload()
  }
  /** Of the last request at the service. */
  const seen = (name = NAME) => service.requests.at(-1)?.values(name)
  return { ...both, keys, send, seen, mints, write }
}

test('each request to the service has them, whatever its credential, and the token call has its own alone', async () => {
  const { service, keys, send, seen, mints } = await start()
  for (const [path, ...lines] of [['/v2/x'], ['/v2/ws', ...HANDSHAKE], ['/v2/links']] as const) {
    await send(path, ...lines)
    expect([path, seen(), seen('x-second'), seen('x-gateway')]).toEqual([path, [keys.service], [keys.second], []])
    expect(seen('authorization')).toHaveLength(1)
  }
  const [mint] = mints()
  expect([NAME, 'X-Second', 'X-Gateway'].map((name) => mint?.values(name))).toEqual([[], [], [keys.endpoint]])
  let rejections = 0
  service.script = () => (rejections++ === 0 ? { status: 401, reason: 'Unauthorized' } : {})
  await send('/v2/x')
  expect(service.requests.slice(-2).map((each) => each.values(NAME))).toEqual([[keys.service], [keys.service]])
})

test("the client's own fields of these names never go on, and Connection cannot remove ours", async () => {
  const { keys, send, seen } = await start()
  await send('/v2/x', `${NAME.toUpperCase()}: mine`, 'x-second: mine', 'X-Gateway: mine', `Connection: ${NAME}, close`)
  // The service may know a field of the name that only the token call has.
  expect([seen(), seen('x-second'), seen('x-gateway')]).toEqual([[keys.service], [keys.second], ['mine']])
})

test('a name that looks like one is refused', async () => {
  const { service, send } = await start()
  for (const name of ['Ocp_Apim_Subscription_Key', 'X_Second', 'X-Second_'])
    expect(outcomeOf(await send('/v2/x', `${name}: mine`))).toBe('field_invalid')
  expect(service.requests).toEqual([])
})

describe('a reload', () => {
  test('takes a changed file over, and keeps the value of one that is empty', async () => {
    const { keys, proxy, send, seen, mints, write } = await start()
    await send('/v2/x')
    await write('service.key', 'changed-1')
    await write('endpoint.key', 'changed-2')
    await proxy.askAdmin('/tokens/purge?org=acme', 'POST')
    await send('/v2/x')
    expect([seen(), seen('x-second'), mints().at(-1)?.values('x-gateway')]).toEqual([
      ['changed-1'],
      [keys.second],
      ['changed-2'],
    ])
    await write('service.key', '')
    await send('/v2/x')
    expect(seen()).toEqual(['changed-1'])
    expect((await proxy.askAdmin('/status')).content).toContain('configuration_refused')
  })

  test('takes other names over, but not that there are none', async () => {
    const { keys, send, seen, write, proxy } = await start()
    await write('proxy.yaml', FILE.replace('X-Second', 'X-Third'))
    await send('/v2/x', 'X-Second: mine', 'X-Third: mine')
    expect([seen('x-second'), seen('x-third')]).toEqual([['mine'], [keys.second]])
    await write('proxy.yaml', FILE.replace(/^origin.*$/m, ''))
    await send('/v2/x')
    expect(seen('x-third')).toEqual([keys.second])
    expect(proxy.output).toContain('origin.secretHeaders (not set): is taken away')
  })
})

test('no output has them: log, errors, metrics, status and page', async () => {
  const { service, keys, proxy, send } = await start()
  const canaries = new Canaries()
  for (const [name, key] of Object.entries(keys)) canaries.add(name, key)
  service.tokens.script = ({ request: asked, org, issue }) => {
    const told = asked.values('x-gateway').join()
    return org === 'refused'
      ? { status: 403, content: JSON.stringify({ error: told, message: `no ${told}` }) }
      : issue()
  }
  service.script = ({ target }, connection) => {
    if (target === '/v2/reset') connection.reset()
    return target === '/v2/reset' ? undefined : { status: 403, reason: 'Forbidden' }
  }
  const answers = [
    await send('/v2/x'),
    await send('/v2/reset'),
    await request(proxy.port, head('GET /v2/x HTTP/1.1', 'Host: localhost', 'X-Org-Id: refused')),
  ]
  expect(answers.map(outcomeOf)).toEqual([403, 'connection_terminated', 'org_access_refused'])
  const shown = await Promise.all(['/', '/status', '/metrics'].map((path) => proxy.askAdmin(path)))
  const all = [proxy.output, ...shown.map(({ content }) => content), ...answers.map(({ content }) => String(content))]
  expect(canaries.search(all.join('\n'))).toEqual([])
})

test('a sidecar sends those of the service, and its minter those of the endpoint', async () => {
  const { service, keys, mints } = await start()
  const callers = 'callers: [{name: billing, keyFiles: [billing.key], tokens: true, orgs: [acme]}]\n'
  const minter = await startMinter(
    service,
    {},
    { 'proxy.yaml': `${callers}tokens: { secretHeaders: { X-Gateway: e.key } }`, 'e.key': keys.endpoint },
  )
  const sidecar = await startSidecar(service, minter, {}, undefined, {
    'proxy.yaml': `origin: { secretHeaders: { ${NAME}: s.key } }`,
    's.key': keys.service,
  })
  await request(sidecar.port, head('GET /v2/x HTTP/1.1', 'Host: localhost', 'X-Org-Id: acme'))
  expect(service.requests.at(-1)?.values(NAME)).toEqual([keys.service])
  expect(mints().at(-1)?.values('x-gateway')).toEqual([keys.endpoint])
})

test('a probe sends them, and check the one of its call', async () => {
  const { service, keys, proxy, mints } = await start()
  const { appId, appSecret } = service.tokens
  const env = { OAP_CONFIG: proxy.at('proxy.yaml') }
  const { output } = await runProbe({ baseUrl: service.baseUrl, appId, appSecret }, { path: '/v2/x', env })
  expect(service.requests.every((each) => each.values(NAME).join() === keys.service)).toBe(true)
  expect(mints().every((each) => each.values('x-gateway').join() === keys.endpoint)).toBe(true)
  expect(service.requests.length * mints().length).toBeGreaterThan(0)
  let printed = ''
  const variables = { ...env, OAP_BASE_URL: service.baseUrl, OAP_APP_ID: appId, OAP_APP_SECRET: appSecret }
  const print = (text: string) => (printed += text)
  expect(await check({ mint: 'acme' }, variables, print)).toBe(0)
  expect(mints().at(-1)?.values('x-gateway')).toEqual([keys.endpoint])
  expect(printed).toMatch(/^tokens.secretHeaders +{"X-Gateway":"endpoint.key"} /m)
  expect(output + printed).not.toContain('canary')
})
