/**
 * A bad network between client and proxy, and between proxy and service, by a seeded schedule. Every request ends in one
 * complete response, an error or a visible break. No request is carried out twice that must not be, and no cut message
 * counts as complete.
 */

import { expect, test } from 'vitest'
import { badNetwork } from '../support/bad-network.ts'
import { get } from '../support/case-table.ts'
import { startFaultProxy } from '../support/fault-proxy.ts'
import { problemOf, RawClient, type RawResponse, request } from '../support/raw-client.ts'
import { type Random, withSeed } from '../support/seed.ts'
import { startService } from '../support/service.ts'
import { startProxy } from '../support/start-proxy.ts'
import { expectWholePool } from '../support/whole-pool.ts'

const REQUESTS = 400
/** Most of this time is spent waiting for stalls to end. */
const AT_ONCE = 40
const PLACES = 16
interface Sent {
  readonly id: number
  readonly method: 'GET' | 'POST'
  readonly response: RawResponse | 'broken' | 'hung'
  /** The client that sent it. */
  readonly localPort: number | undefined
}

function contentOf(id: number): string {
  return `${id}:`.repeat(20 + (id % 200))
}

async function send(port: number, id: number, random: Random): Promise<Sent> {
  const method = random.chance(0.5) ? 'GET' : 'POST'
  const content = method === 'POST' ? contentOf(id) : ''
  const lines = method === 'POST' ? [`Content-Length: ${content.length}`] : []
  const raw = get(`/v2/${id}`, `org-${id % 5}`, ...lines).replace('GET', method) + content
  await using client = await RawClient.connect(port, { deadlineMs: 4000 })
  const { localPort } = client.socket
  client.send(raw)
  try {
    return { id, method, localPort, response: await client.response(method) }
  } catch (error) {
    return {
      id,
      method,
      localPort,
      response: error instanceof Error && error.name === 'DeadlineExceeded' ? 'hung' : 'broken',
    }
  }
}

test.each([
  // These connections serve many requests. Soon only those would be left that never break.
  ['before the service', 'origin', { faultShare: 1, withinBytes: 8000 }],
  ['before the proxy', 'client', { faultShare: 0.3, withinBytes: 1200 }],
] as const)(`%s, ${REQUESTS} requests`, (_, where, conditions) =>
  withSeed(async (random) => {
    await using service = await startService({
      script: async (seen) => {
        await seen.ended
        const isChunked = seen.contentBytes % 2 === 0
        return { content: contentOf(Number(seen.target.slice('/v2/'.length))), isChunked }
      },
    })
    const toService = await startFaultProxy(service.origin.port, random.numbered(1))
    await using proxy = await startProxy(service, {
      baseUrl: `http://127.0.0.1:${toService.port}`,
      'origin.connections': `${PLACES}`,
      'origin.responseTimeout': '500ms',
      'origin.idleTimeout': '500ms',
      'listen.idleTimeout': '500ms',
      'listen.headersTimeout': '500ms',
      'tokens.mintTimeout': '2s',
    })
    await using toProxy = await startFaultProxy(proxy.port, random.numbered(2))
    for (let org = 0; org < 5; org++) await request(proxy.port, get('/v2/0', `org-${org}`))
    const warmed = service.requests.length
    const faulty = where === 'origin' ? toService : toProxy
    faulty.schedule = badNetwork(conditions)

    const sent: Sent[] = []
    let next = 1
    const client = async () => {
      while (next <= REQUESTS) sent.push(await send(toProxy.port, next, random.numbered(next++)))
    }
    await Promise.all(Array.from({ length: AT_ONCE }, client))

    // Counts also if the content was cut: a service that acts on the head alone has acted.
    const arrivals = new Map<string, number>()
    for (const seen of service.requests.slice(warmed)) {
      const key = `${seen.method} ${seen.target}`
      arrivals.set(key, (arrivals.get(key) ?? 0) + 1)
      if (seen.method !== 'POST' || seen.state !== 'complete') continue
      expect(seen.content.toString()).toBe(contentOf(Number(seen.target.slice(4))))
    }
    let whole = 0
    for (const { id, method, response, localPort } of sent) {
      const times = arrivals.get(`${method} /v2/${id}`) ?? 0
      expect(times, `${method} ${id} at the origin`).toBeLessThanOrEqual(method === 'POST' ? 1 : 2)
      // Only the client can notice a stall on its own side.
      if (response === 'hung')
        expect(toProxy.conditionsOf(localPort)?.fault?.kind, `${method} ${id} hung`).toBe('stall')
      if (typeof response === 'string' || !response.isComplete) continue
      if (response.status === 200) {
        whole++
        expect(response.content.toString()).toBe(contentOf(id))
        expect(times, `${method} ${id} answered with 200`).toBeGreaterThanOrEqual(1)
      } else expect(problemOf(response).code, `${method} ${id}`).toBeTypeOf('string')
    }
    expect(whole, 'requests that came through all the same').toBeGreaterThan(REQUESTS / 4)
    expect(faulty.strikes, 'faults that struck').toBeGreaterThan(REQUESTS / 20)

    faulty.heal()
    await expectWholePool(proxy.port, service, PLACES)
  }),
)
