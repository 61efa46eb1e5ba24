/** A series of faults from both sides: an origin with bad answers, and clients that leave at any point. Seeded. */

import { get } from './case-table.ts'
import type { OriginScript } from './origin-connection.ts'
import { scaledSetting } from './pace.ts'
import { RawClient } from './raw-client.ts'
import type { Random } from './seed.ts'
import type { MintScript } from './token-endpoint.ts'

const AT_ONCE = 48

/** Settings of the proxy, so that every fault ends soon. */
export const IMPATIENT = {
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
export function badOrigin(random: Random): OriginScript {
  return async (seen, connection) => {
    if (seen.target === '/v2/good') return { fields: SHORT_LIFE, content: 'good' }
    const own = random.numbered(Number(seen.target.slice('/v2/'.length)))
    switch (own.integer(0, 6)) {
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
        connection.write('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nand\r\n') // and nothing follows
        return undefined
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

export const shortMint: MintScript = (mint) => ({ ...mint.issue(), fields: SHORT_LIFE })

/** Sends this many requests, most of which fail. */
export async function storm(port: number, random: Random, requests: number): Promise<void> {
  let next = 0
  const client = async () => {
    while (next < requests) {
      const number = next++
      await misbehave(port, random.numbered(number), number)
    }
  }
  await Promise.all(Array.from({ length: AT_ONCE }, client))
}
