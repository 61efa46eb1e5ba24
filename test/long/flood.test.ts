/**
 * Requests for ten thousand unknown org ids, as fast as possible: known orgs notice nothing, the token
 * endpoint gets no more calls than its budget, and memory does not grow.
 */

import { expect, test } from 'vitest'
import { KeepAliveClient } from '../support/keep-alive-client.ts'
import { startOrgEcho } from '../support/org-echo.ts'
import { startProxyProcess } from '../support/proxy-process.ts'
import { type Random, withSeed } from '../support/seed.ts'

const UNKNOWN_ORGS = 10_000
const KNOWN = Array.from({ length: 20 }, (_, i) => `known-${i}`)
/** More than can wait their turn within `tokens.mintTimeout`. The others are refused at once, and ask again. */
const FLOOD_CONNECTIONS = 800
const RATE = 100
/** Pause after each request for a known org. */
const KNOWN_PAUSE_MS = 5
const GROWTH_BYTES = 112 * 1024 * 1024

function unknownOrg(random: Random): string {
  return `u${random.integer(0, 2 ** 31).toString(36)}-${random.integer(0, 2 ** 31).toString(36)}`
}

test('a flood of unknown orgs', () =>
  withSeed(async (random) => {
    await using service = await startOrgEcho({ linked: ['known-*'] })
    await using proxy = await startProxyProcess(service, {
      settings: {
        'tokens.mintRate': `${RATE}`,
        // Who waits in vain leaves its connection to the next sooner.
        'tokens.mintTimeout': '5s',
        // Known orgs have to renew their tokens during the flood, which could keep them from doing so.
        'tokens.lifetime': '2s',
        // The flood would write too many lines.
        'log.requests': 'off',
      },
    })
    using first = new KeepAliveClient(proxy.port)
    // Memory after a warm-up is what the program needs in any case.
    for (let i = 0; i < 2_000; i++) await first.get(`/v2/as/${KNOWN[i % KNOWN.length]}`, KNOWN[i % KNOWN.length] ?? '')
    const before = await proxy.memory()
    const startedAt = performance.now()
    const mintsBefore = service.stats().totals.mints

    let left = UNKNOWN_ORGS
    let isFlooded = true
    const refusals = new Map<number, number>()
    const flood = async () => {
      using client = new KeepAliveClient(proxy.port)
      while (left-- > 0) {
        const { status } = await client.get('/v2/x', unknownOrg(random))
        refusals.set(status, (refusals.get(status) ?? 0) + 1)
      }
    }
    let served = 0
    const failures: string[] = []
    const useKnown = async (org: string) => {
      using client = new KeepAliveClient(proxy.port)
      while (isFlooded) {
        const answer = await client.get(`/v2/as/${org}`, org)
        if (answer.status === 200) served += 1
        else failures.push(`${org}: ${answer.status} ${answer.content}`)
        await new Promise((resolve) => setTimeout(resolve, KNOWN_PAUSE_MS))
      }
    }
    const known = KNOWN.map(useKnown)
    await Promise.all(Array.from({ length: FLOOD_CONNECTIONS }, flood))
    isFlooded = false
    await Promise.all(known)
    const seconds = (performance.now() - startedAt) / 1_000
    const after = await proxy.memory()
    const mints = service.stats().totals.mints - mintsBefore

    expect(failures.slice(0, 5), `${failures.length} failures`).toEqual([])
    expect(served).toBeGreaterThan(1_000)
    // 504: on a busy machine, a call that waited long may get no answer in the rest of its time.
    expect([...refusals.keys()].filter((status) => ![403, 503, 504].includes(status))).toEqual([])
    expect(refusals.get(403) ?? 0, 'orgs that the endpoint was asked about').toBeGreaterThan(0)
    expect(mints).toBeLessThanOrEqual(RATE * (seconds + 1))
    expect(after.peakBytes - before.residentBytes).toBeLessThan(GROWTH_BYTES)
    expect(service.mismatches).toEqual([])
  }))
