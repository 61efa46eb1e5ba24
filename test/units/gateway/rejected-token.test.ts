/** What follows a rejection: R1 to R8 and L of docs/tokens.md, with a scripted service and a virtual clock. */

import { describe, expect, test } from 'vitest'
import type { OrgId } from '../../../src/org-id.ts'
import { throughCache } from '../token/simulation/simulation.ts'
import { ACME, type Answer, MINT_MS, ROUND_TRIP_MS, SETTLE_MS, type Sent, Stage } from '../token/simulation/stage.ts'

const OTHER = 'other' as OrgId
const MINUTE_MS = 60_000

/** Rejects the tokens before this one. */
const from = (token: number) => (sent: Sent) => (sent.token < token ? 401 : 200)
/** Rejects all requests for the admin route, whatever their token. */
const withoutAdmin = ({ path }: Sent) => (path.startsWith('/v2/admin') ? 401 : 200)

/** A settled token that was accepted a while ago, and a kind of request that is known to be forbidden. */
async function stageThatForbidsAdmin(): Promise<Stage> {
  const stage = await Stage.settled()
  stage.answer = withoutAdmin
  await stage.send('repeatable', '/v2/admin')
  await stage.pass(6_000)
  await stage.send()
  await stage.pass(6_000)
  return stage
}

describe('R1', () => {
  test('a request whose token was replaced meanwhile is repeated with the newer one', async () => {
    const stage = await Stage.settled()
    stage.answer = from(2)
    const requests = Array.from({ length: 20 }, () => stage.request())
    for (const request of requests) expect((await stage.outcome(request)).status).toBe(200)
    expect([stage.mints, new Set(stage.kinds)]).toEqual([2, new Set(['expired'])])
  })

  test('a rejection that comes late does not end the newer token', async () => {
    const stage = await Stage.settled()
    stage.answer = from(2)
    const late = stage.request()
    stage.roundTripMs = 4_000
    await stage.pass(10)
    expect((await stage.outcome(late)).status).toBe(200)
    await stage.statuses(10)
    expect(stage.mints).toBe(2)
  })
})

describe('R2', () => {
  test('a forbidden kind of request is passed on at once: no mint, no wait, one try', async () => {
    const stage = await Stage.settled()
    stage.answer = withoutAdmin
    await stage.send('repeatable', '/v2/admin/1')
    const { mints } = stage
    for (let i = 0; i < 100; i += 1) {
      const sent = await stage.sentBy(async () => {
        expect(await stage.send('repeatable', `/v2/admin/${i}`)).toEqual({ status: 401, tookMs: ROUND_TRIP_MS })
      })
      expect(sent).toHaveLength(1)
      await stage.send()
      await stage.pass(1_000)
    }
    expect([stage.mints, stage.kinds.at(-1)]).toEqual([mints, 'forbidden'])
  })

  test('it is forgotten after five minutes', async () => {
    const stage = await Stage.settled()
    stage.answer = withoutAdmin
    await stage.send('repeatable', '/v2/admin')
    const { mints } = stage
    await stage.pass(5 * MINUTE_MS)
    await stage.send()
    await stage.pass(6_000)
    await stage.send('repeatable', '/v2/admin')
    expect(stage.mints).toBe(mints + 1)
  })

  test('it is forgotten when such a request is accepted', async () => {
    const stage = await Stage.settled()
    stage.answer = withoutAdmin
    await stage.send('repeatable', '/v2/admin')
    stage.answer = () => 200
    await stage.send('repeatable', '/v2/admin')
    await stage.pass(6_000)
    stage.answer = from(stage.issued + 1)
    expect((await stage.send('repeatable', '/v2/admin')).status).toBe(200)
  })

  test('at most sixteen are known of an Org', async () => {
    const stage = await Stage.settled()
    const tokens = stage.cache.orgs.peek(ACME)
    for (let i = 0; i < 20; i += 1) tokens?.forbid({ method: 'GET', path: `/${'x'.repeat(i)}` }, 0)
    const known = Array.from({ length: 20 }, (_, i) =>
      tokens?.isForbidden({ method: 'GET', path: `/${'x'.repeat(i)}` }, 0),
    )
    expect(known).toEqual([...Array(4).fill(false), ...Array(16).fill(true)])
  })
})

