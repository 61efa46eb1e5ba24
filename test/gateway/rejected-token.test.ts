/** The ways out of a rejection, with a scripted service and a virtual clock. */

import { describe, expect, test } from 'vitest'
import { TokenError, type TokenErrorCode } from '../../src/errors.ts'
import type { OrgId } from '../../src/http/org-id.ts'
import type { RejectionKind } from '../../src/http/request-record.ts'
import type { RequestKind } from '../../src/token/org-tokens.ts'
import { TokenCache, type TokenCacheOptions } from '../../src/token/token-cache.ts'
import { AccessToken } from '../../src/token/token-source.ts'
import { TOKEN_CACHE_OPTIONS } from '../support/token-cache-options.ts'
import { throughCache, World } from '../token/simulation/simulation.ts'

const ACME = 'acme' as OrgId
const SETTLE_MS = 5_000
const SETTLED_MS = SETTLE_MS + 1_000
const ROUND_TRIP_MS = 4
const MINT_MS = 20

interface Sent {
  readonly at: number
  /** The number of the token's mint; the first is 1. */
  readonly token: number
  readonly ageMs: number
  readonly path: string
}

type Answer = number | { readonly status: number; readonly challenge: string }

/** The proxy's tokens in front of a service that answers as the test says. */
class Stage {
  readonly world = new World()
  readonly sent: Sent[] = []
  readonly kinds: RejectionKind[] = []
  readonly learned: number[] = []
  readonly cache: TokenCache
  readonly #numbers = new Map<AccessToken, number>()
  mints = 0
  roundTripMs = ROUND_TRIP_MS
  /** The number of the latest token. */
  issued = 0
  /** The endpoint gives this name for the next tokens. */
  name: string | undefined
  endpointFails: TokenErrorCode | undefined
  /** Of a new token, as it may come from another replica. */
  ageMs = 0
  answer: (sent: Sent) => Answer = () => 200

  constructor(options: Partial<TokenCacheOptions> = {}) {
    this.cache = new TokenCache(
      {
        ...TOKEN_CACHE_OPTIONS,
        settleTimeMs: SETTLE_MS,
        now: this.world.now,
        wait: this.world.wait,
        random: () => 0.999,
        observer: { statusLearned: (status) => this.learned.push(status) },
        ...options,
      },
      { mint: () => this.#mint() },
    )
  }

  async #mint(): Promise<AccessToken> {
    const mintedAt = this.world.now() - this.ageMs
    this.mints += 1
    const number = this.mints
    await this.world.sleep(MINT_MS)
    if (this.endpointFails) throw new TokenError(this.endpointFails, 'scripted')
    this.issued = number
    const token = new AccessToken(this.name ?? `token-${number}`, mintedAt)
    this.#numbers.set(token, number)
    return token
  }

  /** Sends a request. Resolves with the status that its client sees, or the code of our own failure. */
  async request(kind: RequestKind = 'repeatable', path = '/v2/things', org = ACME): Promise<number | string> {
    const send = async (token: AccessToken) => {
      await this.world.sleep(this.roundTripMs / 2)
      const number = this.#numbers.get(token) ?? 0
      const sent = { at: this.world.now(), token: number, ageMs: this.world.now() - token.mintedAt, path }
      this.sent.push(sent)
      const answer = this.answer(sent)
      await this.world.sleep(this.roundTripMs / 2)
      return typeof answer === 'number' ? { status: answer } : answer
    }
    const note = (kind: RejectionKind) => this.kinds.push(kind)
    return throughCache(this.cache, this.world.now, { org, kind, path }, send, note).catch((error: unknown) =>
      error instanceof TokenError ? error.code : String(error),
    )
  }

  /** Lets time pass until the request has ended. */
  async outcome(request: Promise<number | string>): Promise<{ status: number | string; tookMs: number }> {
    const startedAt = this.world.now()
    const ended = request.then((status) => ({ status, tookMs: this.world.now() - startedAt }))
    let isOver = false
    ended.then(() => (isOver = true))
    for (let waitedMs = 0; !isOver && waitedMs < 60_000; waitedMs += 50) await this.pass(50)
    if (!isOver) throw new Error('the request has not ended after a minute')
    return ended
  }

  async send(kind?: RequestKind, path?: string): Promise<{ status: number | string; tookMs: number }> {
    return this.outcome(this.request(kind, path))
  }

  async pass(delayMs: number): Promise<void> {
    await this.world.runUntil(this.world.now() + delayMs)
  }

