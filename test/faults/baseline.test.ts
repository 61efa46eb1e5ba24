/** Behind a storm of faults nothing is left of it: sockets, timers and other handles are as many as before. */

import { expect, test } from 'vitest'
import { get } from '../support/case-table.ts'
import { eventually } from '../support/changes.ts'
import type { OriginScript } from '../support/origin-connection.ts'
import { RawClient, request } from '../support/raw-client.ts'
import { type Random, withSeed } from '../support/seed.ts'
import { startService } from '../support/service.ts'
import { startProxy } from '../support/start-proxy.ts'

const REQUESTS = 300
const AT_ONCE = 12
/** Longer than the proxy keeps an idle connection to the origin. */
const SETTLED_WITHIN_MS = 10_000

/** What keeps, or could keep, a process alive, by kind; in flux are only those that a finished request leaves to the loop. */
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

function badOrigin(random: Random): OriginScript {
  return async (seen, connection) => {
    if (seen.target === '/v2/good') return { content: 'good' }
    switch (random.integer(0, 6)) {
      case 0:
        return undefined // silent for ever
      case 1:
        connection.reset()
        return undefined
      case 2:
        connection.end()
        return undefined
      case 3:
        connection.write('HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\ncut')
        connection.end()
        return undefined
      case 4:
        connection.write('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nand\r\n') // and never more
        return undefined
      case 5:
        return { status: 401, reason: 'Unauthorized' }
      default:
        await seen.ended
        return { content: 'x'.repeat(random.integer(0, 200_000)) }
    }
  }
}

async function misbehave(port: number, random: Random): Promise<void> {
  await using client = await RawClient.connect(port, { deadlineMs: 10_000 })
  const org = `org-${random.integer(1, 8)}`
  const lines = random.chance(0.4) ? ['Content-Length: 1000'] : []
  const raw = get('/v2/x', org, ...lines).replace('GET', lines.length === 0 ? 'GET' : 'POST')
  client.send(raw.slice(0, random.chance(0.1) ? random.integer(0, raw.length) : raw.length))
  if (lines.length > 0) client.send('x'.repeat(random.pick([0, 500, 1000])))
  switch (random.integer(0, 4)) {
    case 0:
      client.reset()
      return
    case 1:
      return // leaves with whatever is unread
    case 2:
      client.endSending()
      await client.untilClosed()
      return
    default:
      await client.untilClosed().catch(() => undefined) // some live on: the deadline of the client ends those
  }
}

test(`R11: ${REQUESTS} faults, and what is open is what was open before`, { timeout: 90_000 }, () =>
  withSeed(async (random) => {
    const beforeAll = handles()
    {
      await using service = await startService({ script: badOrigin(random) })
      await using proxy = await startProxy(service, {
        'origin.responseTimeout': '300ms',
        'origin.idleTimeout': '300ms',
        'listen.idleTimeout': '300ms',
        'listen.headersTimeout': '300ms',
        'listen.keepAliveTimeout': '300ms',
        'tokens.rejectedCooldown': '100ms',
      })
      await request(proxy.port, get('/v2/good', 'org-1', 'Connection: close'))
      const idleConnections = service.origin.openConnections.length
      const settled = handles()

      let left = REQUESTS
      const client = async () => {
        while (left-- > 0) await misbehave(proxy.port, random)
      }
      await Promise.all(Array.from({ length: AT_ONCE }, client))

      await eventually(() => isWithin(handles(), settled) || undefined, 'the handles of the start', SETTLED_WITHIN_MS)
      await eventually(
        () => service.origin.openConnections.length <= idleConnections || undefined,
        'the connections of the start',
        SETTLED_WITHIN_MS,
      )
      const answer = await request(proxy.port, get('/v2/good', 'org-1'))
      expect(answer.status).toBe(200)
    }
    await eventually(() => isWithin(handles(), beforeAll) || undefined, 'the handles before the start', 5_000)
  }),
)