describe('R2', () => {
  test('a kind that is forbidden again takes the place of no other', async () => {
    const stage = await Stage.settled()
    const tokens = stage.cache.orgs.peek(ACME)
    const kinds = Array.from({ length: 16 }, (_, i) => ({ method: 'GET', path: `/${'x'.repeat(i)}` }))
    for (const kind of [...kinds, ...kinds.slice(8)]) tokens?.forbid(kind, 0)
    expect(kinds.map((kind) => tokens?.isForbidden(kind, 0))).toEqual(Array(16).fill(true))
  })

  test('an upload of such a kind makes nobody wait for a new token', async () => {
    const stage = await stageThatForbidsAdmin()
    const { mints } = stage
    expect(await stage.statuses(3, 'once', '/v2/admin')).toEqual([401, 401, 401])
    expect([await stage.statuses(1, 'once'), stage.mints]).toEqual([[200], mints])
  })
})

describe('R3: a young token', () => {
  test('the former one serves while the new one is not known, and one request a second tries that', async () => {
    const stage = await Stage.settled({ lifetimeMs: MINUTE_MS })
    await stage.pass(MINUTE_MS - stage.world.now() - 100)
    stage.answer = ({ token, ageMs }) => (token === 2 && ageMs < 2_500 ? 401 : 200)
    await stage.send()
    await stage.pass(50)
    const sent = await stage.sentBy(async () => {
      for (let i = 0; i < 40; i += 1) {
        expect(await stage.send()).toMatchObject({ status: 200, tookMs: expect.toSatisfy((ms: number) => ms <= 8) })
        await stage.pass(50)
      }
    })
    expect(sent.filter(({ token, ageMs }) => token === 2 && ageMs < 2_500).length).toBeLessThanOrEqual(4)
    expect(stage.mints).toBe(2)
  })

  test.each([
    [2_000, SETTLE_MS],
    [20_000, 60_000],
  ])('that no back end knows for %i ms: the request waits, and tries it in turns', async (delayMs, settleTimeMs) => {
    const stage = new Stage({ settleTimeMs })
    stage.answer = ({ ageMs }) => (ageMs < delayMs ? 401 : 200)
    const { status, tookMs } = await stage.send()
    expect(status).toBe(200)
    expect(tookMs).toBeLessThan(1.13 * delayMs)
    expect([stage.mints, stage.kinds]).toEqual([1, ['unsettled']])
  })

  test('an upload takes no turn, and waits for all of the settle time', async () => {
    const stage = new Stage()
    stage.answer = ({ ageMs }) => (ageMs < 2_000 ? 401 : 200)
    const reader = stage.request()
    await stage.pass(100)
    const sent = await stage.sentBy(async () => {
      expect((await stage.send('once', '/v2/uploads', 'POST')).status).toBe(200)
    })
    expect(await reader).toBe(200)
    const ages = sent.filter(({ path }) => path === '/v2/uploads').map(({ ageMs }) => ageMs)
    expect(ages).toEqual([expect.toSatisfy((ms: number) => ms >= 2_000)])
  })

  test('that is proven: the same token after 50, 150 and 450 ms, because another back end may lag', async () => {
    const stage = new Stage()
    await stage.send()
    stage.answer = ({ ageMs }) => (ageMs < 600 ? 401 : 200)
    const sent = await stage.sentBy(async () => expect((await stage.send()).status).toBe(200))
    expect(sent.map(({ at }) => at - (sent[0]?.at ?? 0))).toEqual([0, 54, 208, 662])
    expect([stage.mints, stage.kinds]).toEqual([1, ['unsettled']])
  })

  test('that was minted for this very request, too', async () => {
    const stage = await Stage.settled()
    await stage.pass(10_000)
    stage.answer = ({ token, ageMs }) => (token === 1 || ageMs < 1_000 ? 401 : 200)
    expect((await stage.send()).status).toBe(200)
    expect(stage.mints).toBe(2)
  })

  test('a request waits no longer than the settle time', async () => {
    const stage = new Stage()
    stage.answer = () => 401
    const { status, tookMs } = await stage.send()
    expect([status, stage.mints]).toEqual([401, 2])
    expect(tookMs).toBeLessThan(SETTLE_MS + 1_000)
  })

  test('a client that has left takes no turn', async () => {
    const stage = new Stage()
    stage.answer = ({ ageMs }) => (ageMs < 2_000 ? 401 : 200)
    let haveLeft = false
    for (let i = 0; i < 40; i += 1) {
      const request = { org: ACME, kind: 'repeatable', path: '/', hasLeft: () => haveLeft } as const
      const send = async () => (haveLeft ? new Promise<never>(() => undefined) : { status: 401 })
      void throughCache(stage.cache, stage.world.now, request, send)
    }
    await stage.pass(100)
    haveLeft = true
    expect(await stage.send()).toMatchObject({ status: 200, tookMs: expect.toSatisfy((ms: number) => ms < 2_300) })
  })

  test('one Org whose token is always rejected changes nothing for the waits of others', async () => {
    const stage = new Stage()
    const isKnown = ({ ageMs }: Sent) => ageMs >= 1_000
    stage.answer = (sent) => (sent.path === '/always' || !isKnown(sent) ? 401 : 200)
    for (let i = 0; i < 10; i += 1) await stage.send('repeatable', '/always')
    for (let i = 0; i < 10; i += 1) {
      expect((await stage.outcome(stage.request('repeatable', '/', `new-${i}` as OrgId))).status).toBe(200)
    }
  })
})

