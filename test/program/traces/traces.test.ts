/** Spans of the whole program, at a strict collector; and that a bad collector costs spans and nothing else. */

import { setTimeout } from 'node:timers/promises'
import type { ReadableSpan } from '@opentelemetry/sdk-trace'
import { expect, onTestFinished, test, vi } from 'vitest'
import { RequestRecord } from '../../../src/gateway/request-record.ts'
import { SpanQueue } from '../../../src/traces/span-queue.ts'
import { Traces } from '../../../src/traces/traces.ts'
import { canariesOf } from '../../support/canaries.ts'
import { get, HOST, head } from '../../support/case-table.ts'
import { eventually } from '../../support/changes.ts'
import { type Behaviour, type CollectedSpan, SpanKind, STATUS_ERROR, startCollector } from '../../support/collector.ts'
import { HANDSHAKE } from '../../support/handshake.ts'
import { valuesOf } from '../../support/http-reader.ts'
import { KeepAliveClient } from '../../support/keep-alive-client.ts'
import { freePort } from '../../support/listening.ts'
import type { OriginRequest } from '../../support/origin-connection.ts'
import { RawClient, request } from '../../support/raw-client.ts'
import type { ServiceOptions } from '../../support/service.ts'
import { type ProxySettings, startBoth } from '../../support/start-proxy.ts'

const TRACE_ID = '0af7651916cd43dd8448eb211c80319c'
const PARENT_ID = 'b7ad6b7169203331'
const SAMPLED = `traceparent: 00-${TRACE_ID}-${PARENT_ID}-01`
const UNSAMPLED = `traceparent: 00-${TRACE_ID}-${PARENT_ID}-00`

/** A proxy with a collector. `spans` stops the proxy, which sends the last of them. */
async function startTraced(
  options: ServiceOptions = {},
  settings: ProxySettings = {},
  behaviour?: Behaviour,
  files: Readonly<Record<string, string>> = {},
) {
  const collector = await startCollector(behaviour)
  onTestFinished(() => collector[Symbol.asyncDispose]())
  const { service, proxy } = await startBoth(options, { 'traces.endpoint': collector.endpoint, ...settings }, files)
  const ask = (raw: string) => request(proxy.port, raw)
  const spans = async () => {
    await proxy.app.drain()
    expect(collector.problems).toEqual([])
    expect(canariesOf(service.tokens).search(collector.received.join('\n'))).toEqual([])
    return collector.spans
  }
  return { collector, service, proxy, ask, spans }
}

const servers = (spans: readonly CollectedSpan[]) => spans.filter(({ kind }) => kind === SpanKind.server)
const mints = (spans: readonly CollectedSpan[]) => spans.filter(({ name }) => name === 'mint')
const attempts = (spans: readonly CollectedSpan[]) =>
  spans.filter(({ kind, name }) => kind === SpanKind.client && name !== 'mint')
const parentAt = (seen: OriginRequest | undefined) => seen?.values('traceparent')
const asField = ({ traceId, spanId }: CollectedSpan) => `00-${traceId}-${spanId}-01`

test('the spans of the app, of the proxy and of the service are one trace, and the mint is linked', async () => {
  const { collector, service, proxy, ask, spans } = await startTraced({ prefix: '/api' })
  expect((await ask(get('/v2/things?secret=query', 'acme', SAMPLED, 'tracestate: a=b'))).status).toBe(200)
  const all = await spans()
  expect(all).toHaveLength(3)
  const [[server], [attempt], [mint]] = [servers(all), attempts(all), mints(all)]
  expect(server).toMatchObject({ traceId: TRACE_ID, parentSpanId: PARENT_ID, name: 'GET' })
  expect(attempt).toMatchObject({ traceId: TRACE_ID, parentSpanId: server?.spanId, name: 'GET' })
  const [seen] = service.requests
  expect(parentAt(seen)).toEqual(attempt && [asField(attempt)])
  expect(seen?.values('tracestate')).toEqual(['a=b'])
  expect(mint?.traceId).not.toBe(TRACE_ID)
  expect(server?.links).toMatchObject([{ traceId: mint?.traceId, spanId: mint?.spanId }])
  const { requestId } = await proxy.logOf('/v2/things')
  const place = { 'server.address': '127.0.0.1', 'server.port': service.origin.port }
  expect(server?.attributes).toEqual({
    'http.request.method': 'GET',
    'http.response.status_code': 200,
    'url.path': '/v2/things',
    'url.scheme': proxy.settings['listen.tls.certFile'] === undefined ? 'http' : 'https',
    'oap.org': 'acme',
    'oap.token': 'miss',
    'oap.request_id': requestId,
  })
  expect(attempt?.attributes).toEqual({
    'http.request.method': 'GET',
    'http.response.status_code': 200,
    'url.full': `${service.baseUrl}/v2/things`,
    ...place,
  })
  expect(mint?.attributes).toEqual({
    'http.request.method': 'POST',
    'url.full': `${service.baseUrl}/v2/orgs/acme/access`,
    'oap.org': 'acme',
    'oap.mint.reason': 'cold',
    ...place,
  })
  expect(collector.resources[0]).toMatchObject({ 'service.name': 'org-access-proxy' })
  expect(collector.received.join('')).not.toContain('secret=query')
})

