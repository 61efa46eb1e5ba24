/** The log line of a request: its content, its time at the service, its level, and an end that the proxy caused. */

import { setTimeout } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { get, HOST, head } from '../../support/case-table.ts'
import { startFaultTable } from '../../support/fault-table.ts'
import { HANDSHAKE } from '../../support/handshake.ts'
import type { OriginScript } from '../../support/origin-connection.ts'
import { knowsReset, RawClient, request } from '../../support/raw-client.ts'
import { startService } from '../../support/service.ts'
import { startProxy } from '../../support/start-proxy.ts'

const table = await startFaultTable()
const { proxy, service } = table
const log = (path: string) => proxy.logOf(path)
const ask = (raw: string) => request(proxy.port, raw)
const put = (target: string, line: string) => get(target, 'acme', line).replace('GET', 'PUT')

test.each([
  ['a length', 'Content-Length: 100000', 'x'.repeat(100_000), 100_000],
  ['chunks', 'Transfer-Encoding: chunked', '5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n', 11],
])('bytesIn and bytesOut count content, however it is framed: %s', async (framing, line, content, bytesIn) => {
  const target = table.target(() => ({ content: Buffer.alloc(70_000), isChunked: framing === 'chunks' }))
  await ask(put(target, line) + content)
  expect(await log(target)).toMatchObject({ bytesIn, bytesOut: 70_000 })
  await ask(get('/v2/head', 'acme').replace('GET', 'HEAD'))
  expect(await log('/v2/head')).toMatchObject({ bytesIn: 0, bytesOut: 0 })
})

test('bytesOut counts the content of our own answers, which have no originMs', async () => {
  const refused = await ask(head('GET /v2/none HTTP/1.1', HOST))
  expect(refused.status).toBe(400)
  expect(await log('/v2/none')).toMatchObject({ bytesOut: refused.content.length })
  expect(await log('/v2/none')).not.toHaveProperty('originMs')
  const before = service.tokens.script
  service.tokens.script = () => ({ status: 404 })
  const failed = await ask(get('/v2/failed', 'nobody'))
  expect(failed.status).toBe(403)
  expect(await log('/v2/failed')).toMatchObject({ bytesOut: failed.content.length })
  await ask(get('/v2/failed-head', 'nobody').replace('GET', 'HEAD'))
  expect(await log('/v2/failed-head')).toMatchObject({ status: 403, bytesOut: 0 })
  service.tokens.script = before
})

test('a repeat that gets no answer has no originMs: the time of the rejection is not its own', async () => {
  const target = '/v2/silent-repeat'
  let tries = 0
  const script: OriginScript = () => {
    tries += 1
    return tries === 1 ? { status: 401 } : undefined
  }
  await using own = await startService({ script, acceptsAnyToken: true })
  await using impatient = await startProxy(own, { 'origin.responseTimeout': '500ms', 'tokens.settleTime': '0s' })
  expect((await request(impatient.port, get(target, 'acme'))).status).toBe(504)
  expect(tries).toBe(2)
  const line = await impatient.logOf(target)
  expect(line).toMatchObject({ status: 504, token: 'replayed' })
  expect(line).not.toHaveProperty('originMs')
})

test('originMs is the time until the response head, without the mint before it and the content after it', async () => {
  const [mintMs, headMs, contentMs] = [300, 200, 300]
  const before = service.tokens.script
  service.tokens.script = async (mint) => {
    await setTimeout(mintMs)
    return mint.issue()
  }
  const target = table.target(async (_, connection) => {
    await setTimeout(headMs)
    connection.write('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\na')
    await setTimeout(contentMs)
    connection.write('b')
  })
  await ask(get(target, 'slowly-minted'))
  const { originMs, durationMs } = (await log(target)) as unknown as Record<string, number>
  expect(originMs).toBeGreaterThanOrEqual(headMs - 1)
  expect((durationMs ?? 0) - (originMs ?? 0)).toBeGreaterThanOrEqual(mintMs + contentMs - 2)
  service.tokens.script = before
})

