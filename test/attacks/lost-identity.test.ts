/**
 * A key was stolen, a client is compromised: its identity is taken away by a reload. But the thief has a WebSocket open, or a
 * handshake under way. Without care, both go on for as long as the thief likes.
 */

import { rename, writeFile } from 'node:fs/promises'
import { type ConnectionOptions, connect } from 'node:tls'
import { beforeEach, describe, expect, onTestFinished, test } from 'vitest'
import { get } from '../support/case-table.ts'
import { CertificateAuthority } from '../support/certificate-authority.ts'
import { Gate } from '../support/changes.ts'
import { folderForFile } from '../support/folder.ts'
import { HANDSHAKE } from '../support/handshake.ts'
import { outcomeOf, RawClient } from '../support/raw-client.ts'
import { type Service, startService } from '../support/service.ts'
import { type ProxyUnderTest, startProxy } from '../support/start-proxy.ts'
import { CLAIMS, makeIssuer, sign } from '../units/callers/issuer.ts'

const { path } = await folderForFile()
const servers = new CertificateAuthority(path, 'servers')
const clients = new CertificateAuthority(path, 'clients')
const nextClients = new CertificateAuthority(path, 'next-clients')
const own = servers.issue({ names: 'DNS:localhost,IP:127.0.0.1' })
const batch = clients.issue({ names: 'URI:spiffe://example.org/batch' })
const issuer = await makeIssuer()

const KEY = 'billing-key-0123456789'
const OTHER_KEY = 'reports-key-0123456789'
const FILES = {
  'billing.key': KEY,
  'reports.key': OTHER_KEY,
  'jwks.json': issuer.jwks,
  'cert.pem': own.cert,
  'key.pem': own.key,
  'clients.pem': clients.cert,
}
const TLS = 'listen: {tls: {certFile: cert.pem, keyFile: key.pem, clientCaFile: clients.pem}}\n'
const REPORTS = '  - {name: reports, keyFiles: [reports.key], orgs: [acme]}\n'
const jwtOf = (subject: string) =>
  `  - {name: batch, jwt: {issuer: "${CLAIMS.iss}", audience: ${CLAIMS.aud}, subject: "${subject}", jwks: jwks.json}, orgs: [acme]}\n`

let service: Service
let proxy: ProxyUnderTest
/** Holds the answers of the service to `/v2/held`. */
let gate: Gate

beforeEach(async () => {
  gate = new Gate()
  service = await startService({
    script: async ({ target }, connection) => {
      if (target.startsWith('/v2/held')) await gate.pass()
      if (!target.endsWith('/ws')) return {}
      connection.tunnel()
      connection.write('HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n')
      return undefined
    },
  })
  return async () => {
    await proxy[Symbol.asyncDispose]()
    await service[Symbol.asyncDispose]()
  }
})

async function start(yaml: string): Promise<void> {
  proxy = await startProxy(service, {}, { ...FILES, 'proxy.yaml': yaml })
}

async function reloadWith(yaml: string): Promise<void> {
  await writeFile(proxy.at('.new'), yaml.replaceAll('$FOLDER', proxy.at('.')))
  await rename(proxy.at('.new'), proxy.at('proxy.yaml'))
  await proxy.app.reload()
  expect(proxy.logs.filter(({ problem }) => problem !== undefined)).toEqual([])
}

async function open(at: number | string, target: string, ...fields: string[]): Promise<RawClient> {
  const client = await RawClient.sending(at, get(target, 'acme', ...fields))
  onTestFinished(() => client[Symbol.asyncDispose]())
  return client
}

async function openTunnel(at: number | string, ...fields: string[]): Promise<RawClient> {
  const client = await open(at, '/v2/ws', ...HANDSHAKE, ...fields)
  expect((await client.response()).status).toBe(101)
  return client
}

const callers = (...entries: string[]) => `callers:\n${entries.join('')}`
const billing = (keys: string, orgs = 'acme') => `  - {name: billing, keyFiles: [${keys}], orgs: [${orgs}]}\n`
const bySocket = (name: string) => `  - {name: billing, socket: $FOLDER/${name}, orgs: [acme]}\n`

