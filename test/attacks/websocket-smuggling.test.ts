/**
 * The attack: a client asks for a WebSocket, the origin declines, and the proxy opens its tunnel in spite of that. Or only the
 * proxy reads the request as a handshake. Then the client speaks HTTP to the origin through the tunnel, without any check, on
 * a connection that the proxy authenticated (websocket smuggling; also CVE-2026-44578: upgrades that skip the checks of
 * requests).
 */

import { describe, expect, test } from 'vitest'
import { type Case, get, HOST, head, ORG, startTable } from '../support/case-table.ts'
import { startFaultTable } from '../support/fault-table.ts'
import { HANDSHAKE, WEBSOCKET_ACCEPT, WEBSOCKET_KEY } from '../support/handshake.ts'
import { problemOf, RawClient } from '../support/raw-client.ts'

const SMUGGLED = get('/v2/smuggled', '{other}')

// The other checks are the same code for every request.
describe('a handshake passes the checks of every request', async () => {
  const table = await startTable({ 'routes.allow': '* /v2/*' })
  const ws = (name: string, status: number, code: string, send: string): Case => ({
    name,
    send: send + SMUGGLED,
    status,
    code,
    closes: true,
  })
  const handshake = (target: string, ...lines: string[]) => head(`GET ${target} HTTP/1.1`, ...lines, ...HANDSHAKE)
  test.each<Case>([
    ws('no Org', 400, 'org_id_missing', handshake('/v2/ws', HOST)),
    ws('a rebound name', 421, 'host_refused', handshake('/v2/ws', 'Host: evil.example', ORG)),
    ws('a page', 403, 'browser_refused', handshake('/v2/ws', HOST, ORG, 'Origin: https://evil.example')),
    ws('a path that climbs', 400, 'target_invalid', handshake('/v2/../ws', HOST, ORG)),
    ws('the token endpoint', 403, 'token_endpoint_refused', handshake('/v2/orgs/{other}/access', HOST, ORG)),
    ws('another route', 403, 'route_refused', handshake('/v3/ws', HOST, ORG)),
    ws('two lengths', 400, 'request_invalid', handshake('/v2/ws', HOST, ORG, 'Content-Length: 0', 'Content-Length: 0')),
  ])('$name', (row) => table.run(row))
})

describe('a malformed handshake', async () => {
  const table = await startTable()
  const without = (name: string) => HANDSHAKE.filter((line) => !line.startsWith(name))
  const bad = (name: string, lines: readonly string[], requestLine = 'GET /v2/ws HTTP/1.1', content = ''): Case => ({
    name,
    send: head(requestLine, HOST, ORG, ...lines) + content,
    status: 400,
    code: 'upgrade_invalid',
  })
  test.each<Case>([
    bad('version 777', [...without('Sec-WebSocket-Version'), 'Sec-WebSocket-Version: 777']),
    bad('no version', without('Sec-WebSocket-Version')),
    bad('two versions', [...HANDSHAKE, 'Sec-WebSocket-Version: 13']),
    bad('no key', without('Sec-WebSocket-Key')),
    bad('two keys', [...HANDSHAKE, `Sec-WebSocket-Key: ${WEBSOCKET_KEY}`]),
    bad('a key of the wrong length', [...without('Sec-WebSocket-Key'), 'Sec-WebSocket-Key: c2hvcnQ=']),
    bad('a key that is no base64', [...without('Sec-WebSocket-Key'), 'Sec-WebSocket-Key: !!!!!!!!!!!!!!!!!!!!!!==']),
    bad('POST', HANDSHAKE, 'POST /v2/ws HTTP/1.1'),
    bad('content with a length', [...HANDSHAKE, 'Content-Length: 2'], 'GET /v2/ws HTTP/1.1', 'hi'),
    bad('content in chunks', [...HANDSHAKE, 'Transfer-Encoding: chunked'], 'GET /v2/ws HTTP/1.1', '0\r\n\r\n'),
    bad('HTTP/1.0', HANDSHAKE, 'GET /v2/ws HTTP/1.0'),
    bad('two protocols in a line', [...without('Upgrade'), 'Upgrade: websocket, h2c']),
    bad('two protocols in two lines', [...HANDSHAKE, 'Upgrade: h2c']),
    bad('the same twice', [...HANDSHAKE, 'Upgrade: websocket']),
  ])('$name', (row) => table.run(row))
})

