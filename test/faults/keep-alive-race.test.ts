/** The origin closes connections that were idle for a second, and requests arrive at just that moment. */

import { setTimeout as sleep } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { get } from '../support/case-table.ts'
import type { OriginConnection, OriginScript } from '../support/origin-connection.ts'
import { RawClient } from '../support/raw-client.ts'
import { type Random, withSeed } from '../support/seed.ts'
import { startService } from '../support/service.ts'
import { startProxy } from '../support/start-proxy.ts'
import { expectWholePool } from '../support/whole-pool.ts'

const LANES = 250
const ROUNDS = 4
const PLACES = 256
const IDLE_MS = 1_000
/** Slow answers, so that all clients need connections at once. Otherwise the pool would use the youngest for most requests. */
const LATENCY_MS = 300

/**
 * Closes a connection that served nothing for `IDLE_MS`; with `announces`, it says so. The last request decides how it
 * closes.
 */
function impatientOrigin(announces: boolean, random: Random): OriginScript {
  const timers = new WeakMap<OriginConnection, NodeJS.Timeout>()
  return async (seen, connection) => {
    clearTimeout(timers.get(connection))
    await seen.ended
    await sleep(LATENCY_MS)
    const endsOrderly = random.numbered(numberOf(seen.target)).chance(0.5)
    const idle = setTimeout(() => (endsOrderly ? connection.end() : connection.reset()), IDLE_MS)
    timers.set(connection, idle.unref())
    return { fields: announces ? ['Keep-Alive', 'timeout=1'] : [], content: seen.target }
  }
}

/** Number of the request in the run. */
function numberOf(target: string): number {
  const [lane, round] = target.split('/').slice(-2).map(Number)
  return (lane ?? 0) * ROUNDS + (round ?? 0)
}

interface Outcome {
  readonly target: string
  readonly method: string
  readonly status: number
}

async function runLane(port: number, lane: number, random: Random): Promise<Outcome[]> {
  const outcomes: Outcome[] = []
  for (let round = 0; round < ROUNDS; round++) {
    const method = random.pick(['GET', 'HEAD', 'PUT', 'DELETE', 'OPTIONS', 'POST', 'PATCH'])
    const target = `/v2/${lane}/${round}`
    await using client = await RawClient.sending(port, get(target, 'acme').replace('GET', method), {
      deadlineMs: 30_000,
    })
    outcomes.push({ target, method, status: (await client.response(method)).status })
    // The test is about this gap, which ends around the moment at which the origin closes.
    await sleep(random.integer(IDLE_MS - 100, IDLE_MS + 100))
  }
  return outcomes
}

test.concurrent.each([
  ['announces its patience', true],
  ['says nothing', false],
] as const)(`${LANES * ROUNDS} requests, an origin that %s`, (_, announces) =>
  withSeed(async (random) => {
    await using service = await startService({ script: impatientOrigin(announces, random.numbered(LANES)) })
    await using proxy = await startProxy(service, {
      'origin.responseTimeout': '30s',
      'origin.connections': `${PLACES}`,
    })
    const lanes = Array.from({ length: LANES }, (_, lane) => runLane(proxy.port, lane, random.numbered(lane)))
    const outcomes = (await Promise.all(lanes)).flat()

    const attempts = new Map<string, number>()
    for (const { target } of service.requests) attempts.set(target, (attempts.get(target) ?? 0) + 1)
    for (const { target, method, status } of outcomes) {
      const isRepeatable = method !== 'POST' && method !== 'PATCH'
      if (isRepeatable || announces) expect(status, `${method} ${target}`).toBe(200)
      else expect([200, 502], `${method} ${target}`).toContain(status)
      if (isRepeatable) continue
      const sent = attempts.get(target) ?? 0
      expect(sent, `${method} ${target} at the origin`).toBeLessThanOrEqual(1)
      if (status === 200) expect(sent, `${method} ${target} answered with 200`).toBe(1)
    }
    expect(service.origin.connections.length, 'connections that had to be opened anew').toBeGreaterThan(LANES / 10)
    await expectWholePool(proxy.port, service, PLACES)
  }),
)
