/**
 * A bad network between the proxy and the token endpoint, by a seeded schedule. An Org with a token notices nothing, any
 * other gets one, or a documented error in time. No cut reply counts as a token.
 */

import { expect, test } from 'vitest'
import { get } from '../support/case-table.ts'
import { eventually } from '../support/changes.ts'
import { badNetwork, byHop, type FaultSchedule, goodNetwork, isMint, startFaultProxy } from '../support/fault-proxy.ts'
import { scaled } from '../support/pace.ts'
import { problemOf, type RawResponse, request } from '../support/raw-client.ts'
import { withSeed } from '../support/seed.ts'
import { startService } from '../support/service.ts'
import { startProxy } from '../support/start-proxy.ts'
import type { MintScript } from '../support/token-endpoint.ts'
import { expectWholePool } from '../support/whole-pool.ts'

const COLD = 150
/** Requests for each cold org, all at once. They share one mint. */
const ASKERS = 3
const WARM_ORGS = 8
const AT_ONCE = 10
const PLACES = 16
const MINT_TIMEOUT_MS = scaled(1_000)
/** For both ways, on a busy machine. */
const SLACK_MS = 20_000
/** Time without a call of the token endpoint, though requests need one. Only the longest pause takes as long. */
const LONG_PAUSE_MS = 500
const FAST_MS = 100
const RECOVERED_WITHIN_MS = 5_000

const STATED: Readonly<Record<string, number>> = {
  token_endpoint_unavailable: 503,
  token_endpoint_timeout: 504,
  token_response_invalid: 502,
}

/** In all three framings. If the content ends with the connection, only the JSON parser notices a cut. */
const anyFraming: MintScript = ({ org, request: { connection }, issue }) => {
  const reply = issue()
  if (!endsWithConnection(org)) return { ...reply, isChunked: /[02468]$/.test(org) }
  connection.write(`HTTP/1.1 200 OK\r\n\r\n${reply.content}`)
  connection.end()
  return undefined
}

function endsWithConnection(org: string): boolean {
  return /[147]$/.test(org)
}

/** Every kept connection breaks within about fifteen mints. With more breaks, failures in a row would pause the mints. */
const faults = byHop({
  mints: (index, random, firstLine) => {
    const isShort = endsWithConnection(firstLine.replace(/\/access .*/, ''))
    const network = isShort ? { faultShare: 0.2, withinBytes: 200 } : { faultShare: 1, withinBytes: 1800 }
    return badNetwork(network)(index, random, firstLine)
  },
  requests: goodNetwork,
})
const blackout: FaultSchedule = byHop({
  mints: (_, random) => ({
    fault: { direction: 'up', afterBytes: 0, kind: random.pick(['reset', 'cut', 'half-close'] as const) },
  }),
  requests: goodNetwork,
})

/** True for 200. Fails for any other answer that is not a documented error of the token endpoint. */
function isServed(response: RawResponse, what: string): boolean {
  expect(response.isComplete, what).toBe(true)
  if (response.status === 200) return true
  expect(STATED[problemOf(response).code ?? ''], `${what}: ${response.content}`).toBe(response.status)
  return false
}

test(`${COLD} cold orgs behind a bad network, ${WARM_ORGS} warm ones`, () =>
  withSeed(async (random) => {
    await using service = await startService({ mint: anyFraming, script: ({ target }) => ({ content: target }) })
    await using network = await startFaultProxy(service.origin.port, random.numbered(1))
    await using proxy = await startProxy(service, {
      baseUrl: `http://127.0.0.1:${network.port}`,
      'origin.connections': `${PLACES}`,
      'tokens.mintTimeout': `${Math.round(MINT_TIMEOUT_MS)}ms`,
      'tokens.mintRate': '10000',
      'tokens.lifetime': '1h',
    })
    const ask = (target: string, org: string) =>
      request(proxy.port, `${get(target, org, 'Content-Length: 2').replace('GET', 'POST')}hi`, {
        deadlineMs: MINT_TIMEOUT_MS + SLACK_MS,
      })
    const askWarm = async (number: number) => {
      const { status } = await ask(`/v2/warm/${number}`, `warm-${number % WARM_ORGS}`)
      expect(status, 'an org that has its token').toBe(200)
    }
    for (let i = 0; i < WARM_ORGS; i++) await askWarm(i)

    network.schedule = faults
    let next = 0
    let served = 0
    const failed: string[] = []
    const askForCold = async () => {
      while (next < COLD) {
        const number = next++
        const org = `cold-${number}`
        const targets = Array.from({ length: ASKERS }, (_, i) => `/v2/${org}/${i}`)
        const responses = await Promise.all(targets.map((target) => ask(target, org)))
        for (const [i, response] of responses.entries()) {
          const isGood = isServed(response, `${targets[i]}`)
          const arrivals = service.origin.requests.filter(({ target }) => target === targets[i]).length
          expect(arrivals, `${targets[i]} at the origin`).toBe(isGood ? 1 : 0)
          if (isGood) served++
          else failed.push(org)
        }
        await askWarm(number)
      }
    }
    await Promise.all(Array.from({ length: AT_ONCE }, askForCold))
    expect(network.strikes, 'faults that struck').toBeGreaterThan(10)
    expect(served, 'requests that got their token all the same').toBeGreaterThan(COLD)

    network.schedule = blackout
    network.drop(isMint)
    let calledAt = performance.now()
    let calls = network.strikes
    const durationsMs: number[] = []
    const askInTheDark = async () => {
      const number = durationsMs.length
      const startedAt = performance.now()
      const response = await ask('/v2/dark', `dark-${number}`)
      durationsMs.push(performance.now() - startedAt)
      isServed(response, `dark-${number}`)
      await askWarm(number)
      if (network.strikes > calls) calledAt = performance.now()
      calls = network.strikes
      return performance.now() - calledAt > LONG_PAUSE_MS || undefined
    }
    await eventually(askInTheDark, 'the longest pause', 15_000)
    const medianMs = durationsMs.toSorted((a, b) => a - b)[durationsMs.length >> 1]
    expect(medianMs, 'ms to an answer while failing fast').toBeLessThan(scaled(FAST_MS))

    network.heal()
    const well = [...new Set(failed)].slice(0, 20).concat('late')
    const isWell = async (org: string) => isServed(await ask(`/v2/again/${org}`, org), org) || undefined
    await Promise.all(well.map((org) => eventually(() => isWell(org), `a token for ${org}`, RECOVERED_WITHIN_MS)))

    expect(service.tokens.mints.filter(({ org }) => org.startsWith('warm-'))).toHaveLength(WARM_ORGS)
    const foreign = service.requests.filter((seen) => service.orgOf(seen) === undefined)
    expect(foreign, 'requests with what is no token').toEqual([])
    await expectWholePool(proxy.port, service, PLACES)
  }))