describe('R4', () => {
  test('a bad back end: the request is repeated once with the same token', async () => {
    const stage = await Stage.settled()
    let isBad = true
    stage.answer = () => {
      isBad = !isBad
      return isBad ? 200 : 401
    }
    const sent = await stage.sentBy(async () => expect((await stage.send()).tookMs).toBe(2 * ROUND_TRIP_MS))
    expect(sent.map(({ token }) => token)).toEqual([1, 1])
    expect([stage.mints, stage.kinds]).toEqual([1, ['bad_back_end']])
  })

  test('not if the token was accepted more than five seconds ago', async () => {
    const stage = await Stage.settled()
    await stage.pass(6_000)
    stage.answer = from(2)
    expect((await stage.send()).tookMs).toBe(2 * ROUND_TRIP_MS + MINT_MS)
  })
})

describe('R5', () => {
  test('a request that was sent later was accepted: no mint, and the kind is forbidden', async () => {
    const stage = await Stage.settled()
    await stage.pass(6_000)
    stage.answer = withoutAdmin
    stage.roundTripMs = (path) => (path === '/v2/admin' ? 200 : 4)
    const forbidden = stage.request('repeatable', '/v2/admin')
    for (let i = 0; i < 5; i += 1) {
      await stage.pass(50)
      await stage.send()
    }
    expect((await stage.outcome(forbidden)).status).toBe(401)
    expect([stage.mints, stage.kinds]).toEqual([1, ['forbidden']])
  })

  test('answers that say nothing about the token prove it alive as little as dead', async () => {
    const stage = await Stage.settled()
    // A gateway in front limits quickly; the service behind it knows that the token has ended.
    const odd = [429, 408, 404, 500, 503]
    for (let i = 0; i < 40; i += 1) {
      await stage.pass(1_000)
      const dead = stage.issued
      stage.answer = ({ path, token }) =>
        path === '/limited' ? (odd[i % odd.length] ?? 429) : token <= dead ? 401 : 200
      stage.roundTripMs = 40
      const request = stage.request()
      await stage.pass(5)
      stage.roundTripMs = 2
      await stage.send('repeatable', '/limited')
      expect((await stage.outcome(request)).status).toBe(200)
      await stage.pass(6_000)
    }
  })
})