describe('an origin that declines opens no tunnel', async () => {
  const table = await startFaultTable()
  const smuggled = get('/v2/smuggled', 'acme')

  test.each([
    ['200 with a length', 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno', 200],
    ['200 in chunks', 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nno\r\n0\r\n\r\n', 200],
    ['400', 'HTTP/1.1 400 Bad Request\r\nContent-Length: 2\r\n\r\nno', 400],
    [
      '426',
      'HTTP/1.1 426 Upgrade Required\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 8\r\nContent-Length: 2\r\n\r\nno',
      426,
    ],
    ['500', 'HTTP/1.1 500 No\r\nContent-Length: 2\r\n\r\nno', 500],
    ['302', 'HTTP/1.1 302 Found\r\nLocation: /v2/ws2\r\nContent-Length: 2\r\n\r\nno', 302],
  ])('%s', async (_, answer, status) => {
    const target = table.writing(answer)
    await using client = await RawClient.sending(table.proxy.port, get(target, 'acme', ...HANDSHAKE) + smuggled)
    const response = await client.response()
    expect(response).toMatchObject({ status, isComplete: true })
    expect(response.content.toString()).toBe('no')
    client.send(smuggled)
    await client.untilClosed().catch(() => {}) // closed or broken; only the requests at the origin matter
    await table.expectAlive()
    expect(table.requestsFor('/v2/smuggled')).toEqual([])
    const [seen] = table.requestsFor(target)
    expect(seen?.connection.received.toString()).not.toContain('smuggled')
    expect(table.service.origin.malformed).toEqual([])
  })

  test.each([
    ['a 101 for another protocol', '101 x', 'Upgrade: h2c\r\nConnection: Upgrade\r\n', 'http_upgrade_failed'],
    ['a 101 without a protocol', '101 x', 'Connection: Upgrade\r\n', 'http_upgrade_failed'],
    ['a 101 for two', '101 x', 'Upgrade: websocket, h2c\r\nConnection: Upgrade\r\n', 'http_upgrade_failed'],
    ['a status that HTTP does not have', '99 Below', 'Content-Length: 0\r\n', 'http_protocol_error'],
  ])('%s is a 502', async (_, status, fields, code) => {
    const target = table.writing(`HTTP/1.1 ${status}\r\n${fields}\r\n`)
    await using client = await RawClient.sending(table.proxy.port, get(target, 'acme', ...HANDSHAKE) + smuggled)
    const response = await client.response()
    expect([response.status, problemOf(response).code]).toEqual([502, code])
    expect(await table.proxy.logOf(target)).toMatchObject({ status: 502, code })
    await client.untilClosed()
    const { connection } = await table.arrival(target)
    await table.service.origin.waitFor(() => connection.isClosed, 'the end of the connection to the service')
    expect(connection.received.toString()).not.toContain('smuggled')
    await table.expectAlive()
  })

  test('hop-by-hop fields of a 101 are removed, except the protocol', async () => {
    const target = table.target((_, connection) => {
      connection.tunnel()
      connection.write(
        `HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade, x-foo\r\nX-Foo: 1\r\nKeep-Alive: timeout=5\r\nX-Bar: 2\r\nSec-WebSocket-Accept: ${WEBSOCKET_ACCEPT}\r\n\r\n`,
      )
    })
    await using client = await RawClient.sending(table.proxy.port, get(target, 'acme', ...HANDSHAKE))
    const { status, fields } = await client.response()
    expect(status).toBe(101)
    const names = fields.filter((_, i) => i % 2 === 0).map((name) => name.toLowerCase())
    expect(names.sort()).toEqual(['connection', 'sec-websocket-accept', 'upgrade', 'x-bar'])
  })
})
