/** A series of faults leaves nothing behind: there are as many sockets, timers and other handles as before. */

import { test } from 'vitest'
import { get } from '../support/case-table.ts'
import { eventually } from '../support/changes.ts'
import { badOrigin, IMPATIENT, shortMint, storm } from '../support/misbehaviour.ts'
import { request } from '../support/raw-client.ts'
import { withSeed } from '../support/seed.ts'
import { startService } from '../support/service.ts'
import { startProxy } from '../support/start-proxy.ts'
import { expectWholePool } from '../support/whole-pool.ts'

const REQUESTS = 300
const PLACES = 16
/** Longer than the proxy keeps an idle connection to the origin. */
const SETTLED_WITHIN_MS = 10_000

/** Handles that keep, or could keep, a process alive, by kind. The event loop still has to drop some of finished requests. */
function handles(): Record<string, number> {
  const counts: Record<string, number> = {}
  for (const kind of process.getActiveResourcesInfo()) {
    if (/^(TCP|Pipe|TLS|Timeout$)/.test(kind)) counts[kind] = (counts[kind] ?? 0) + 1
  }
  return counts
}

function isWithin(counts: Record<string, number>, limits: Record<string, number>): boolean {
  return Object.entries(counts).every(([kind, count]) => count <= (limits[kind] ?? 0))
}

test(`${REQUESTS} faults, and only the handles of before are open`, () =>
  withSeed(async (random) => {
    const beforeAll = handles()
    {
      await using service = await startService({ script: badOrigin(random), mint: shortMint })
      await using proxy = await startProxy(service, { ...IMPATIENT, 'origin.connections': `${PLACES}` })
      await request(proxy.port, get('/v2/good', 'org-1', 'Connection: close'))
      const idleConnections = service.origin.openConnections.length
      const settled = handles()

      await storm(proxy.port, random, REQUESTS)

      await eventually(() => isWithin(handles(), settled) || undefined, 'the handles of the start', SETTLED_WITHIN_MS)
      await eventually(
        () => service.origin.openConnections.length <= idleConnections || undefined,
        'the connections of the start',
        SETTLED_WITHIN_MS,
      )
      await expectWholePool(proxy.port, service, PLACES)
    }
    await eventually(() => isWithin(handles(), beforeAll) || undefined, 'the handles before the start', 5_000)
  }))