describe('R6', () => {
  test('a token that has ended is replaced, and the request repeated', async () => {
    const stage = await Stage.settled()
    await stage.pass(6_000)
    stage.answer = from(2)
    expect((await stage.send()).status).toBe(200)
    expect([stage.mints, stage.kinds]).toEqual([2, ['expired']])
  })

  test('after a useless mint, a pause of 250 ms, four times as long after each, up to five minutes', async () => {
    const stage = await Stage.settled({ settleTimeMs: 0 })
    stage.answer = withoutAdmin
    const mintedAt: number[] = []
    for (let i = 0; i < 12_000; i += 1) {
      const before = stage.mints
      // Each of another kind.
      expect((await stage.send('repeatable', `/v2/admin${'x'.repeat(i % 100)}`)).status).toBe(401)
      if (stage.mints > before) mintedAt.push(stage.world.now())
      await stage.send()
      await stage.pass(50)
    }
    const pauses = mintedAt.slice(1).map((at, i) => at - (mintedAt[i] ?? 0))
    const expected = [250, 1_000, 4_000, 16_000, 64_000, 256_000, 300_000]
    expect(pauses.length).toBeGreaterThanOrEqual(7)
    for (const [i, ms] of expected.entries()) expect(pauses[i], `pause ${i}`).toBeGreaterThanOrEqual(ms)
    for (const [i, ms] of expected.entries()) expect(pauses[i], `pause ${i}`).toBeLessThan(ms + 400)
  })

  test('a mint that many waited for is useless once', async () => {
    const stage = await Stage.settled({ settleTimeMs: 0 })
    stage.answer = withoutAdmin
    const requests = Array.from({ length: 20 }, (_, i) => stage.request('repeatable', `/v2/admin${'x'.repeat(i)}`))
    for (const request of requests) await stage.outcome(request)
    await stage.pass(1_100)
    await stage.send()
    const { mints } = stage
    await stage.send('repeatable', '/v2/admin/another')
    expect(stage.mints).toBe(mints + 1)
  })

  test('the endpoint gives the same token again: passed on, and no kind is noted', async () => {
    const stage = new Stage()
    stage.name = 'always-the-same'
    await stage.send()
    await stage.pass(12_000)
    stage.answer = () => 401
    expect((await stage.send()).status).toBe(401)
    expect(stage.mints).toBe(2)
    for (let i = 0; i < 100; i += 1) {
      await stage.send()
      await stage.pass(150)
    }
    expect(stage.mints).toBeLessThanOrEqual(7)
    stage.name = undefined
    stage.answer = () => 200
    expect((await stage.send()).status).toBe(200)
  })

  test('a slow mint that a forbidden kind caused stalls the others for a second', async () => {
    const stage = await Stage.settled()
    await stage.pass(MINUTE_MS)
    stage.answer = withoutAdmin
    stage.mintMs = 3_000
    const forbidden = stage.request('repeatable', '/v2/admin')
    await stage.pass(1_100)
    expect(await stage.send()).toEqual({ status: 200, tookMs: ROUND_TRIP_MS })
    expect(await stage.send()).toEqual({ status: 200, tookMs: ROUND_TRIP_MS })
    expect((await stage.outcome(forbidden)).status).toBe(401)
  })

  test('the mint fails: the error of the endpoint; one request a second tries the token, and it may serve again', async () => {
    const stage = await Stage.settled()
    stage.answer = () => 401
    stage.endpointFails = 'token_endpoint_unavailable'
    expect(new Set(await stage.statuses(10))).toEqual(new Set(['token_endpoint_unavailable']))
    const sent = await stage.sentBy(async () => {
      for (let i = 0; i < 100; i += 1) {
        expect((await stage.send()).status).toBe('token_endpoint_unavailable')
        await stage.pass(100)
      }
    })
    const seconds = ((sent.at(-1)?.at ?? 0) - (sent[0]?.at ?? 0)) / 1_000
    expect(sent.length).toBeLessThanOrEqual(seconds + 6)
    stage.answer = () => 200
    await stage.pass(1_000)
    expect(new Set(await stage.statuses(10))).toEqual(new Set([200]))
  })

  test.each([1, 200])('the tokens of the Org are purged %i ms after the request began: one mint', async (afterMs) => {
    const stage = afterMs === 1 ? await Stage.settled() : new Stage()
    stage.answer = from(2)
    const request = stage.request()
    await stage.pass(afterMs)
    stage.cache.purge()
    expect((await stage.outcome(request)).status).toBe(200)
    expect(stage.mints).toBe(2)
  })

  test('two tokens are not kept in use after a permission was granted', async () => {
    const stage = await Stage.settled()
    stage.answer = withoutAdmin
    await stage.send('repeatable', '/v2/admin')
    stage.answer = () => 200
    await stage.pass(6_000)
    await stage.statuses(4, 'repeatable', '/v2/admin')
    await stage.pass(10_000)
    const sent = await stage.sentBy(() => stage.statuses(50))
    expect(new Set(sent.map(({ token }) => token)).size).toBe(1)
  })
})

