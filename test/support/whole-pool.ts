/** After a run of faults: every place of the pool to the origin is free, and there is no connection beyond them. */

import { expect } from 'vitest'
import { get } from './case-table.ts'
import { eventually } from './changes.ts'
import { KeepAliveClient } from './keep-alive-client.ts'
import { request } from './raw-client.ts'
import type { Service } from './service.ts'

const GOOD_WITHIN_MS = 1_000
/** For the connections of a run that has ended. */
const CLOSED_WITHIN_MS = 5_000

/** `places` is `origin.connections`. Sends one good request first, then as many at once as there are places, for two orgs. */
export async function expectWholePool(proxyPort: number, service: Service, places: number): Promise<void> {
  const { origin } = service
  const orgOf = (i: number) => (i % 2 === 0 ? 'whole-pool' : 'whole-pool-too')
  const before = origin.script
  const arrived = new Set<string>()
  origin.script = async (seen, connection) => {
    if (!seen.target.startsWith('/v2/place/')) return await before(seen, connection)
    arrived.add(seen.target)
    if (seen.target === '/v2/place/alone') return { content: seen.target }
    const isFull = await origin
      .waitFor(() => arrived.size > places)
      .then(
        () => true,
        () => false,
      )
    return { content: isFull ? seen.target : `only ${arrived.size - 1} of ${places} places` }
  }
  const good = await request(proxyPort, get('/v2/place/alone', orgOf(0)), { deadlineMs: GOOD_WITHIN_MS })
  expect(good.status, 'a good request, soon').toBe(200)
  await Promise.all(Array.from({ length: places }, (_, i) => askFor(proxyPort, `/v2/place/${i}`, orgOf(i))))
  const inUse = () =>
    origin.openConnections.filter(
      ({ requests: [first] }) => first !== undefined && service.orgOfMint(first) === undefined,
    )
  await eventually(() => inUse().length <= places, `no more than ${places} connections`, CLOSED_WITHIN_MS)
  origin.script = before
}

async function askFor(proxyPort: number, target: string, org: string): Promise<void> {
  using client = new KeepAliveClient(proxyPort)
  const { status, content } = await client.get(target, org)
  expect([status, content], 'a request in each place').toEqual([200, target])
}
