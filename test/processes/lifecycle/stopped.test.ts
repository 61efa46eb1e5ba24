/**
 * The attack: the service writes a second response on an idle connection while the process does not run. When it runs again,
 * the request of another org is ready at the same moment. Written to that connection, it would get the stranger's response.
 */

import { existsSync, readFileSync } from 'node:fs'
import { connect, createServer } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { describe, expect, test, vi } from 'vitest'
import { get } from '../../support/case-table.ts'
import { CA_FILE, certificate } from '../../support/certificates.ts'
import { Gate } from '../../support/changes.ts'
import { listening } from '../../support/listening.ts'
import { scaled } from '../../support/pace.ts'
import { type ProxyProcess, startProxyProcess } from '../../support/proxy-process.ts'
import { RawClient, request } from '../../support/raw-client.ts'
import { startService } from '../../support/service.ts'

test.each([
  ['a second response', 'GET', 'HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nstranger'],
  ['the end of the connection', 'POST', ''],
])('a process that was stopped sees %s before it writes a request', async (_, method, surplus) => {
  await using service = await startService({
    script: (seen) => ({ content: service.orgOf(seen) ?? '' }),
  })
  await using proxy = await startProxyProcess(service, { settings: { 'origin.keepAliveTimeout': '1h' } })
  await request(proxy.port, get('/v2/x', 'victim')) // the token is cached
  await request(proxy.port, get('/v2/x', 'stranger'))
  const idle = service.requests.at(-1)?.connection
  await using victim = await RawClient.connect(proxy.port)
  victim.send(get('/v2/x', 'victim'))
  await victim.response()
  proxy.spawned.signal('SIGSTOP')
  victim.send(get('/v2/x', 'victim').replace('GET', method))
  if (surplus === '') idle?.end()
  else idle?.write(surplus)
  await sleep(50) // nothing tells when the kernel has delivered both
  proxy.spawned.signal('SIGCONT')
  const { status, content } = await victim.response()
  expect([status, content.toString()]).toEqual([200, 'victim'])
})

const LIMIT_FILE = '/proc/sys/net/core/somaxconn'
const SOMAXCONN = existsSync(LIMIT_FILE) ? Number(readFileSync(LIMIT_FILE, 'utf8')) : 0

test.skipIf(SOMAXCONN < 2_000)('connections that come while the process does not run wait for it', async () => {
  await using service = await startService()
  await using proxy = await startProxyProcess(service)
  await request(proxy.port, get('/v2/x', 'acme'))
  proxy.spawned.signal('SIGSTOP')
  const clients = await Promise.all(Array.from({ length: 1_000 }, () => RawClient.connect(proxy.port)))
  for (const client of clients) client.send(get('/v2/x', 'acme'))
  proxy.spawned.signal('SIGCONT')
  for (const client of clients) {
    expect((await client.response()).status).toBe(200)
    await client[Symbol.asyncDispose]()
  }
})

test('a process that stood still says so: in the log, and in the delay of the event loop', async () => {
  await using service = await startService()
  await using proxy = await startProxyProcess(service)
  await proxy.metric('nodejs_eventloop_lag_max_seconds') // from here on, the delay is measured
  await sleep(50) // a scrape begins anew, with the first tick of 10 ms behind it
  proxy.spawned.signal('SIGSTOP')
  await sleep(STOPPED_MS)
  proxy.spawned.signal('SIGCONT')
  await proxy.spawned.waitForLine(/"msg":"the process stood still"/)
  const [told, ...others] = proxy.spawned.logs.filter(({ msg }) => msg === 'the process stood still')
  expect([told?.['level'], Number(told?.['ms']) > STOPPED_MS / 2, others]).toEqual(['warn', true, []])
  expect(await proxy.metric('nodejs_eventloop_lag_max_seconds')).toBeGreaterThan(1)
})

/** Of every time limit here. A busy machine needs longer for what is left of it behind the stop. */
const LIMIT_MS = Math.ceil(Math.min(scaled(1_000), 3_000))
const STOPPED_MS = 2 * LIMIT_MS
/** Between two looks at connections that may be silent for a second. */
const LONGEST_SWEEP_MS = 250