describe('R7', () => {
  test('five rejections in a row cause a mint in spite of a pause, at most one in each cool-down', async () => {
    const stage = await Stage.settled()
    stage.answer = withoutAdmin
    // Useless mints begin a long pause.
    for (let i = 0; i < 6; i += 1) {
      await stage.pass(70_000)
      await stage.send()
      await stage.send('repeatable', `/v2/admin${'x'.repeat(i)}`)
    }
    await stage.pass(6_000)
    await stage.send()
    const { mints } = stage
    stage.answer = from(stage.issued + 1)
    expect(await stage.statuses(6)).toEqual([401, 401, 401, 401, 200, 200])
    expect(stage.mints).toBe(mints + 1)
  })

  test('if it is useless, the next one comes after twice the time', async () => {
    const stage = await Stage.settled({ settleTimeMs: 0, rejectedCooldownMs: 1_000 })
    stage.answer = () => 401
    const mintedAt: number[] = []
    for (let i = 0; i < 3_000; i += 1) {
      const before = stage.mints
      await stage.send()
      if (stage.mints > before) mintedAt.push(stage.world.now())
      await stage.pass(50)
    }
    expect(mintedAt.length).toBeLessThanOrEqual(16)
    stage.answer = from(stage.issued + 1)
    for (let i = 0; i < 5_999; i += 1) {
      await stage.pass(50)
      if ((await stage.send()).status === 200) break
    }
    expect((await stage.send()).status, 'noticed within five minutes').toBe(200)
  })

  test('if it fails, the rejection is passed on', async () => {
    const stage = await Stage.settled()
    stage.answer = withoutAdmin
    await stage.send('repeatable', '/v2/admin')
    await stage.pass(6_000)
    await stage.send()
    stage.endpointFails = 'token_endpoint_unavailable'
    stage.answer = () => 401
    const tokens = stage.cache.orgs.peek(ACME)
    tokens?.noteUselessMint({ by: 'R6' }, stage.world.now() + 10 * MINUTE_MS)
    expect(new Set(await stage.statuses(8))).toEqual(new Set([401]))
  })

  test('if it fails, no request with the good token waits for it or fails', async () => {
    const stage = await stageThatForbidsAdmin()
    stage.endpointFails = 'token_endpoint_unavailable'
    expect(await stage.statuses(8, 'repeatable', '/v2/admin')).toEqual(Array(8).fill(401))
    const { mints } = stage
    expect(mints, 'the row of five has caused one').toBeGreaterThan(1)
    for (let i = 0; i < 5; i += 1) {
      expect(await stage.statuses(1)).toEqual([200])
      expect(await stage.statuses(1, 'repeatable', '/v2/admin')).toEqual([401])
    }
  })
})