  /** A token that the service has accepted, and that is old enough to be known everywhere. */
  static async settled(options?: Partial<TokenCacheOptions>): Promise<Stage> {
    const stage = new Stage(options)
    await stage.send()
    await stage.pass(SETTLED_MS)
    await stage.send()
    return stage
  }
}

/** Rejects the tokens before this one. */
const from = (token: number) => (sent: Sent) => (sent.token < token ? 401 : 200)

describe('a settled token', () => {
  test.each([
    ['as a service tells that takes longer than the settle time to answer', 2 * SETTLE_MS, 0, 2],
    ['and with it the next one, minted before: one mint more', ROUND_TRIP_MS, SETTLED_MS, 3],
  ])('that has ended, %s', async (_case, roundTripMs, ageMs, mints) => {
    const stage = await Stage.settled()
    Object.assign(stage, { roundTripMs, ageMs, answer: from(mints) })
    expect((await stage.send()).status).toBe(200)
    expect(stage.mints).toBe(mints)
  })

  test('where the same token never helps, it is soon not tried any more', async () => {
    const stage = await Stage.settled()
    const repeats: number[] = []
    for (const [i, ageMs] of [10_000, 31_000, 17_000, 55_000, 23_000, 90_000].entries()) {
      await stage.pass(ageMs) // irregular, so that no end is expected
      await stage.send()
      stage.answer = from(i + 2)
      const before = stage.sent.length
      expect((await stage.send()).status).toBe(200)
      repeats.push(stage.sent.length - before)
    }
    expect(repeats).toEqual([3, 3, 3, 2, 2, 2])
    expect(stage.mints).toBe(7)
  })

  // RFC 6750 §3.1 sends it with 403.
  test.each([401, 403])('%i with insufficient_scope is passed on at once, and changes nothing', async (status) => {
    const stage = await Stage.settled()
    stage.answer = () => ({ status, challenge: 'Bearer realm="x", error="insufficient_scope"' })
    const before = stage.sent.length
    expect(await stage.send()).toEqual({ status, tookMs: ROUND_TRIP_MS })
    expect([stage.sent.length - before, stage.mints]).toEqual([1, 1])
  })

  test.each([1, 200])('that is forgotten %i ms after a request began: one mint', async (afterMs) => {
    const stage = afterMs === 1 ? await Stage.settled() : new Stage()
    stage.answer = from(2)
    const request = stage.request()
    await stage.pass(afterMs)
    stage.cache.purge()
    expect((await stage.outcome(request)).status).toBe(200)
    expect(stage.mints).toBe(2)
  })

  test.each([401, 403])(
    '%i: if the endpoint gives the rejected token again: few mints, and the next one is taken',
    async (status) => {
      const stage = new Stage()
      stage.name = 'always-the-same'
      await stage.send()
      await stage.pass(SETTLED_MS)
      let isGood = false
      stage.answer = () => (isGood ? 200 : status)
      expect((await stage.send()).status).toBe(status)
      expect(stage.mints).toBe(2)
      for (let i = 0; i < 100; i += 1) {
        await stage.send()
        await stage.pass(150)
      }
      expect(stage.mints).toBeLessThanOrEqual(12)
      stage.name = undefined
      isGood = true
      expect((await stage.send()).status).toBe(200)
    },
  )
})

