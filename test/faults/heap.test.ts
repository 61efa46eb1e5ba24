/**
 * Several equal series of faults: after each, the process has the sockets and timers of the start, and the heap has not
 * grown. A leak grows from series to series; code that V8 compiles late is a single step.
 */

import { expect, test } from 'vitest'
import { get } from '../support/case-table.ts'
import { eventually } from '../support/changes.ts'
import { badOrigin, IMPATIENT, shortMint, storm } from '../support/misbehaviour.ts'
import { PROBE_ARGS, ProcessProbe } from '../support/process-probe.ts'
import { request } from '../support/raw-client.ts'
import { withSeed } from '../support/seed.ts'
import { startService } from '../support/service.ts'
import { environmentFor, spawnProxy } from '../support/spawn-proxy.ts'
import { environmentOf } from '../support/start-proxy.ts'
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

test(`${FAULTS} faults, until the heap has settled`, () =>
  withSeed(async (random) => {
    await using service = await startService({ script: badOrigin(random), mint: shortMint })
    await using env = await environmentFor(service)
    await using proxy = spawnProxy({
      env: { ...env, ...environmentOf({ ...IMPATIENT, 'origin.connections': `${PLACES}` }) },
      nodeArgs: PROBE_ARGS,
    })
    const { port } = await proxy.ready()
    const probe = await ProcessProbe.attach(proxy)
    const before = await probe.resources()

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
    console.log(
      heapBytes.map((b) => Math.round(b / 1024)),
      before,
    )
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