test('a repeat is a span of its own; a request with a token from the cache has no link', async () => {
  const { service, ask, spans } = await startTraced()
  await ask(get('/v2/first', 'acme', UNSAMPLED))
  await ask(get('/v2/cached', 'acme', SAMPLED))
  service.tokens.revoke('acme')
  await ask(get('/v2/rejected', 'acme', SAMPLED))
  const all = await spans()
  const [cached, rejected] = servers(all)
  expect(cached?.links).toEqual([])
  expect(rejected?.attributes).toMatchObject({ 'http.response.status_code': 200, 'oap.token': 'replayed' })
  const [, second] = mints(all)
  expect(second?.attributes['oap.mint.reason']).toBe('rejected')
  expect(rejected?.links.map(({ spanId }) => spanId)).toEqual([second?.spanId])
  const tries = attempts(all).filter(({ parentSpanId }) => parentSpanId === rejected?.spanId)
  expect(tries.map(({ attributes }) => attributes['http.request.resend_count'])).toEqual([undefined, 1, 2])
  expect(tries.map(({ attributes }) => attributes['error.type'])).toEqual(['401', '401', undefined])
  expect(tries.map(({ status }) => status.code)).toEqual([STATUS_ERROR, STATUS_ERROR, 0])
  expect(service.requests.slice(2).map(parentAt)).toEqual(tries.map((each) => [asField(each)]))
})

test('the wait for a connection is no time of the service: in the log, in Server-Timing, in the metrics, in the span', async () => {
  const serviceMs = 300
  const settings = { 'origin.connections': '1', 'listen.serverTiming': 'true', 'admin.address': 'localhost:0' }
  const script = async () => {
    await setTimeout(serviceMs)
    return {}
  }
  const { proxy, ask, spans } = await startTraced({ script }, settings)
  const answers = await Promise.all(['/v2/1', '/v2/2', '/v2/3'].map((path) => ask(get(path, 'acme', SAMPLED))))
  const timings = answers.map(({ fields }) =>
    Number(/dur=([\d.]+)/.exec(valuesOf(fields, 'server-timing')[0] ?? '')?.[1]),
  )
  expect(Math.max(...timings)).toBeGreaterThan(2 * serviceMs - 20)
  for (const path of ['/v2/1', '/v2/2', '/v2/3']) {
    expect(Number((await proxy.logOf(path))['originMs'])).toBeLessThan(2 * serviceMs - 20)
  }
  expect(await proxy.metric('oap_service_response_seconds_sum')).toBeLessThan((5 * serviceMs) / 1_000)
  const lengths = attempts(await spans()).map((span) => Number(span.endTimeUnixNano - span.startTimeUnixNano) / 1e6)
  expect(lengths).toHaveLength(3)
  expect(Math.max(...lengths)).toBeLessThan(2 * serviceMs - 20)
})

test('of a parent that is not sampled, nothing is kept, and its fields go on unchanged', async () => {
  const { service, ask, spans } = await startTraced({}, { 'traces.sample': '1' })
  await ask(get('/v2/unsampled', 'acme', UNSAMPLED, 'tracestate: a=b'))
  const all = await spans()
  expect(all.map(({ name }) => name)).toEqual(['mint'])
  const [seen] = service.requests
  expect(parentAt(seen)).toEqual([UNSAMPLED.slice('traceparent: '.length)])
  expect(seen?.values('tracestate')).toEqual(['a=b'])
})