describe('a young token', () => {
  test.each([
    [2_000, SETTLE_MS],
    [20_000, 60_000],
  ])(
    'that no back end knows for %i ms: the request waits until then, without a mint',
    async (delayMs, settleTimeMs) => {
      const stage = new Stage({ settleTimeMs })
      stage.answer = ({ ageMs }) => (ageMs < delayMs ? 401 : 200)
      const { status, tookMs } = await stage.send()
      expect(status).toBe(200)
      expect(tookMs).toBeLessThan(1.13 * delayMs)
      expect([stage.mints, stage.kinds]).toEqual([1, ['unsettled']])
    },
  )

  test('if a client that waits its turn has left, the next one tries', async () => {
    const stage = new Stage()
    stage.answer = ({ ageMs }) => (ageMs < 1_000 ? 401 : 200)
    const send = async () => ({ status: 401 })
    // Its repeat never ends, like that of a client that has left.
    let tries = 0
    throughCache(stage.cache, stage.world.now, { org: ACME, kind: 'repeatable', path: '/' }, () =>
      ++tries === 1 ? send() : new Promise(() => undefined),
    )
    await stage.pass(30)
    expect((await stage.send()).status).toBe(200)
  })

  test('that one of three back ends does not know: the others are tried again', async () => {
    const stage = new Stage()
    await stage.send()
    let count = 0
    stage.answer = ({ ageMs }) => (ageMs < 3_000 && ++count % 3 === 1 ? 401 : 200)
    for (let i = 0; i < 20; i += 1) {
      expect((await stage.send()).status).toBe(200)
      await stage.pass(100)
    }
    expect(stage.mints).toBe(1)
  })

  test('the one before it serves while the new one is not known', async () => {
    const stage = await Stage.settled({ learns: false, lifetimeMs: 60_000 })
    await stage.pass(60_000 - stage.world.now() - 100)
    stage.answer = ({ token, ageMs }) => (token === 2 && ageMs < 1_000 ? 401 : 200)
    await stage.send()
    await stage.pass(50)
    expect(stage.mints).toBe(2)
    const { status, tookMs } = await stage.send()
    expect(status).toBe(200)
    expect(tookMs).toBeLessThanOrEqual(2 * ROUND_TRIP_MS)
  })

  test('that is rejected for ever: a mint when it is old enough, and then the client gets the rejection', async () => {
    const stage = new Stage()
    stage.answer = () => 401
    const { status, tookMs } = await stage.send()
    expect(status).toBe(401)
    expect(stage.mints).toBe(2)
    expect(tookMs).toBeLessThan(SETTLE_MS + 1_500)
    const before = stage.sent.length
    for (let i = 0; i < 100; i += 1) expect((await stage.send()).status).toBe(401)
    expect(stage.mints).toBeLessThanOrEqual(4)
    expect(stage.sent.length - before).toBeLessThan(200)
  })

  test('where waiting helps every other time, it is not given up', async () => {
    const stage = new Stage()
    let delayMs = 1_000
    stage.answer = ({ ageMs, path }) => (path === '/never' || ageMs < delayMs ? 401 : 200)
    const send = (path: string, org: string) => stage.outcome(stage.request('repeatable', path, org as OrgId))
    for (let i = 0; i < 3; i += 1) {
      await send('/never', `never-${i}`)
      await send('/', `later-${i}`)
    }
    delayMs = 3_000
    expect((await send('/', 'another')).status).toBe(200)
  })

  test('where waiting never helps, it is soon given up', async () => {
    const stage = new Stage()
    stage.answer = () => 401
    const first = Array.from({ length: 3 }, (_, i) => stage.request('repeatable', '/', `org-${i}` as OrgId))
    for (const request of first) await stage.outcome(request)
    await stage.pass(SETTLED_MS)
    const later = stage.outcome(stage.request('repeatable', '/', 'another' as OrgId))
    expect((await later).tookMs).toBeLessThan(200)
  })

  test.each(['once', 'handshake'] as const)('after a request that met a delay, a %s request waits', async (kind) => {
    const stage = new Stage()
    stage.answer = ({ ageMs }) => (ageMs < 1_000 ? 401 : 200)
    await stage.send()
    stage.cache.purge()
    expect((await stage.send(kind)).status).toBe(200)
  })

  test('where handshakes alone are sent, few are rejected', async () => {
    const stage = new Stage()
    stage.answer = ({ ageMs }) => (ageMs < 2_000 || ageMs > 30_000 ? 401 : 200)
    const statuses: unknown[] = []
    for (let i = 0; i < 400; i += 1) {
      void stage.outcome(stage.request('handshake')).then(({ status }) => statuses.push(status))
      await stage.pass(500)
    }
    expect(statuses.filter((status) => status !== 200).length).toBeLessThanOrEqual(6)
    expect(statuses.length).toBeGreaterThan(350)
    expect(stage.mints).toBeLessThanOrEqual(14)
  })

  test.each([403, 400] as const)(
    'where uploads alone are sent and tokens end with %i, a few are rejected',
    async (status) => {
      const stage = new Stage()
      stage.answer = ({ ageMs }) => (ageMs > 60_000 ? status : 200)
      let rejected = 0
      for (let i = 0; i < 600; i += 1) {
        if ((await stage.send('once')).status !== 200) rejected += 1
        await stage.pass(1_000)
      }
      expect(rejected).toBeLessThanOrEqual(20)
      expect(stage.mints).toBeLessThanOrEqual(13)
    },
  )

  test('a short life is learned, too', async () => {
    const stage = new Stage()
    stage.answer = ({ ageMs }) => (ageMs > 1_000 ? 401 : 200)
    const waits: number[] = []
    for (let i = 0; i < 400; i += 1) {
      const { status, tookMs } = await stage.send()
      expect(status).toBe(200)
      waits.push(tookMs)
      await stage.pass(50)
    }
    expect(Math.max(...waits.slice(100))).toBeLessThan(200)
  })
})

