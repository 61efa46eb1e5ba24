/**
 * A bad network between client and proxy, and between proxy and service, by a seeded schedule: every request ends in one
 * whole response, an error or a visible break; none is carried out twice that must not be; no cut passes for a whole.
 */

import { expect, test } from 'vitest'
import { get } from '../support/case-table.ts'
import { type Conditions, type Fault, type FaultSchedule, startFaultProxy } from '../support/fault-proxy.ts'
import { problemOf, RawClient, type RawResponse, request } from '../support/raw-client.ts'
import { type Random, withSeed } from '../support/seed.ts'
import { startService } from '../support/service.ts'
import { startProxy } from '../support/start-proxy.ts'

const REQUESTS = 400
const AT_ONCE = 16
const KINDS: readonly Fault['kind'][] = ['reset', 'cut', 'half-close', 'stall']

/** Three in ten connections meet a fault, anywhere in their first 3,000 bytes. */
const badNetwork: FaultSchedule = (_, random): Conditions => ({
  ...(random.chance(0.3) ? { sliceBytes: random.integer(1, 200) } : {}),
  ...(random.chance(0.1) ? { latencyMs: random.integer(1, 5) } : {}),
  ...(random.chance(0.3)
    ? {
        fault: {
          direction: random.chance(0.5) ? 'up' : 'down',
          afterBytes: random.integer(0, 3000),
          kind: random.pick(KINDS),
        },
      }
    : {}),
})

interface Sent {
  readonly id: number
  readonly method: 'GET' | 'POST'
  readonly response: RawResponse | 'broken' | 'hung'
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
  client.send(raw)
  try {
    return { id, method, response: await client.response(method) }
  } catch (error) {
    return { id, method, response: error instanceof Error && error.name === 'DeadlineExceeded' ? 'hung' : 'broken' }
  }
}

test.each([
  ['before the service', 'origin'],
  ['before the proxy', 'client'],
] as const)('R2, R3, R4 %s', { timeout: 60_000 }, (_, where) =>
  withSeed(async (random) => {
    await using service = await startService({
      script: async (seen) => {
        await seen.ended
        const isChunked = seen.contentBytes % 2 === 0
        return { content: contentOf(Number(seen.target.slice('/v2/'.length))), isChunked }
      },
    })
    const toService = await startFaultProxy(service.origin.port, random)
    await using proxy = await startProxy(service, {
      baseUrl: `http://127.0.0.1:${toService.port}`,
      'origin.responseTimeout': '500ms',
      'origin.idleTimeout': '500ms',
      'listen.idleTimeout': '500ms',
      'listen.headersTimeout': '500ms',
      'tokens.mintTimeout': '2s',
    })
    await using toProxy = await startFaultProxy(proxy.port, random)
    for (let org = 0; org < 5; org++) await request(proxy.port, get('/v2/0', `org-${org}`))
    const warmed = service.requests.length
    const faulty = where === 'origin' ? toService : toProxy
    faulty.schedule = badNetwork

    const sent: Sent[] = []
    let next = 1
    const client = async () => {
      while (next <= REQUESTS) sent.push(await send(toProxy.port, next++, random))
    }
    await Promise.all(Array.from({ length: AT_ONCE }, client))

    const carriedOut = new Map<string, number>()
    for (const seen of service.requests.slice(warmed)) {
      if (seen.state !== 'complete') continue
      const key = `${seen.method} ${seen.target}`
      carriedOut.set(key, (carriedOut.get(key) ?? 0) + 1)
      if (seen.method === 'POST') expect(seen.content.toString()).toBe(contentOf(Number(seen.target.slice(4))))
    }
    let whole = 0
    for (const { id, method, response } of sent) {
      const times = carriedOut.get(`${method} /v2/${id}`) ?? 0
      expect(times, `${method} ${id} at the origin`).toBeLessThanOrEqual(method === 'POST' ? 1 : 2)
      // A stall on the client's own side is for the client to notice.
      if (where === 'origin') expect(response, `${method} ${id}`).not.toBe('hung')
      if (typeof response === 'string' || !response.isComplete) continue
      if (response.status === 200) {
        whole++
        expect(response.content.toString()).toBe(contentOf(id))
        expect(times, `${method} ${id} answered with 200`).toBeGreaterThanOrEqual(1)
      } else expect(problemOf(response).code, `${method} ${id}`).toBeTypeOf('string')
    }
    expect(whole, 'requests that came through all the same').toBeGreaterThan(REQUESTS / 4)

    faulty.schedule = () => ({})
    expect((await request(proxy.port, get('/v2/1', 'org-1'), { deadlineMs: 2000 })).status).toBe(200)
    await toService[Symbol.asyncDispose]()
  }),
)