test.each([
  ['no parent', []],
  ['an invalid parent', [`${SAMPLED}x`]],
  ['two parents', [SAMPLED, SAMPLED]],
])('with %s, a trace begins here, and the log has its id', async (_, lines) => {
  const { service, proxy, ask, spans } = await startTraced({}, { 'traces.sample': '1' })
  await ask(get('/v2/root', 'acme', ...lines, 'tracestate: a=b'))
  const all = await spans()
  const [[server], [attempt]] = [servers(all), attempts(all)]
  expect(server?.parentSpanId).toBeUndefined()
  expect(server?.traceId).not.toBe(TRACE_ID)
  expect(attempt?.traceId).toBe(server?.traceId)
  const [seen] = service.requests
  expect(parentAt(seen)).toEqual(attempt && [asField(attempt)])
  expect(seen?.values('tracestate'), 'it belongs to another trace').toEqual([])
  expect(await proxy.logOf('/v2/root')).toMatchObject({ traceId: server?.traceId })
})

test('errors of the client, of the service and of the token endpoint', async () => {
  const { service, ask, spans } = await startTraced({ script: (_, connection) => connection.reset() })
  await ask(head('PROPFIND /v2/refused HTTP/1.1', HOST, SAMPLED))
  await ask(get('/v2/reset', 'acme', SAMPLED))
  service.script = (_, connection) => {
    connection.write('HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\ncut')
    connection.end()
  }
  await ask(get('/v2/cut', 'acme', SAMPLED))
  service.tokens.script = () => ({ status: 404 })
  await ask(get('/v2/unlinked', 'globex', SAMPLED))
  const all = await spans()
  const [refused, reset, cut, unlinked] = servers(all)
  expect(refused).toMatchObject({ name: 'HTTP', parentSpanId: PARENT_ID, status: { code: 0 } })
  expect(refused?.attributes).toMatchObject({
    'error.type': 'org_id_missing',
    'http.request.method': '_OTHER',
    'http.request.method_original': 'PROPFIND',
    'http.response.status_code': 400,
  })
  expect(reset?.status.code).toBe(STATUS_ERROR)
  expect(reset?.attributes['error.type']).toBe('connection_terminated')
  expect(attempts(all).map(({ attributes }) => attributes['error.type'])).toContain('connection_terminated')
  expect(cut?.status.code).toBe(STATUS_ERROR)
  expect(cut?.attributes).toMatchObject({ 'error.type': 'http_response_incomplete' })
  const failed = mints(all).find(({ status }) => status.code === STATUS_ERROR)
  expect(failed?.attributes['error.type']).toBe('org_access_refused')
  expect(unlinked?.links.map(({ spanId }) => spanId)).toEqual([failed?.spanId])
  expect(unlinked?.attributes['oap.token']).toBe('none')
})

test('a stranger leaves no spans, whatever its traceparent says', async () => {
  const settings = { 'listen.callerKeyFile': '$FOLDER/key', 'traces.sample': '1' }
  const { proxy, ask, spans } = await startTraced({}, settings, 200, { key: 'a-key-of-callers-that-is-long' })
  for (const raw of [
    get('/v2/no-key', 'acme', SAMPLED),
    get('/v2/page', 'acme', SAMPLED, 'Origin: https://attacker.example'),
    get('/v2/host', 'acme', SAMPLED).replace(/Host: .*/, 'Host: attacker.example'),
    `GET /v2/broken HTTP/1.1\r\n${SAMPLED}\r\n bad\r\n\r\n`,
  ]) {
    expect((await ask(raw)).status).toBeGreaterThanOrEqual(400)
  }
  expect(await proxy.logOf('/v2/no-key')).toMatchObject({ code: 'caller_refused', traceId: TRACE_ID })
  expect(await spans()).toEqual([])
})