describe('a rejection that is not about the token', () => {
  test('a trial in vain holds up no mint for a token that has ended', async () => {
    const stage = await Stage.settled()
    stage.answer = ({ path }) => (path === '/things/1' ? 403 : 200)
    expect([(await stage.send('repeatable', '/things/1')).status, stage.mints]).toEqual([403, 2])
    await stage.pass(SETTLED_MS)
    expect(stage.cache.orgs.peek(ACME)?.hasNoGoodToken).toBe(false)
    for (let i = 0; i < 6; i += 1) await stage.send('repeatable', '/things/2')
    stage.answer = from(3)
    expect((await stage.send('repeatable', '/things/2')).status).toBe(200)
  })

  test('a mint that did not help leaves no token marked that is good', async () => {
    const stage = await Stage.settled()
    const tokens = stage.cache.orgs.peek(ACME)
    tokens?.condemn(stage.world.now())
    if (tokens !== undefined) tokens.isBeingReplaced = true
    tokens?.noteUselessMint(0)
    stage.endpointFails = 'token_endpoint_unavailable'
    for (let i = 0; i < 10; i += 1) expect((await stage.send()).status).toBe(200)
  })

  test('a forbidden kind of request is known after its first rejections: no mint, no wait, one try', async () => {
    const stage = await Stage.settled()
    stage.answer = ({ path }) => (path.startsWith('/v2/admin') ? 401 : 200)
    for (let i = 0; i < 3; i += 1) {
      expect((await stage.send('repeatable', `/v2/admin/${i}`)).status).toBe(401)
      expect((await stage.send()).status).toBe(200)
    }
    const { mints } = stage
    expect(mints).toBeLessThanOrEqual(2)
    for (let i = 0; i < 100; i += 1) {
      const before = stage.sent.length
      expect(await stage.send('repeatable', `/v2/admin/${i}`)).toEqual({ status: 401, tookMs: ROUND_TRIP_MS })
      expect(stage.sent.length - before).toBe(1)
      await stage.send()
      await stage.pass(1_000)
    }
    expect(stage.mints).toBe(mints)
    await stage.pass(240_000)
    stage.answer = ({ token }) => (token <= mints ? 401 : 200)
    for (const status of [401, 200]) expect((await stage.send('repeatable', '/v2/admin/1')).status).toBe(status)
  })

  test.each([
    ['/v2/admin', '/v2/things', 2],
    ['/v2/users/0', '/v2/users/1', 7],
  ])('where %s is forbidden, the end of the token is noticed by %s, try %i', async (forbidden, allowed, tries) => {
    const stage = await Stage.settled()
    stage.answer = ({ path }) => (path === forbidden ? 401 : 200)
    for (let i = 0; i < 5; i += 1) {
      await stage.send('repeatable', forbidden)
      await stage.send('repeatable', allowed)
    }
    await stage.pass(SETTLED_MS)
    stage.answer = from(stage.mints + 1)
    for (let i = 1; i < tries; i += 1) await stage.send('repeatable', allowed)
    expect((await stage.send('repeatable', allowed)).status).toBe(200)
  })

  describe('where /v2/users/0 is forbidden, and /v2/users/1 is not', () => {
    /** Two tokens are in use. */
    async function mixed(): Promise<Stage> {
      const stage = await Stage.settled()
      stage.answer = ({ path }) => (path === '/v2/users/0' ? 401 : 200)
      await use(stage, 20)
      expect(stage.mints).toBeLessThanOrEqual(3)
      return stage
    }

    async function use(stage: Stage, seconds: number, kind: RequestKind = 'repeatable'): Promise<(number | string)[]> {
      const seen: (number | string)[] = []
      for (let i = 0; i < seconds; i += 1) {
        expect((await stage.send(kind, '/v2/users/0')).status).toBe(401)
        seen.push((await stage.send('repeatable', '/v2/users/1')).status)
        await stage.pass(1_000)
      }
      return seen.filter((status) => status !== 200)
    }

    test.each(['repeatable', 'once'] as const)('a rejected %s request costs no mint, and no wait', async (kind) => {
      const stage = await mixed()
      const { mints } = stage
      expect(await use(stage, 200, kind)).toEqual([])
      expect(stage.mints).toBe(mints)
      const { length } = stage.sent
      expect((await stage.send('repeatable', '/v2/users/0')).tookMs).toBe(2 * ROUND_TRIP_MS)
      expect(new Set(stage.sent.slice(length).map(({ token }) => token)).size).toBe(2)
    })

    test.each([
      ['older', 1],
      ['newer', 0],
    ])('if the %s of the two tokens ends, no client sees it', async (_which, newer) => {
      const stage = await mixed()
      const { issued } = stage
      stage.answer = ({ path, token }) => (path === '/v2/users/0' || token === issued - newer ? 401 : 200)
      expect(await use(stage, 30)).toEqual([])
      expect(stage.mints).toBeLessThanOrEqual(issued + 2)
      const tokens = stage.sent.slice(-20).map(({ token }) => token)
      expect(new Set(tokens).size, 'two other tokens are in use').toBe(2)
      expect(tokens).not.toContain(issued - newer)
    })
  })

  test('once the request is allowed, its rejections count again', async () => {
    const stage = await Stage.settled()
    stage.answer = () => 401
    await stage.send('repeatable', '/v2/admin')
    stage.answer = () => 200
    expect((await stage.send('repeatable', '/v2/admin')).status).toBe(200)
    await stage.pass(20_000)
    const dead = stage.mints
    stage.answer = from(dead + 1)
    expect((await stage.send('repeatable', '/v2/admin')).status).toBe(200)
  })

  test.each([
    { orgs: 10, mints: 2, late: 200 },
    { orgs: 10, mints: 2, late: 401, name: 'always-the-same' },
    { orgs: 3, mints: 1, late: 401 },
  ])('in an outage that $orgs orgs meet, each of them makes $mints mints', async ({ orgs, mints, late, name }) => {
    const stage = await Stage.settled()
    const names = Array.from({ length: orgs }, (_, i) => `org-${i}` as OrgId)
    const send = (org: OrgId) => stage.request('repeatable', '/v2/things', org)
    await Promise.all(names.map((org) => stage.outcome(send(org))))
    await stage.pass(SETTLED_MS)
    Object.assign(stage, { name, answer: () => 401 })
    const before = stage.mints
    const first = names.flatMap((org) => [send(org), send(org)])
    await stage.pass(SETTLED_MS + 1_500)
    const second = names.map(send)
    await stage.pass(500)
    stage.answer = from(before + orgs + 1)
    await stage.pass(SETTLED_MS)
    expect(new Set(await Promise.all(first))).toEqual(new Set([401]))
    expect(new Set(await Promise.all(second))).toEqual(new Set([late]))
    expect(stage.mints - before).toBe(orgs * mints)
  })

  test('an outage ends after 40 s, whatever the same orgs or a request from before it tell', () => {
    const { habits } = new Stage().cache
    const orgs = [{}, {}, {}, {}, {}]
    for (const at of [10_000, 20_000]) for (const org of orgs) habits.noteRejected(org, at)
    habits.noteAccepted(9_000)
    expect(habits.outageUntil).toBe(50_000)
  })

  test('a service that rejects every request costs one mint in a cool-down, and it is noticed when it is well again', async () => {
    const stage = await Stage.settled()
    stage.answer = () => 401
    for (let i = 0; i < 400; i += 1) {
      expect((await stage.send()).status).toBe(401)
      await stage.pass(25)
    }
    expect(stage.mints).toBeLessThanOrEqual(4)
    const dead = stage.mints
    stage.answer = from(dead + 1)
    await stage.pass(45_000)
    expect((await stage.send()).status).toBe(200)
  })

  test('where every fifth request meets a bad back end, clients see none of it, and hardly anything is minted', async () => {
    const stage = await Stage.settled({ refusalTtlMs: 60_000 })
    let count = 0
    stage.answer = () => (++count % 5 === 0 ? 401 : 200)
    for (let i = 0; i < 500; i += 1) {
      expect((await stage.send()).status).toBe(200)
      await stage.pass(100)
    }
    expect([stage.mints, ...new Set(stage.kinds)]).toEqual([1, 'not_the_token'])
    await stage.pass(300_000)
    for (count = 0; count < 7; ) expect((await stage.send()).status).toBe(200)
    expect(stage.mints, 'the back end may have lost the token').toBe(2)
    await stage.pass(310_000)
    stage.endpointFails = 'org_access_refused'
    for (count = 0; count < 60; await stage.pass(500)) expect((await stage.send()).status).toBe(200)
    expect(stage.mints, 'the refusal is remembered').toBe(3)
  })
})

