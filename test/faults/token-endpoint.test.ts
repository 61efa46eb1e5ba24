/** A bad network before the token endpoint: an org with a token notices nothing, any other gets one, or an error in time. */

import { setTimeout as sleep } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { get } from '../support/case-table.ts'
import { problemOf, request } from '../support/raw-client.ts'
import { type Random, withSeed } from '../support/seed.ts'
import { startService } from '../support/service.ts'
import { startProxy } from '../support/start-proxy.ts'
import type { Mint, MintScript } from '../support/token-endpoint.ts'
import { expectWholePool } from '../support/whole-pool.ts'

const COLD = 400
const WARM_ORGS = 8
const AT_ONCE = 8
const PLACES = 8
const MINT_TIMEOUT_MS = 1_000
/** For both ways, on a busy machine. It only distinguishes a request that hangs from a slow one. */
const SLACK_MS = 20_000

/** Each mint has its own generator, by org and attempt, so the same seed gives the same faults in any order of calls. */
function fateOf(random: Random, mint: Mint, attempts: Map<string, number>): Random {
  const attempt = attempts.get(mint.org) ?? 0
  attempts.set(mint.org, attempt + 1)
  return random.numbered(Number(/\d+$/.exec(mint.org)?.[0] ?? 0) * 64 + attempt)
}

/** Resets before and after the request was read, cuts at any byte, stalls, and slices. */
function badNetwork(seeded: Random): MintScript {
  const attempts = new Map<string, number>()
  return async (mint: Mint) => {
    const { connection } = mint.request
    if (mint.org.startsWith('warm-')) return mint.issue()
    const random = fateOf(seeded, mint, attempts)
    const { content = '' } = mint.issue()
    const whole = `HTTP/1.1 200 OK\r\nContent-Length: ${content.length}\r\n\r\n${content}`
    const cut = whole.slice(0, random.integer(0, whole.length - 1))
    switch (random.integer(0, 5)) {
      case 0:
        connection.reset()
        return undefined
      case 1:
        connection.write(cut)
        connection.end()
        return undefined
      case 2:
        connection.write(cut)
        setImmediate(() => connection.reset())
        return undefined
      case 3:
        if (random.chance(0.2))
          connection.write(cut) // and the rest never follows
        else connection.end()
        return undefined
      default:
        for (let at = 0; at < whole.length; at += 20) {
          connection.write(whole.slice(at, at + 20))
          if (random.chance(0.2)) await sleep(1)
        }
        return undefined
    }
  }
}

test(`${COLD} cold orgs behind a bad network, ${WARM_ORGS} warm ones`, () =>
  withSeed(async (random) => {
    await using service = await startService({
      mint: badNetwork(random),
      script: ({ target }) => ({ content: target }),
    })
    await using proxy = await startProxy(service, {
      'origin.connections': `${PLACES}`,
      'tokens.mintTimeout': `${MINT_TIMEOUT_MS}ms`,
      'tokens.mintRate': '10000',
      'tokens.lifetime': '1h',
    })
    const warm = Array.from({ length: WARM_ORGS }, (_, i) => `warm-${i}`)
    for (const org of warm) expect((await request(proxy.port, get('/v2/first', org))).status).toBe(200)

    let next = 0
    let served = 0
    const cold = async () => {
      while (next < COLD) {
        const target = `/v2/cold/${next}`
        const raw = get(target, `cold-${next++}`, 'Content-Length: 2').replace('GET', 'POST')
        const response = await request(proxy.port, `${raw}hi`, { deadlineMs: MINT_TIMEOUT_MS + SLACK_MS })
        expect(response.isComplete, target).toBe(true)
        if (response.status === 200) {
          served++
          expect(response.content.toString()).toBe(target)
        } else {
          expect(response.status, target).toBeGreaterThanOrEqual(502)
          expect(problemOf(response).code).toMatch(/^token_/)
        }
        expect(service.requests.filter((seen) => seen.target === target).length).toBe(response.status === 200 ? 1 : 0)
        const known = await request(proxy.port, get(`/v2/warm/${next}`, warm[next % WARM_ORGS] ?? ''))
        expect(known.status, 'an org that has its token').toBe(200)
      }
    }
    await Promise.all(Array.from({ length: AT_ONCE }, cold))
    expect(served, 'mints that got through all the same').toBeGreaterThan(0)
    expect(service.tokens.mints.filter(({ org }) => org.startsWith('warm-'))).toHaveLength(WARM_ORGS)

    // The endpoint has recovered: every org is served within five seconds, or longer on a busy machine.
    service.tokens.script = (mint) => mint.issue()
    const wellAt = performance.now()
    while ((await request(proxy.port, get('/v2/again', 'late'))).status !== 200) await sleep(50)
    expect(performance.now() - wellAt).toBeLessThan(5_000 + SLACK_MS)
    await expectWholePool(proxy.port, service, PLACES)
  }))