test('a client that leaves got no status; a WebSocket is a request with 101', async () => {
  const { service, proxy, spans } = await startTraced({ script: () => undefined })
  await using left = await RawClient.connect(proxy.port)
  left.send(get('/v2/left', 'acme', SAMPLED))
  await service.origin.waitFor(() => service.requests.length === 1, 'the request')
  left.reset()
  await proxy.logOf('/v2/left')
  service.script = (_, connection) =>
    connection.write('HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n')
  await using socket = await RawClient.connect(proxy.port)
  socket.send(get('/v2/socket', 'acme', SAMPLED, ...HANDSHAKE))
  await proxy.logOf('/v2/socket')
  socket.reset()
  const [gone, upgraded] = servers(await spans())
  expect(gone?.attributes).toMatchObject({ 'error.type': 'client_closed' })
  expect(gone?.attributes).not.toHaveProperty('http.response.status_code')
  expect(gone?.status.code).toBe(0)
  expect(upgraded?.attributes).toMatchObject({ 'http.response.status_code': 101 })
})

test.each([
  ['refuses', 400, 'it answers 400'],
  ['is away', undefined, ''],
  ['hangs', 'hang', ''],
] as const)(
  'a collector that %s costs spans, which are counted, and no request waits',
  async (_, behaviour, problem) => {
    const away = { 'traces.endpoint': `http://127.0.0.1:${await freePort()}/v1/traces` }
    const settings = { 'traces.sample': '1', 'admin.address': 'localhost:0', ...(behaviour === undefined ? away : {}) }
    const { service, proxy } = await startTraced({}, settings, behaviour ?? 200)
    using client = new KeepAliveClient(proxy.port)
    // Two spans each. Unless it refuses them at once, that is 152 more than there is room for.
    const requests = behaviour === 400 ? 150 : 1_100
    for (let i = 0; i < requests; i++) await client.get('/v2/many', 'acme')
    expect(service.requests).toHaveLength(requests)
    const dropped = async () => (await proxy.metric('oap_spans_dropped_total')) >= 150
    await eventually(dropped, 'half of them to be dropped')
    const { content } = await proxy.askAdmin('/status')
    const { warnings } = JSON.parse(content)
    expect(warnings).toMatchObject([{ code: 'spans_dropped', text: expect.stringContaining(problem) }])
    const startedAt = performance.now()
    await proxy.app.drain()
    expect(performance.now() - startedAt).toBeLessThan(4_000)
  },
)

test('without traces.endpoint there is no metric of spans', async () => {
  const { proxy } = await startBoth({}, { 'admin.address': 'localhost:0' })
  expect(await proxy.metric('oap_spans_dropped_total')).toBeNaN()
})

test('a valid parent decides, and chance without one', () => {
  const options = { baseUrl: new URL('http://127.0.0.1'), scheme: 'http', version: '1' } as const
  const endpoint = new URL('http://127.0.0.1:9/v1/traces')
  const [always, never] = [1, 0].map((sample) => new Traces({ endpoint, sample, ...options }))
  const begins = (traces: Traces | undefined, parent?: string) => {
    const record = new RequestRecord('request-1', 'acme', 'GET', '/v2/things', performance.now())
    return traces?.begin(record, parent) !== undefined
  }
  const parent = (version: string, flags: string, more = '') => `${version}-${TRACE_ID}-${PARENT_ID}-${flags}${more}`
  for (const sampled of [parent('00', '01'), parent('00', '03'), parent('01', '01'), parent('cc', 'ff', '-what')]) {
    expect([begins(never, sampled), begins(always, sampled)], sampled).toEqual([true, true])
  }
  expect(begins(always, parent('00', '02'))).toBe(false)
  const invalid = [
    parent('ff', '01'),
    parent('00', '01', '-what'),
    parent('00', '01').toUpperCase(),
    parent('00', '01').replace(PARENT_ID, '0'.repeat(16)),
    parent('00', '01').replace(TRACE_ID, '0'.repeat(32)),
    parent('01', '01', '.what'),
    '',
    undefined,
  ]
  for (const each of invalid) expect([begins(never, each), begins(always, each)], each).toEqual([false, true])
})

test('answers of the collector that never end: what is held stays bounded, and the rest is counted', async () => {
  let batches = 0
  const dripping = { export: () => void batches++, shutdown: async () => undefined }
  const queue = new SpanQueue(dripping, 10)
  const span = { spanContext: () => ({ traceFlags: 1 }), resource: {} } as unknown as ReadableSpan
  for (let i = 0; i < 3_000; i++) queue.onEnd(span)
  await vi.waitFor(() => expect(batches).toBe(2_048 / 128))
  queue.onEnd(span)
  expect([queue.dropped, queue.isDropping]).toEqual([3_000 - 2_048 + 1, true])
  await queue.shutdown()
})