describe('R8: other statuses', () => {
  test.each([302, 307, 400, 403, 404, 419, 498])('%i: the fifth in a row is tried with a new token', async (status) => {
    const stage = await Stage.settled()
    stage.answer = ({ token }) => (token < 2 ? status : 200)
    expect(await stage.statuses(6)).toEqual([status, status, status, status, 200, 200])
    expect([stage.mints, stage.learned]).toEqual([2, []])
    await stage.pass(6_000)
    await stage.send()
    stage.answer = ({ token }) => (token < 3 ? status : 200)
    expect(await stage.statuses(5)).toEqual([status, status, status, status, 200])
    expect([stage.learned, stage.cache.service.learnedStatuses]).toEqual([[status], [status]])
    await stage.pass(6_000)
    await stage.send()
    stage.answer = ({ token }) => (token < 4 ? status : 200)
    expect(await stage.statuses(2), 'from then on, it counts as a rejection').toEqual([200, 200])
    expect(stage.kinds.at(-1)).toBe('expired')
  })

  test('many requests that one mint helped are one proof', async () => {
    const stage = await Stage.settled()
    const { issued } = stage
    stage.answer = ({ token }) => (token <= issued ? 404 : 200)
    const requests = Array.from({ length: 12 }, () => stage.request())
    for (const request of requests) await stage.outcome(request)
    expect([stage.mints, stage.learned]).toEqual([2, []])
  })

  test('a request that was not helped is one trial, however many waited for the mint', async () => {
    const stage = await Stage.settled()
    stage.answer = () => 404
    const requests = Array.from({ length: 12 }, () => stage.request())
    for (const request of requests) await stage.outcome(request)
    expect(stage.mints).toBe(2)
    await stage.pass(6_000)
    stage.answer = () => 200
    await stage.send()
    await stage.pass(20_000)
    stage.answer = () => 404
    await stage.statuses(5)
    expect(stage.mints).toBe(3)
  })

  test('a learned status that asks for more scope says nothing about the token', async () => {
    const stage = await Stage.settled()
    for (let round = 2; round < 4; round += 1) {
      stage.answer = ({ token }) => (token < round ? 403 : 200)
      await stage.statuses(5)
      await stage.pass(6_000)
      await stage.send()
    }
    const { mints } = stage
    expect(stage.learned).toEqual([403])
    stage.answer = () => ({ status: 403, challenge: 'Bearer error="insufficient_scope"' })
    expect(await stage.send()).toEqual({ status: 403, tookMs: ROUND_TRIP_MS })
    expect(stage.mints).toBe(mints)
  })

  test('for another Org, too, it counts as a rejection then', async () => {
    const stage = await Stage.settled()
    for (let round = 2; round < 4; round += 1) {
      stage.answer = ({ token }) => (token < round ? 403 : 200)
      await stage.statuses(5)
      await stage.pass(6_000)
      await stage.send()
    }
    await stage.outcome(stage.request('repeatable', '/', OTHER))
    await stage.pass(6_000)
    stage.answer = from(stage.issued + 1)
    expect((await stage.outcome(stage.request('repeatable', '/', OTHER))).status).toBe(200)
  })

  test.each(['POST', 'PUT', 'DELETE'])(
    'a %s is never sent twice for it; the next request of the Org mints',
    async (method) => {
      const stage = await Stage.settled()
      for (let round = 2; round < 4; round += 1) {
        stage.answer = ({ token }) => (token < round ? 409 : 200)
        expect(new Set(await stage.statuses(10, 'repeatable', '/', method)), 'not even the fifth').toEqual(
          new Set([409]),
        )
        await stage.statuses(5)
        await stage.pass(round * 6_000) // no two lives agree
        await stage.send()
      }
      const dead = stage.issued
      stage.answer = ({ token }) => (token <= dead ? 409 : 200)
      const sent = await stage.sentBy(async () =>
        expect((await stage.send('repeatable', '/', method)).status).toBe(409),
      )
      expect(sent).toHaveLength(1)
      expect((await stage.send('repeatable', '/', method)).status).toBe(200)
      expect(stage.issued).toBe(dead + 1)
    },
  )

  test('an app that polls for what is not there costs a few mints', async () => {
    const stage = await Stage.settled()
    stage.answer = () => 404
    const before = stage.mints
    for (let i = 0; i < 3_600; i += 1) {
      expect((await stage.send()).status).toBe(404)
      await stage.pass(1_000)
    }
    expect(stage.mints - before).toBeLessThanOrEqual(13)
    expect(stage.learned).toEqual([])
  })

  test('one stray answer teaches nothing, nor do five that are not the same', async () => {
    const stage = await Stage.settled()
    const odd: Answer[] = [403, 200, 403, 403, 403, 404, 403, 403, 403, 403, 200]
    const expected = odd.slice()
    stage.answer = () => odd.shift() ?? 200
    expect(await stage.statuses(odd.length)).toEqual(expected)
    expect([stage.mints, stage.learned]).toEqual([1, []])
  })

  test('a token that ends before anything accepted it is noticed, too', async () => {
    const stage = await Stage.settled()
    stage.answer = ({ path }) => (path === '/missing' ? 404 : 200)
    expect(await stage.statuses(5, 'repeatable', '/missing')).toEqual(Array(5).fill(404))
    expect(stage.mints, 'for nothing').toBe(2)
    await stage.pass(16_000)
    stage.answer = ({ token }) => (token < 3 ? 403 : 200)
    const seen: (number | string)[] = []
    for (let i = 0; i < 8; i += 1) {
      seen.push(...(await stage.statuses(1)))
      await stage.pass(1_000)
    }
    expect(seen).toEqual([403, 403, 403, 403, 200, 200, 200, 200])
    expect(stage.mints).toBe(3)
  })

  test('a POST that is forbidden with a learned status costs ever fewer mints, although other requests are accepted', async () => {
    const stage = await Stage.settled()
    for (let death = 2; death <= 3; death += 1) {
      stage.answer = ({ token }) => (token < death ? 403 : 200)
      await stage.statuses(6)
      await stage.pass(6_000)
      await stage.send()
    }
    expect(stage.learned).toEqual([403])
    stage.answer = ({ path }) => (path === '/forbidden' ? 403 : 200)
    const { mints } = stage
    for (let i = 0; i < 100; i += 1) {
      expect(await stage.statuses(1, 'repeatable', '/forbidden', 'POST')).toEqual([403])
      await stage.pass(6_000)
      expect(await stage.statuses(1)).toEqual([200])
    }
    expect(stage.mints - mints).toBeLessThanOrEqual(20)
  })

  test('nothing is tried for a young token that was never accepted, nor for 408, 429 and 5xx, nor with rejectedStatuses', async () => {
    const fresh = new Stage()
    fresh.answer = () => 403
    expect(new Set(await fresh.statuses(10))).toEqual(new Set([403]))
    expect(fresh.mints).toBe(1)
    const stage = await Stage.settled()
    for (const status of [408, 429, 500, 503]) {
      stage.answer = () => status
      expect(new Set(await stage.statuses(10))).toEqual(new Set([status]))
    }
    expect([stage.mints, stage.kinds]).toEqual([1, []])
    const told = await Stage.settled({ rejectedStatuses: [401] })
    told.answer = () => 403
    expect(new Set(await told.statuses(10))).toEqual(new Set([403]))
    expect(told.mints).toBe(1)
  })

  test.each([undefined, 'token-1'])(
    'without a new token (%s), the client gets the answer of the service',
    async (name) => {
      const stage = await Stage.settled()
      stage.answer = () => 403
      stage.name = name
      if (name === undefined) stage.endpointFails = 'token_endpoint_unavailable'
      expect(new Set(await stage.statuses(20))).toEqual(new Set([403]))
      expect(stage.mints).toBe(2)
    },
  )

  test.each([401, 403])('%i with insufficient_scope says nothing about the token', async (status) => {
    const stage = await Stage.settled()
    stage.answer = () => ({ status, challenge: 'Bearer realm="x", error="insufficient_scope"' })
    const sent = await stage.sentBy(async () => {
      expect(await stage.send()).toEqual({ status, tookMs: ROUND_TRIP_MS })
    })
    expect([sent.length, stage.mints, stage.kinds]).toEqual([1, 1, []])
  })
})