test.each([
  ['a request', []],
  ['a handshake', HANDSHAKE],
])('%s that is cut off at the end of a drain is logged as draining', async (_, lines) => {
  await using own = await startProxy(service, { 'shutdown.timeout': '50ms' })
  const targets = {
    begun: table.writing('HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nbegun'),
    silent: table.writing(''),
  }
  await using begun = await RawClient.sending(own.port, get(targets.begun, 'acme', ...lines))
  await begun.untilBytes('begun')
  await using silent = await RawClient.sending(own.port, get(targets.silent, 'acme', ...lines))
  await table.arrival(targets.silent)
  expect(await own.app.drain()).toBe(2)
  expect((await silent.untilClosed()).bytes.length, 'the client got nothing').toBe(0)
  expect((await begun.untilClosed()).end, 'what is broken does not look complete').toBe(knowsReset ? 'reset' : 'fin')
  expect(await own.logOf(targets.silent)).toMatchObject({ status: 0, code: 'draining', bytesOut: 0 })
  expect(await own.logOf(targets.begun)).toMatchObject({ status: 200, code: 'draining', bytesOut: 5 })
})

test('the line has the trace id of a valid traceparent, of a refused request, too; the field goes on unchanged', async () => {
  const traceId = '4bf92f3577b34da6a3ce929d0e0e4736'
  const field = (id: string) => `traceparent: 00-${id}-00f067aa0ba902b7-01`
  await ask(get('/v2/"traced"', 'acme', field(traceId)))
  const seen = await table.arrival('/v2/"traced"')
  expect(seen.values('traceparent')).toEqual([field(traceId).slice('traceparent: '.length)])
  expect(await log('/v2/"traced"')).toMatchObject({ traceId })
  await ask(head('GET /v2/refused HTTP/1.1', HOST, field(traceId)))
  expect(await log('/v2/refused')).toMatchObject({ traceId, code: 'org_id_missing' })
  for (const [path, id] of Object.entries({ '/v2/zeros': '0'.repeat(32), '/v2/odd': `${traceId}"}` })) {
    await ask(get(path, 'acme', field(id)))
    expect(await log(path)).not.toHaveProperty('traceId')
  }
})

test.each([
  ['globex', 403, 'org_not_allowed', 'globex'],
  ['a/b', 400, 'org_id_invalid', undefined],
])('the line of a request that was refused for its Org names the Org, if the id is valid: %s', async (org, ...line) => {
  await using own = await startProxy(service, { 'orgs.allow': 'acme' })
  await request(own.port, get('/v2/other', org))
  const { status, code, orgId } = await own.logOf('/v2/other')
  expect([status, code, orgId]).toEqual(line)
})

test('a fault of the client is logged as info, one of the service or of the proxy as a warning, whatever the status', async () => {
  await ask(get('/v2/version', 'acme').replace('HTTP/1.1', 'HTTP/2.0'))
  expect(await log('/v2/version')).toMatchObject({ level: 'info', status: 505, code: 'http_version_refused' })
  await ask(get('/v2/x', 'acme'))
  const [via = ''] = (await table.arrival('/v2/x')).values('via')
  await ask(get('/v2/loop', 'acme', `Via: ${via}`))
  expect(await log('/v2/loop')).toMatchObject({ level: 'warn', status: 508, code: 'proxy_loop_detected' })
  const reset = table.target((_, connection) => connection.reset())
  await ask(get(reset, 'acme'))
  expect(await log(reset)).toMatchObject({ level: 'warn', status: 502, code: 'connection_terminated' })
  const cut = table.target((_, connection) => {
    connection.write('HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nbegun')
    connection.reset()
  })
  await ask(get(cut, 'acme')).catch(() => undefined)
  expect(await log(cut)).toMatchObject({ level: 'warn', status: 200, code: 'http_response_incomplete' })
})

test.each([
  ['two fields', 'twice', 'acme', 'X-Org-Id: globex'],
  ['a blank', 'blank', 'acme corp', ''],
  ['a slash', 'character', 'acme/globex', ''],
  ['a first character that the pattern does not allow', 'character', '.acme', ''],
  ['more characters than the pattern allows', 'too_long', 'a'.repeat(129), ''],
  ['more characters than any id may have', 'too_long', 'a'.repeat(2_000), ''],
])('the line of an invalid org id says which rule it breaks, without the id: %s', async (name, reason, org, line) => {
  const path = `/v2/${name.replaceAll(' ', '-')}`
  const { status, content } = await ask(get(path, org, ...(line === '' ? [] : [line])))
  expect(status).toBe(400)
  const logged = await log(path)
  expect(logged).toMatchObject({ code: 'org_id_invalid', reason })
  expect(JSON.stringify({ ...logged, path: '' }) + content).not.toContain(org)
  expect(JSON.parse(content.toString()).detail).toContain('case-sensitive')
})
