/**
 * Several equal series of faults: after each, the process has the sockets and timers of the start, and the heap has not
 * grown. A leak grows from series to series; code that V8 compiles late is a single step.
 */

import { expect, test } from 'vitest'
import { get } from '../support/case-table.ts'
import { eventually } from '../support/changes.ts'
import type { OriginScript } from '../support/origin-connection.ts'
import { scaledSetting } from '../support/pace.ts'
import { PROBE_ARGS, ProcessProbe } from '../support/process-probe.ts'
import { RawClient, request } from '../support/raw-client.ts'
import { type Random, withSeed } from '../support/seed.ts'
import { startService } from '../support/service.ts'
import { environmentFor, spawnProxy } from '../support/spawn-proxy.ts'
import { environmentOf } from '../support/start-proxy.ts'
import type { MintScript } from '../support/token-endpoint.ts'
import { expectWholePool } from '../support/whole-pool.ts'

const FAULTS = 150
/** V8 compiles code during the first series, and keeps it. Their number depends on the version of V8 and on time. */
const MAX_ROUNDS = 30
/** The heap has settled if it grew little over this many series in a row. */
const SETTLED_ROUNDS = 4
const PLACES = 32
/** Growth from one series to the next. One kilobyte kept for each fault would exceed it. */
const MAX_GROWTH_BYTES = 96 * 1024
const SETTLED_WITHIN_MS = 10_000

const AT_ONCE = 48

/** Settings of the proxy, so that every fault ends soon. */
const IMPATIENT = {
  'origin.connections': `${PLACES}`,
  'origin.responseTimeout': scaledSetting(300),
  'origin.idleTimeout': scaledSetting(300),
  'listen.idleTimeout': scaledSetting(300),
  'listen.headersTimeout': scaledSetting(300),
  'listen.keepAliveTimeout': scaledSetting(300),
  'tokens.rejectedCooldown': '100ms',
} as const

/** Sent as Keep-Alive timeout, from which the proxy takes a second off, so that idle connections end soon. */
const SHORT_LIFE = ['Keep-Alive', 'timeout=2'] as const

/** Answers in seven ways, most of them bad. The number in the target decides. */
function badOrigin(random: Random): OriginScript {
  return async (seen, connection) => {
    if (seen.target === '/v2/good') return { fields: SHORT_LIFE, content: 'good' }
    const own = random.numbered(Number(seen.target.slice('/v2/'.length)))
    switch (own.integer(0, 6)) {
      case 0:
        return // silent for ever
      case 1:
        connection.reset()
        return
      case 2:
        connection.end()
        return
      case 3:
        connection.write('HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\ncut')
        connection.end()
        return
      case 4:
        connection.write('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nand\r\n') // and no more
        return
      case 5:
        return { status: 401, reason: 'Unauthorized', fields: SHORT_LIFE }
      default:
        await seen.ended
        return { fields: SHORT_LIFE, content: 'x'.repeat(own.integer(0, 200_000)) }
    }
  }
}

async function misbehave(port: number, random: Random, number: number): Promise<void> {
  await using client = await RawClient.connect(port, { deadlineMs: 10_000 })
  const org = `org-${random.integer(1, 8)}`
  const lines = random.chance(0.4) ? ['Content-Length: 1000'] : []
  const raw = get(`/v2/${number}`, org, ...lines).replace('GET', lines.length === 0 ? 'GET' : 'POST')
  client.send(raw.slice(0, random.chance(0.1) ? random.integer(0, raw.length) : raw.length))
  if (lines.length > 0) client.send('x'.repeat(random.pick([0, 500, 1000])))
  switch (random.integer(0, 4)) {
    case 0:
      client.reset()
      return
    case 1:
      return // leaves with unread bytes
    case 2:
      client.endSending()
      await client.untilClosed()
      return
    default:
      await client.untilClosed().catch(() => undefined) // the deadline of the client ends those that go on
  }
}

const shortMint: MintScript = (mint) => ({ ...mint.issue(), fields: SHORT_LIFE })

/** Sends this many requests, most of which fail. */
async function storm(port: number, random: Random, requests: number): Promise<void> {
  let next = 0
  const client = async () => {
    while (next < requests) {
      const number = next++
      await misbehave(port, random.numbered(number), number)
    }
  }
  await Promise.all(Array.from({ length: AT_ONCE }, client))
}

test(`${FAULTS} faults, until the heap has settled`, () =>
  withSeed(async (random) => {
    await using service = await startService({ script: badOrigin(random), mint: shortMint })
    await using env = await environmentFor(service)
    await using proxy = spawnProxy({ env: { ...env, ...environmentOf(IMPATIENT) }, nodeArgs: PROBE_ARGS })
    const { port } = await proxy.ready()
    const probe = await ProcessProbe.attach(proxy)
    const started = () => probe.resources().then((now) => (now['Timeout'] === undefined ? now : undefined))
    const before = await eventually(started, 'the end of the timers of the start')
    const settled = async () => {
      const now = await probe.resources()
      return JSON.stringify(now) === JSON.stringify(before) || undefined
    }
    const heapBytes: number[] = []
    while (medianGrowth(heapBytes) >= MAX_GROWTH_BYTES && heapBytes.length < MAX_ROUNDS) {
      await storm(port, random, FAULTS)
      await eventually(settled, `the resources of the start, ${JSON.stringify(before)}`, SETTLED_WITHIN_MS)
      heapBytes.push(await probe.heapBytes())
      service.origin.requests.length = 0
      proxy.stdout.length = 0
    }
    expect(medianGrowth(heapBytes), `growth in bytes over ${heapBytes}`).toBeLessThan(MAX_GROWTH_BYTES)

    await expectWholePool(port, service, PLACES)
    expect((await request(port, get('/v2/good', 'org-1'))).status).toBe(200)
    expect(proxy.output).not.toMatch(/unexpected failure|proxy_internal_error/)
    probe[Symbol.dispose]()
    proxy.signal('SIGTERM')
    expect(await proxy.exited).toEqual({ code: 0, signal: null })
  }))

/** Growth from one series to the next, over the last ones. A leak never settles: it grows in each. */
function medianGrowth(heapBytes: readonly number[]): number {
  if (heapBytes.length < SETTLED_ROUNDS) return Number.POSITIVE_INFINITY
  const last = heapBytes.slice(-SETTLED_ROUNDS)
  const growth = last.slice(1).map((bytes, i) => bytes - (last[i] ?? 0))
  return growth.toSorted((a, b) => a - b)[growth.length >> 1] ?? Number.POSITIVE_INFINITY
}