describe('whose identity is gone loses its tunnels, and nobody else does', () => {
  test.each<[string, string, string, () => Promise<string[]>]>([
    ['a caller', callers(billing('billing.key'), REPORTS), callers(REPORTS), async () => [`X-Proxy-Key: ${KEY}`]],
    [
      'one key of a caller',
      callers('  - {name: reports, keyFiles: [reports.key, billing.key], orgs: [acme]}\n'),
      callers(REPORTS),
      async () => [`X-Proxy-Key: ${KEY}`],
    ],
    [
      'the subject of a JWT',
      callers(jwtOf(CLAIMS.sub), REPORTS),
      callers(jwtOf('another'), REPORTS),
      async () => [`X-Proxy-Key: ${await sign(issuer)}`],
    ],
  ])('%s', async (_, before, after, fieldsOfLost) => {
    await start(before)
    const lost = await openTunnel(proxy.port, ...(await fieldsOfLost()))
    const kept = await openTunnel(proxy.port, `X-Proxy-Key: ${OTHER_KEY}`)
    await reloadWith(after)
    await lost.untilClosed()
    kept.send('still here')
    const connection = service.requests.at(-1)?.connection
    await service.origin.waitFor(() => connection?.received.includes('still here') === true, 'the bytes of the other')
    expect(kept.end).toBeUndefined()
  })

  test('a socket', async () => {
    await start(callers(bySocket('one.sock'), REPORTS))
    const lost = await openTunnel(proxy.at('one.sock'))
    await reloadWith(callers(bySocket('two.sock'), REPORTS))
    await lost.untilClosed()
  })

  test('the key of all', async () => {
    await start('listen: {callerKeyFile: billing.key}\n')
    const lost = await openTunnel(proxy.port, `X-Proxy-Key: ${KEY}`)
    await reloadWith('listen: {callerKeyFile: reports.key}\n')
    await lost.untilClosed()
  })

  test('nobody had to say who it is, and now everybody has to', async () => {
    await start('{}')
    const lost = await openTunnel(proxy.port)
    await reloadWith(callers(REPORTS))
    await lost.untilClosed()
  })

  test('a caller whose Orgs change has the same identity', async () => {
    await start(callers(billing('billing.key'), REPORTS))
    const kept = await openTunnel(proxy.port, `X-Proxy-Key: ${KEY}`)
    await reloadWith(callers(billing('billing.key', 'globex'), REPORTS))
    kept.send('still here')
    const connection = service.requests.at(-1)?.connection
    await service.origin.waitFor(() => connection?.received.includes('still here') === true, 'the bytes')
  })

  test.each<[string, string, string]>([
    [
      'the name in a certificate',
      callers('  - {name: batch, certificate: "spiffe://example.org/other", orgs: [acme]}\n'),
      clients.cert,
    ],
    ['the CA of a certificate', '', nextClients.cert],
  ])('%s', async (_, after, authorities) => {
    const certified = callers('  - {name: batch, certificate: "spiffe://example.org/batch", orgs: [acme]}\n')
    await start(`${TLS}${certified}`)
    const options: ConnectionOptions = { host: '127.0.0.1', port: proxy.port, ca: servers.cert, ...batch }
    const client = connect(options)
    onTestFinished(() => void client.destroy())
    client.write(get('/v2/ws', 'acme', ...HANDSHAKE))
    const first = await new Promise<Buffer>((resolve, reject) => client.once('data', resolve).once('error', reject))
    expect(first.toString()).toMatch(/^HTTP\/1\.1 101/)
    const closed = new Promise((resolve) => client.once('close', resolve).resume())
    await writeFile(proxy.at('clients.pem'), authorities)
    await reloadWith(`${TLS}${after === '' ? certified : after}`)
    await closed
  })
})

describe('what is under way', () => {
  const reload = () => reloadWith(callers(REPORTS))
  beforeEach(() => start(callers(billing('billing.key'), REPORTS)))

  test('a request finishes under the rules that it began with, and its connection closes', async () => {
    const client = await open(proxy.port, '/v2/held', `X-Proxy-Key: ${KEY}`)
    await service.origin.waitFor(() => service.requests.length === 1, 'the request')
    await reload()
    gate.open()
    expect((await client.response()).status).toBe(200)
    await client.untilClosed()
  })

  test('a handshake opens no tunnel: it gets 503 draining, although the service has accepted it', async () => {
    const client = await open(proxy.port, '/v2/held/ws', ...HANDSHAKE, `X-Proxy-Key: ${KEY}`)
    await service.origin.waitFor(() => service.requests.length === 1, 'the handshake')
    await reload()
    gate.open()
    expect(outcomeOf(await client.response())).toBe('draining')
    await client.untilClosed()
    expect(await proxy.logOf('/v2/held/ws')).toMatchObject({ status: 503, code: 'draining' })
    await service.origin.waitFor(() => service.requests[0]?.connection.peerEnd !== undefined, 'the end at the service')
  })

  test('an idle connection of the others stays open', async () => {
    const client = await open(proxy.port, '/v2/x', `X-Proxy-Key: ${OTHER_KEY}`)
    expect((await client.response()).status).toBe(200)
    await reload()
    client.send(get('/v2/x', 'acme', `X-Proxy-Key: ${OTHER_KEY}`))
    expect((await client.response()).status).toBe(200)
  })
})