describe('a request that cannot be repeated', () => {
  test('gets its rejection; the next one gets a new token', async () => {
    const stage = await Stage.settled()
    stage.answer = from(2)
    expect((await stage.send('once')).status).toBe(401)
    expect([stage.mints, stage.kinds]).toEqual([1, ['unexplained']])
    expect((await stage.send('once')).status).toBe(200)
    expect(stage.mints).toBe(2)
  })

  test('a handshake that is rejected: the next attempt gets a new token, even if this one was young', async () => {
    const stage = new Stage()
    stage.answer = from(2)
    expect((await stage.send('handshake')).status).toBe(401)
    expect((await stage.send('handshake')).status).toBe(200)
    expect(stage.mints).toBe(2)
  })

  test('if a request that was sent before is accepted, and then later ones: nothing is minted', async () => {
    const stage = await Stage.settled()
    const [early] = [stage.request()]
    await stage.pass(1)
    stage.roundTripMs = 1
    stage.answer = ({ path }) => (path === '/v2/uploads' ? 401 : 200)
    expect((await stage.send('once', '/v2/uploads')).status).toBe(401)
    expect((await stage.outcome(early ?? Promise.reject(new Error('not sent')))).status).toBe(200)
    expect((await stage.send()).status).toBe(200)
    expect((await stage.send('once')).status).toBe(200)
    expect(stage.mints).toBe(1)
  })

  test('after a mint for an upload that did not help, requests that can be repeated wait for one cool-down alone', async () => {
    const stage = await Stage.settled()
    await stage.pass(60_000)
    stage.answer = from(3)
    for (let i = 0; i < 2; i += 1) expect((await stage.send('once')).status).toBe(401)
    await stage.pass(SETTLED_MS)
    expect((await stage.send('once')).status).toBe(401)
    await stage.pass(10_000)
    expect((await stage.send()).status).toBe(200)
  })

  test('an org whose uploads are all forbidden does not hold up those of others for long', async () => {
    const stage = new Stage()
    stage.answer = ({ path }) => (path === '/forbidden' ? 401 : 200)
    for (let i = 0; i < 150; i += 1) {
      await stage.send('once', '/forbidden')
      await stage.pass(500)
    }
    stage.cache.purge()
    await stage.send('once', '/forbidden')
    expect((await stage.outcome(stage.request('once', '/', 'other' as OrgId))).tookMs).toBeLessThan(100)
  })

  test('a request that cannot be repeated does not wait without end while each token is replaced before it is known', async () => {
    const stage = await Stage.settled()
    stage.answer = ({ ageMs }) => (ageMs < 1_000 ? 401 : 200)
    stage.cache.habits.learnDelay(1_000, stage.world.now(), true)
    for (let i = 0; i < 2; i += 1) {
      stage.cache.mint(ACME, 'refresh')
      await stage.pass(200)
    }
    let isOver = false
    const upload = stage.request('once').finally(() => {
      isOver = true
    })
    const startedAt = stage.world.now()
    while (!isOver && stage.world.now() - startedAt < 60_000) {
      stage.cache.mint(ACME, 'refresh')
      await stage.pass(200)
    }
    expect(stage.world.now() - startedAt).toBeLessThan(2 * SETTLE_MS + 500)
    expect(await upload).toBe(401)
  })
})