describe('a request that cannot be repeated', () => {
  test('gets its rejection; the next one gets a new token', async () => {
    const stage = await Stage.settled()
    stage.answer = from(2)
    expect(await stage.statuses(2, 'once')).toEqual([401, 200])
    expect([stage.mints, stage.kinds]).toEqual([2, ['unexplained']])
  })

  test('if a later request is accepted, nothing is minted', async () => {
    const stage = await Stage.settled()
    stage.answer = ({ path }) => (path === '/v2/uploads' ? 401 : 200)
    expect((await stage.send('once', '/v2/uploads')).status).toBe(401)
    await stage.send()
    expect((await stage.send('once')).status).toBe(200)
    expect(stage.mints).toBe(1)
  })

  test('rejected whatever the token: few mints, however often it tries', async () => {
    const stage = await Stage.settled()
    stage.answer = () => 401
    for (let i = 0; i < 600; i += 1) {
      expect((await stage.send('once')).status).toBe(401)
      await stage.pass(500)
    }
    expect(stage.mints).toBeLessThanOrEqual(8)
  })

  test('where the endpoint hangs, uploads do not wait for it one after the other', async () => {
    const stage = await Stage.settled()
    await stage.pass(6 * MINUTE_MS)
    stage.cache.service.oldestMs = 0
    let hasHung = false
    const { cache } = stage
    const wait = cache.awaitMint.bind(cache)
    cache.awaitMint = async (...args) => {
      hasHung = true
      return wait(...args)
    }
    stage.mintMs = 10 * MINUTE_MS
    const tookMs: number[] = []
    for (let i = 0; i < 20; i += 1) {
      const { status, tookMs: ms } = await stage.send('once')
      expect(status).toBe(200)
      tookMs.push(ms)
      await stage.pass(11_000)
    }
    expect(hasHung).toBe(true)
    expect(tookMs.filter((ms) => ms > 100)).toHaveLength(1)
  })
})

