/**
 * Storm after storm, each as hard as the one before: behind every one the process has the sockets and timers of the
 * start, and the heap stays: what leaks grows from each to the next, what V8 has compiled once more is one step.
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
/** The first ones warm up: what is compiled and learned there is kept for good. */
const WARM_UPS = 2
const ROUNDS = 6
const PLACES = 16
const MAX_GROWTH_BYTES = 256 * 1024
const SETTLED_WITHIN_MS = 10_000

test(`R11: ${ROUNDS} times ${FAULTS} faults`, { timeout: 90_000 }, () =>
  withSeed(async (random) => {
    await using service = await startService({ script: badOrigin(random), mint: shortMint })
    await using env = await environmentFor(service)
    await using proxy = spawnProxy({
      env: { ...env, ...environmentOf({ ...IMPATIENT, 'origin.connections': `${PLACES}` }) },
      nodeArgs: PROBE_ARGS,
    })
    const port = Number(/\d+$/.exec(JSON.parse(await proxy.waitForLine(/"msg":"ready"/)).address)?.[0])
    const probe = await ProcessProbe.attach(proxy)
    const before = await probe.resources()

    const settled = async () => {
      const now = await probe.resources()
      return JSON.stringify(now) === JSON.stringify(before) || undefined
    }
    const heapBytes: number[] = []
    for (let round = 0; round < ROUNDS; round++) {
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
    const [first = 0, ...later] = heapBytes.slice(WARM_UPS)
    const [, middle = Number.POSITIVE_INFINITY] = later.toSorted((a, b) => a - b)
    expect(middle - first, `growth in bytes over ${heapBytes}`).toBeLessThan(MAX_GROWTH_BYTES)

    await expectWholePool(port, service, PLACES)
    expect((await request(port, get('/v2/good', 'org-1'))).status).toBe(200)
    expect(proxy.output).not.toMatch(/unexpected failure|proxy_internal_error/)
    probe[Symbol.dispose]()
    proxy.signal('SIGTERM')
    expect(await proxy.exited).toEqual({ code: 0, signal: null })
  }),
)