describe('a client that is rejected whatever the token', () => {
  test.each([
    ['handshake', '/forbidden', 1, 6],
    ['once', '/forbidden', 1, 6],
    ['once', '/things', 1, 6],
    ['repeatable', '/things', 7, 5],
    ['repeatable', '/things', 11, 5],
  ] as const)('%s, %s beside each %i: few mints, however often it tries', async (kind, other, each, most) => {
    const stage = await Stage.settled()
    stage.answer = ({ path }) => (path === '/forbidden' ? 401 : 200)
    for (let i = 0; i < 300; i += 1) {
      expect((await stage.send(kind, '/forbidden')).status).toBe(401)
      if (i % each === 0) await stage.send(kind, other)
      await stage.pass(100)
    }
    expect(stage.mints).toBeLessThanOrEqual(most)
  })
})

describe('a rejected token', () => {
  test('is tried now and then while no other can be had, and serves again if the service accepts it', async () => {
    const stage = await Stage.settled()
    stage.answer = () => 401
    stage.endpointFails = 'token_endpoint_unavailable'
    for (let i = 0; i < 10; i += 1) expect((await stage.send()).status).toBe('token_endpoint_unavailable')
    const before = stage.sent.length
    for (let i = 0; i < 100; i += 1) {
      expect((await stage.send()).status).toBe('token_endpoint_unavailable')
      await stage.pass(100)
    }
    expect(stage.sent.length - before).toBeLessThanOrEqual(15)
    stage.answer = () => 200
    await stage.pass(1_000)
    for (let i = 0; i < 10; i += 1) expect((await stage.send()).status).toBe(200)
  })

  test('is not dead if the service accepts it from a later request', async () => {
    const stage = await Stage.settled()
    await stage.pass(10_000)
    stage.endpointFails = 'token_endpoint_unavailable'
    const requests = [stage.request(), stage.request(), stage.request()]
    stage.answer = () => 401
    await stage.pass(ROUND_TRIP_MS / 2)
    stage.answer = () => 200
    for (const request of requests) await stage.outcome(request)
    await stage.pass(1_000)
    for (let i = 0; i < 10; i += 1) expect((await stage.send()).status).toBe(200)
  })
})