describe('time for which the process stood still is in no limit', () => {
  const stop = async (proxy: ProxyProcess, meanwhile: () => void) => {
    await sleep(LONGEST_SWEEP_MS) // so that the silence has begun for the listener and the pool
    proxy.spawned.signal('SIGSTOP')
    const state = () => readFileSync(`/proc/${proxy.spawned.pid}/stat`, 'utf8')
    await vi.waitUntil(() => state().includes(') T '))
    meanwhile()
    await sleep(STOPPED_MS)
    proxy.spawned.signal('SIGCONT')
  }
  const orgs = ['one', 'two', 'three', 'four', 'five']
  const settings = {
    'tokens.mintTimeout': `${LIMIT_MS}ms`,
    'origin.responseTimeout': `${LIMIT_MS}ms`,
    'listen.headersTimeout': `${LIMIT_MS}ms`,
  }

  test.each([
    ['every mint is under way', {}, 5],
    ['mints wait for their turn', { 'tokens.mintConcurrency': '1' }, 1],
  ])('while %s', async (_, more, underway) => {
    const gate = new Gate()
    await using service = await startService({ mint: (mint) => gate.pass().then(() => mint.issue()) })
    await using proxy = await startProxyProcess(service, { settings: { ...settings, ...more } })
    const answers = orgs.map((org) => request(proxy.port, get('/v2/x', org)))
    await gate.untilWaiting(underway)
    await stop(proxy, () => gate.open())
    expect((await Promise.all(answers)).map(({ status }) => status)).toEqual(orgs.map(() => 200))
  })

  test('while the service answers', async () => {
    const gate = new Gate()
    await using service = await startService({ script: () => gate.pass().then(() => ({ content: 'late' })) })
    await using proxy = await startProxyProcess(service, { settings })
    const answer = request(proxy.port, get('/v2/x', 'acme'))
    await gate.untilWaiting(1)
    await stop(proxy, () => gate.open())
    expect((await answer).status).toBe(200)
  })

  test('while a connection to the service opens', async () => {
    await using service = await startService({ tls: certificate('localhost') })
    const held = new Gate()
    await using relay = await listening(
      createServer((client) => {
        const onward = connect(service.origin.port).on('error', () => client.destroy())
        client.on('error', () => onward.destroy()).pipe(onward)
        client.once('data', () => void held.pass().then(() => onward.pipe(client)))
      }),
    )
    await using proxy = await startProxyProcess(
      { appId: service.appId, appSecret: service.appSecret, baseUrl: `https://localhost:${relay.port}` },
      { settings: { ...settings, 'origin.connectTimeout': `${LIMIT_MS}ms` }, env: { NODE_EXTRA_CA_CERTS: CA_FILE } },
    )
    const answer = request(proxy.port, get('/v2/x', 'acme'))
    await held.untilWaiting(1)
    await stop(proxy, () => held.open())
    expect((await answer).status).toBe(200)
  })

  test('while a client sends its head', async () => {
    await using service = await startService()
    await using proxy = await startProxyProcess(service, { settings })
    const head = get('/v2/x', 'acme')
    await using client = await RawClient.sending(proxy.port, head.slice(0, 20))
    await request(proxy.port, get('/v2/x', 'acme')) // by then, the first piece was read
    await stop(proxy, () => client.send(head.slice(20)))
    expect((await client.response()).status).toBe(200)
  })

  test('while a proxy that ends waits for the first request of a client', async () => {
    await using service = await startService()
    await using proxy = await startProxyProcess(service)
    await using client = await RawClient.connect(proxy.port)
    await request(proxy.port, get('/v2/x', 'acme')) // by then, the client was accepted
    proxy.spawned.signal('SIGTERM')
    await proxy.spawned.waitForLine(/"msg":"drain"/)
    await stop(proxy, () => client.send(get('/v2/x', 'acme')))
    expect((await client.response()).status).toBe(200)
  })
})