describe('L', () => {
  /** Uses the token until it has died `deaths` times at the age that `lifeMs` tells. */
  async function live(stage: Stage, deaths: number, lifeMs: (token: number) => number): Promise<void> {
    const last = stage.issued + deaths
    stage.answer = ({ token, ageMs }) => (ageMs > lifeMs(token) ? 401 : 200)
    while (stage.issued < last) {
      expect((await stage.send()).status).toBe(200)
      await stage.pass(200)
    }
  }

  const knownMs = (stage: Stage) => stage.cache.orgs.peek(ACME)?.lives.knownMs

  test('two deaths that agree make a known life, and the next mint is ahead of it', async () => {
    const stage = await Stage.settled()
    await live(stage, 1, () => 30_000)
    expect(knownMs(stage)).toBe(Number.POSITIVE_INFINITY)
    await live(stage, 1, () => 30_000)
    expect(knownMs(stage)).toBeGreaterThanOrEqual(30_000)
    expect(knownMs(stage)).toBeLessThan(30_500)
    const { length } = stage.kinds
    await live(stage, 3, () => 30_000)
    expect(stage.kinds.length, 'no rejection any more').toBe(length)
  })

  test('two that do not agree make none', async () => {
    const stage = await Stage.settled()
    await live(stage, 4, (token) => (token % 2 === 0 ? 30_000 : 36_000))
    expect(knownMs(stage)).toBe(Number.POSITIVE_INFINITY)
  })

  test('a token that outlives it by five in a hundred ends it', async () => {
    const stage = await Stage.settled()
    await live(stage, 2, () => 30_000)
    stage.cache.orgs
      .peek(ACME)
      ?.noteAccepted(stage.cache.orgs.peek(ACME)?.current ?? expect.fail(), stage.world.now() + 33_000, 'repeatable', {
        method: 'GET',
        path: '/',
      })
    expect(knownMs(stage)).toBe(Number.POSITIVE_INFINITY)
  })

  test('a token that its successor may have ended teaches nothing', async () => {
    const stage = await Stage.settled({ lifetimeMs: 20_000 })
    stage.answer = ({ token }) => (token < stage.issued ? 401 : 200)
    for (let i = 0; i < 600; i += 1) {
      expect((await stage.send()).status).toBe(200)
      await stage.pass(100)
    }
    expect(knownMs(stage)).toBe(Number.POSITIVE_INFINITY)
  })

  test('a token that a mint under way may have ended teaches nothing', async () => {
    const stage = await Stage.settled({ lifetimeMs: 20_000 })
    stage.mintMs = 200
    stage.answer = ({ token }) => (token < stage.mints ? 401 : 200)
    for (let i = 0; i < 1_200; i += 1) {
      expect((await stage.send()).status).toBe(200)
      await stage.pass(50)
    }
    expect(stage.kinds.length, 'tokens were rejected during mints').toBeGreaterThan(1)
    expect(knownMs(stage)).toBe(Number.POSITIVE_INFINITY)
  })

  test('the death of a token that was never accepted teaches nothing', async () => {
    const stage = new Stage()
    await Promise.all([stage.cache.mint(ACME, 'warm'), stage.pass(40_000)])
    stage.answer = ({ ageMs }) => (ageMs > 30_000 ? 401 : 200)
    expect((await stage.send()).status).toBe(200)
    await stage.pass(40_000)
    expect((await stage.send()).status).toBe(200)
    expect([stage.mints, knownMs(stage)]).toEqual([3, Number.POSITIVE_INFINITY])
  })

  test('a machine that slept: a rejected token is as old as the time of day says, and not young', async () => {
    const stage = new Stage()
    await stage.send()
    stage.sleptMs = 3_600_000
    stage.answer = from(2)
    expect((await stage.send()).tookMs).toBeLessThan(100)
    expect(stage.mints).toBe(2)
  })
})

test.each([400, 403, 500, 503])('after a purge, a response with %i is no rejection', async (status) => {
  const stage = await Stage.settled()
  stage.answer = () => status
  const request = stage.request()
  const sent = await stage.sentBy(async () => {
    stage.cache.purge()
    expect((await stage.outcome(request)).status).toBe(status)
  })
  expect([sent.length, stage.mints]).toEqual([1, 1])
})