test.each([400, 403, 500, 503])('after a purge, a response with %i is no rejection', async (status) => {
  const stage = await Stage.settled()
  stage.answer = () => status
  const before = stage.sent.length
  const request = stage.request()
  stage.cache.purge()
  expect((await stage.outcome(request)).status).toBe(status)
  expect([stage.sent.length - before, stage.mints]).toEqual([1, 1])
})

describe('other statuses', () => {
  test('clients that leave while their request tells what a status means do not end the trials', async () => {
    const stage = await Stage.settled()
    const send = async () => ({ status: 403 })
    for (let i = 0; i < 20; i += 1) {
      let tries = 0
      throughCache(stage.cache, stage.world.now, { org: ACME, kind: 'repeatable', path: '/' }, () =>
        ++tries === 1 ? send() : new Promise(() => undefined),
      )
      await stage.pass(15_000)
      await stage.send()
    }
    const dead = stage.issued
    stage.answer = ({ token }) => (token <= dead ? 403 : 200)
    expect((await stage.send()).status).toBe(200)
  })

  test.each([400, 403, 419, 440, 498])(
    '%i ends a token: one repeat tells, although one back end knows the new token later, and it is known from then on',
    async (status) => {
      const stage = await Stage.settled()
      stage.answer = ({ token, ageMs, path }) => (token < 2 || (ageMs < 1_000 && path === '/late') ? status : 200)
      const late = stage.request('repeatable', '/late')
      await stage.pass(MINT_MS + 3 * ROUND_TRIP_MS)
      for (let i = 0; i < 2; i += 1) expect((await stage.send()).status).toBe(200)
      expect((await stage.outcome(late)).status).toBe(200)
      expect([stage.learned, stage.cache.habits.learnedStatuses]).toEqual([[status], [status]])
      await stage.pass(SETTLED_MS)
      stage.answer = ({ token }) => (token < 3 ? status : 200)
      expect((await stage.send()).status).toBe(200)
      expect(stage.mints).toBe(3)
      expect(stage.learned).toEqual([status])
    },
  )

  test.each([undefined, 'token-1'])('403 for other reasons: one trial, and then hardly any (%s)', async (name) => {
    const stage = await Stage.settled()
    stage.name = name
    stage.answer = ({ path }) => (path === '/v2/things' ? 200 : 403)
    for (let i = 0; i < 200; i += 1) {
      expect((await stage.send('repeatable', `/v2/${'x'.repeat(i)}`)).status).toBe(403)
      await stage.send()
      await stage.pass(1_000)
    }
    expect(stage.mints).toBeLessThanOrEqual(4)
    expect(stage.learned).toEqual([])
  })

  test('400 for reasons of its own says nothing about the token: a 401 behind it is tried again', async () => {
    const stage = await Stage.settled()
    stage.answer = ({ path }) => (path === '/bad' ? 400 : 200)
    for (let i = 0; i < 2; i += 1) expect((await stage.send('repeatable', '/bad')).status).toBe(400)
    await stage.pass(SETTLED_MS)
    await stage.send()
    expect((await stage.send('repeatable', '/bad')).status).toBe(400)
    stage.endpointFails = 'token_endpoint_unavailable'
    const { length } = stage.sent
    stage.answer = () => (stage.sent.length === length + 1 ? 401 : 200)
    expect((await stage.send()).status).toBe(200)
  })

  test('if the same token is accepted then, or the answer tells of scope, it is not learned, and no trial is used up', async () => {
    const stage = await Stage.settled()
    const odd: Answer[] = [403, 200, { status: 403, challenge: 'Bearer error="insufficient_scope"' }]
    stage.answer = () => odd.shift() ?? 200
    for (const status of [200, 403, 200]) expect((await stage.send()).status).toBe(status)
    expect(stage.learned).toEqual([])
    await stage.pass(SETTLED_MS)
    stage.answer = ({ token }) => (token < 2 ? 403 : 200)
    expect((await stage.send()).status).toBe(200)
    expect(stage.learned).toEqual([403])
  })

  test('however many trials were in vain, an org of which unusually many requests are rejected has another', async () => {
    const stage = await Stage.settled()
    stage.answer = ({ path }) => (path === '/v2/admin' ? 403 : 200)
    for (const rejections of [1, 2, 3, 5]) {
      for (let i = 0; i < rejections; i += 1) expect((await stage.send('repeatable', '/v2/admin')).status).toBe(403)
      await stage.pass(SETTLED_MS)
      expect((await stage.send()).status).toBe(200)
    }
    expect(stage.learned).toEqual([])
    const dead = stage.issued
    stage.answer = ({ token }) => (token <= dead ? 403 : 200)
    let seen = 0
    while ((await stage.send()).status !== 200 && seen < 20) seen += 1
    expect([seen <= 10, stage.learned]).toEqual([true, [403]])
  })

  test('nobody else waits for the token of a trial: if the old one still works, the trial is over', async () => {
    const stage = await Stage.settled()
    stage.answer = ({ token, ageMs, path }) => (path === '/v2/admin' || (token > 1 && ageMs < 1_000) ? 403 : 200)
    const trial = stage.request('repeatable', '/v2/admin')
    await stage.pass(3 * ROUND_TRIP_MS)
    expect(stage.mints).toBe(2)
    expect((await stage.send()).tookMs).toBe(ROUND_TRIP_MS)
    expect((await stage.outcome(stage.request('once', '/', 'other' as OrgId))).tookMs).toBeLessThan(100)
    expect((await stage.outcome(trial)).tookMs).toBeLessThan(100)
    expect((await stage.send()).status).toBe(200)
  })

  test('403 for other reasons where a new token takes a while: trials tell nothing of the status, nor of waiting', async () => {
    const stage = new Stage()
    const orgs = ['a', 'b', 'c'] as OrgId[]
    for (const org of orgs) await stage.outcome(stage.request('repeatable', '/', org))
    stage.answer = ({ ageMs, path }) => (ageMs < 1_000 ? 401 : path === '/v2/admin' ? 403 : 200)
    await stage.pass(SETTLED_MS)
    for (const org of [...orgs, ...orgs]) await stage.outcome(stage.request('repeatable', '/v2/admin', org))
    expect([stage.mints, stage.learned]).toEqual([5, []])
    expect((await stage.send()).status).toBe(200)
    expect(stage.mints).toBe(6)
  })

  test('if the trial gets no token, the client gets the answer of the service', async () => {
    const stage = await Stage.settled()
    stage.answer = () => 403
    stage.endpointFails = 'token_endpoint_unavailable'
    expect((await stage.send()).status).toBe(403)
  })

  test('for a token that was never accepted, and 404, 409 or 500: nothing is tried', async () => {
    const stage = new Stage()
    stage.answer = () => 403
    expect((await stage.send()).status).toBe(403)
    for (const status of [404, 409, 422, 500, 503]) {
      stage.answer = () => status
      expect((await stage.send()).status).toBe(status)
    }
    expect([stage.mints, stage.kinds, stage.sent.length]).toEqual([1, [], 6])
  })
})

test('where a new token ends the one before, the one before is not used again', async () => {
  const stage = await Stage.settled({ learns: false, lifetimeMs: 20_000 })
  stage.answer = ({ token }) => (token < stage.issued ? 401 : 200)
  for (let i = 0; i < 600; i += 1) {
    expect((await stage.send()).status).toBe(200)
    await stage.pass(100)
  }
  const before = stage.sent.length
  for (let i = 0; i < 600; i += 1) {
    await stage.send()
    await stage.pass(100)
  }
  expect(stage.sent.length - before, 'no repeat any more').toBe(600)
})
