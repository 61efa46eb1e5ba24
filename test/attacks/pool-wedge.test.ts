/**
 * The attack: requests that never return their place in the pool of connections. The former client library lost a place for
 * ever with every request that it refused. After as many such requests as there are places, every later one waits for ever,
 * without an error. So every attempt returns its place, whatever the client sends and the origin answers. The simulation has the
 * clients that leave.
 */

import { randomBytes } from 'node:crypto'
import { beforeAll, expect, test } from 'vitest'
import { get } from '../support/case-table.ts'
import { startFaultTable } from '../support/fault-table.ts'
import { HANDSHAKE } from '../support/handshake.ts'
import { RawClient, request } from '../support/raw-client.ts'
import { startService } from '../support/service.ts'
import { startProxy } from '../support/start-proxy.ts'

const PLACES = 4
const table = await startFaultTable({
  'origin.connections': `${PLACES}`,
  'origin.responseTimeout': '300ms',
  'origin.idleTimeout': '300ms',
})

const odd = (...lines: string[]) => get('/v2/x', 'acme', ...lines)

const REQUESTS: readonly (readonly [string, string])[] = [
  ['an expectation', odd('Expect: x')],
  ['100-continue without content', odd('Expect: 100-continue')],
  ['100-continue with content', `${odd('Expect: 100-continue', 'Content-Length: 2')}hi`],
  ['chunked GET', `${odd('Transfer-Encoding: chunked')}0\r\n\r\n`],
  ['Upgrade', odd('Upgrade: h2c', 'Connection: Upgrade')],
  ['a good handshake', odd(...HANDSHAKE)],
  ['HEAD with a length', `${odd('Content-Length: 2').replace('GET', 'HEAD')}hi`],
  ['trailers', `${odd('Transfer-Encoding: chunked').replace('GET', 'POST')}2\r\nhi\r\n0\r\nX-T: 1\r\n\r\n`],
]

/** Sends twice as many requests as there are places, all at once, and then one that must be answered soon. */
async function flood(raw: string): Promise<void> {
  const send = async () => {
    await using client = await RawClient.sending(table.proxy.port, raw, { deadlineMs: 3000 })
    return await client.response(raw.slice(0, raw.indexOf(' ')))
  }
  await Promise.all(Array.from({ length: 2 * PLACES }, send))
  await table.expectAlive()
}

beforeAll(() => table.expectAlive())

test.each(REQUESTS)('%s', async (_, raw) => {
  await flood(raw)
})

test.each([
  ['resets', ''],
  ['cuts its head', 'HTTP/1.1 200 OK\r\nX-'],
  [
    'frames in two ways',
    'HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nno\r\n0\r\n\r\n',
  ],
  ['answers with 101', 'HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n'],
  ['answers with status 999', 'HTTP/1.1 999 No\r\nContent-Length: 0\r\n\r\n'],
  ['answers HTTP/0.9', 'hello'],
  ['is silent', undefined],
])('an origin that %s', async (name, writes) => {
  const target = table.target((_, connection) => {
    if (writes === undefined) return new Promise(() => {})
    connection.write(writes)
    if (name === 'resets') connection.reset()
    else connection.end()
  })
  await flood(get(target, 'acme'))
})

test('characters beyond latin1 from the configuration', async () => {
  const given = { appId: 'käse-☃', appSecret: `schlüssel-☃-${randomBytes(8).toString('hex')}` }
  await using service = await startService({ ...given, acceptsAnyToken: true, prefix: '/k%C3%A4se-%E2%98%83' })
  await using proxy = await startProxy(service, {
    appRoutes: 'GET /v2/links',
    'origin.connections': `${PLACES}`,
  })
  const basic = `Basic ${Buffer.from(`${given.appId}:${given.appSecret}`, 'utf8').toString('base64')}`
  for (let i = 0; i < 2 * PLACES; i++) {
    expect((await request(proxy.port, get('/v2/links', 'acme'))).status).toBe(200)
    expect((await request(proxy.port, get('/v2/x', `org-${i}`))).status).toBe(200)
  }
  const [forApp, mint, forOrg] = service.origin.requests
  expect(forApp?.values('authorization')).toEqual([basic])
  expect(mint?.values('authorization')).toEqual([basic])
  expect(forOrg?.target).toBe('/k%C3%A4se-%E2%98%83/v2/x')
  // A target cannot contain them, so the setting needs them percent-encoded.
  const unescaped = startProxy(service, { baseUrl: `${service.origin.url}/käse-☃` })
  await expect(unescaped).rejects.toThrow(/^baseUrl .*non-ASCII/)
})
