/** The eight rules of docs/tokens.md, one after the other, and what they promise whatever the service does. The clock is virtual. */

import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import type { OrgId } from '../../../src/org-id.ts'
import { ACME, type RequestLine, SETTLE_MS, type Sent, Stage } from './simulation/stage.ts'

const UPLOAD: RequestLine = { method: 'POST', isLarge: true }
const POST: RequestLine = { method: 'POST' }
const ADMIN: RequestLine = { path: '/v2/admin' }
const isAdmin = ({ path }: Sent) => path === ADMIN.path

/** Tokens before the `first` are dead. */
const endsBefore =
  (first: number, status = 401) =>
  (sent: Sent) =>
    sent.token < first ? status : 200
const tokensOf = (sent: readonly Sent[]) => sent.map(({ token }) => token)

describe('2. the end is known', () => {
  const withLife = async (statedLifeMs: number) => {
    const stage = new Stage()
    stage.statedLifeMs = statedLifeMs
    await stage.send()
    return stage
  }

  test('in its last tenth one request mints, and waits for nothing; the former token serves while the new one is young', async () => {
    const stage = await withLife(100_000)
    await stage.pass(96_000)
    const sent = await stage.sentBy(() => stage.statuses(3))
    expect(stage.mints).toBe(2)
    await stage.pass(1_000)
    expect(tokensOf([...sent, ...(await stage.sentBy(() => stage.send()))])).toEqual([1, 1, 1, 1])
    await stage.pass(4_000)
    expect(tokensOf(await stage.sentBy(() => stage.send()))).toEqual([2])
  })

  test('a former token that is rejected serves no more', async () => {
    const stage = await withLife(100_000)
    await stage.pass(96_000)
    await stage.send()
    stage.answer = endsBefore(2)
    await stage.pass(100)
    const sent = await stage.sentBy(() => stage.statuses(2))
    expect(tokensOf(sent)).toEqual([1, 2, 2])
  })

  test('past it there is no token, however long a request has waited', async () => {
    const stage = await withLife(10_000)
    stage.answer = ({ ageMs }) => (ageMs < 3_000 ? 401 : 200)
    await stage.pass(20_000)
    const sent = await stage.sentBy(() => stage.send())
    for (const { endsInMs } of sent) expect(endsInMs).toBeGreaterThan(0)
    expect(new Set(tokensOf(sent))).toEqual(new Set([2]))
  })

  /** Sends a request each 50 ms. Returns how long the slowest took, and when each mint began. */
  const poll = async (stage: Stage, forMs: number, lifeMs: () => number) => {
    const [until, mintedAt] = [stage.world.now() + forMs, [] as number[]]
    let slowestMs = 0
    while (stage.world.now() < until) {
      const [before, now] = [stage.mints, stage.world.now()]
      stage.statedLifeMs = lifeMs()
      slowestMs = Math.max(slowestMs, (await stage.send()).tookMs)
      if (stage.mints > before) mintedAt.push(now)
      await stage.pass(50)
    }
    return { slowestMs, mintedAt }
  }

  test.each(['the same token', 'a token with the same end'])('%s again: renewing ahead goes on', async (again) => {
    const stage = new Stage()
    if (again === 'the same token') stage.name = 'the-same'
    const endsAt = 62_000
    stage.statedLifeMs = endsAt
    await stage.send()
    await stage.pass(57_900)
    const { slowestMs, mintedAt } = await poll(stage, 3_600, () => endsAt - stage.world.now())
    expect(slowestMs, 'nobody waits').toBe(4)
    const gaps = mintedAt.slice(1).map((at, i) => at - (mintedAt[i] ?? 0))
    expect(mintedAt.length).toBeGreaterThan(2)
    expect(Math.min(...gaps)).toBeGreaterThanOrEqual(100)
    expect(gaps[0], 'half of what is left').toBeGreaterThan(1_200)
    stage.name = undefined
    expect((await poll(stage, 60_000, () => 30_000)).slowestMs, 'nobody waits at this end, nor at the next ones').toBe(
      4,
    )
  })

  test('lives of two seconds: each token is used for nearly all of its life', async () => {
    const stage = new Stage({ lifetimeMs: 2_000 })
    await stage.send()
    const { slowestMs, mintedAt } = await poll(stage, 10_000, () => 60_000)
    expect([slowestMs, mintedAt.length]).toEqual([4, 5])
  })

  test('the same token past tokens.lifetime counts as no token: nobody waits for ten seconds', async () => {
    const stage = new Stage({ lifetimeMs: 60_000 })
    stage.name = 'the-same'
    await stage.send()
    await stage.pass(60_000)
    expect(await stage.statuses(3)).toEqual([200, 200, 200])
    const { mints } = stage
    await stage.pass(9_000)
    await stage.send()
    expect(stage.mints).toBe(mints)
    await stage.pass(1_000)
    stage.name = undefined
    await stage.send()
    expect(stage.mints).toBe(mints + 1)
  })

  test('past tokens.lifetime a request waits for a mint; if that fails, it goes on, and nobody waits for ten seconds', async () => {
    const stage = await Stage.settled({ lifetimeMs: 60_000 })
    await stage.pass(60_000)
    stage.endpointFails = 'token_endpoint_unavailable'
    expect((await stage.send()).status).toBe(200)
    const mints = stage.mints
    await stage.statuses(5)
    expect([mints, stage.mints]).toEqual([2, 2])
    stage.endpointFails = undefined
    await stage.pass(10_000)
    expect(tokensOf(await stage.sentBy(() => stage.send()))).toEqual([3])
  })

  test.each(['stated', 'lifetime'])('time asleep counts (%s)', async (by) => {
    const stage = new Stage({ lifetimeMs: by === 'lifetime' ? 600_000 : undefined })
    stage.statedLifeMs = by === 'stated' ? 600_000 : undefined
    await stage.send()
    stage.sleptMs = 8 * 3_600_000
    expect(tokensOf(await stage.sentBy(() => stage.send(UPLOAD)))).toEqual([2])
  })
})

describe('3. the Org has a newer token', () => {
  test('a late rejection is repeated with it, costs no mint, and does not end it', async () => {
    const stage = await Stage.settled()
    stage.roundTripMs = (path) => (path === '/v2/slow' ? 20_000 : 4)
    const slow = stage.request({ path: '/v2/slow' })
    stage.answer = endsBefore(2)
    await stage.pass(1)
    await stage.send()
    expect((await stage.outcome(slow)).status).toBe(200)
    expect(stage.mints).toBe(2)
  })
})

describe('4. the token is young', () => {
  test('the same token after a quarter of its age, at least 50 ms, until it is no longer young', async () => {
    const stage = new Stage()
    stage.answer = () => 401
    const sent = await stage.sentBy(() => stage.send())
    const ofFirst = sent.filter(({ token }) => token === 1)
    const gaps = ofFirst.slice(1).map(({ at }, i) => at - (ofFirst[i]?.at ?? 0))
    expect(Math.min(...gaps)).toBeGreaterThanOrEqual(50)
    expect(ofFirst.at(-1)?.ageMs).toBeGreaterThanOrEqual(SETTLE_MS)
    expect(sent.length).toBeLessThanOrEqual(25)
  })

  test('it is accepted as soon as the service knows it', async () => {
    const stage = new Stage()
    stage.answer = ({ ageMs }) => (ageMs < 2_000 ? 401 : 200)
    const { status, tookMs } = await stage.send()
    expect(status).toBe(200)
    expect(tookMs).toBeLessThan(2_600)
  })

  test('when it was sent: a slow service may have looked at it then', async () => {
    const stage = new Stage()
    stage.roundTripMs = () => 2 * SETTLE_MS
    stage.answer = ({ ageMs }) => (ageMs < SETTLE_MS + 1 ? 401 : 200)
    expect(tokensOf(await stage.sentBy(() => stage.send()))).toEqual([1, 1])
    const upload = new Stage()
    upload.roundTripMs = stage.roundTripMs
    upload.answer = stage.answer
    expect(await upload.statuses(2, UPLOAD)).toEqual([401, 200])
    expect([stage.mints, upload.mints]).toEqual([1, 1])
  })

  test('a token that ended while the machine slept is not young, though the monotonic clock stood still', async () => {
    const stage = new Stage()
    await stage.send()
    stage.sleptMs = 3_600_000
    stage.answer = endsBefore(2)
    expect(tokensOf(await stage.sentBy(() => stage.send(POST)))).toEqual([1, 1, 2])
  })

  test('the former token, if there is one that was not rejected', async () => {
    const stage = await Stage.settled()
    await stage.pass(400_000)
    stage.answer = ({ token, ageMs }) => (token === 2 && ageMs < 3_000 ? 401 : 200)
    await stage.send(UPLOAD) // waits for a mint, because the token was not used for long
    expect(tokensOf(await stage.sentBy(() => stage.send()))).toEqual([2, 1])
  })
})

describe('5. the token was accepted in the last five seconds', () => {
  test('a bad back end: once more with the same token', async () => {
    const stage = await Stage.settled()
    let bad = 1
    stage.answer = () => (bad-- > 0 ? 401 : 200)
    expect(tokensOf(await stage.sentBy(() => stage.send()))).toEqual([1, 1])
    expect(stage.mints).toBe(1)
  })

  test('later, a mint', async () => {
    const stage = await Stage.settled()
    await stage.pass(5_000)
    stage.answer = endsBefore(2)
    expect(tokensOf(await stage.sentBy(() => stage.send()))).toEqual([1, 2])
  })
})

describe('6. none of these: a mint, and a repeat', () => {
  test('the repeat is accepted: the client notices nothing', async () => {
    const stage = await Stage.settled()
    stage.answer = endsBefore(2)
    expect(await stage.statuses(3, POST)).toEqual([200, 200, 200])
    expect(stage.mints).toBe(2)
    expect(stage.outcomes).toEqual(['repeated'])
  })

  test('the repeat is rejected to the end: no mint for ten seconds, then for twenty, forty, sixty', async () => {
    const stage = await Stage.settled()
    stage.answer = (sent) => (isAdmin(sent) ? 401 : 200)
    const mintedAt: number[] = []
    for (let seconds = 0; seconds < 240; seconds += 1) {
      const before = stage.mints
      expect((await stage.send(ADMIN)).status).toBe(401)
      await stage.send() // no row
      if (stage.mints > before) mintedAt.push(stage.world.now())
      await stage.pass(1_000)
    }
    const gaps = mintedAt.slice(1).map((at, i) => Math.round((at - (mintedAt[i] ?? 0) - SETTLE_MS) / 10_000))
    expect(gaps.slice(0, 5)).toEqual([1, 2, 4, 6, 6])
    expect(stage.outcomes).toContain('useless')
  })

  test('from the mint until its request is answered, no other rejection causes one', async () => {
    const stage = await Stage.settled()
    await stage.pass(6_000)
    stage.answer = () => 401
    const causing = stage.request()
    await stage.pass(100)
    const others = [stage.request(ADMIN), stage.request(POST)]
    await stage.pass(20_000)
    expect(await Promise.all([causing, ...others])).toEqual([401, 401, 401])
    expect(stage.mints).toBe(2)
  })

  test('a row of five that follows an acceptance ends the pause', async () => {
    const stage = await Stage.settled()
    stage.answer = (sent) => (isAdmin(sent) ? 401 : 200)
    await stage.send(ADMIN)
    await stage.send()
    stage.answer = endsBefore(3)
    expect(await stage.statuses(5)).toEqual([401, 401, 401, 401, 200])
  })

  test('a row alone does not', async () => {
    const stage = await Stage.settled()
    stage.answer = () => 401
    await stage.statuses(30)
    expect(stage.mints).toBe(2)
  })

  test('the endpoint gives the same token again: the answer, and pauses from one second on', async () => {
    const stage = new Stage()
    stage.name = 'the-same'
    await stage.send()
    await stage.pass(6_000)
    stage.answer = () => 401
    const mintedAt: number[] = []
    for (let i = 0; i < 300; i += 1) {
      const before = stage.mints
      expect((await stage.send()).status).toBe(401)
      if (stage.mints > before) mintedAt.push(stage.world.now())
      await stage.pass(50)
    }
    const gaps = mintedAt.slice(1).map((at, i) => Math.round((at - (mintedAt[i] ?? 0)) / 1_000))
    expect(gaps.slice(0, 4)).toEqual([1, 2, 4, 8])
  })

  test('the mint fails: the error of the endpoint, never the 401', async () => {
    const stage = await Stage.settled()
    await stage.pass(6_000)
    stage.answer = () => 401
    stage.endpointFails = 'token_endpoint_unavailable'
    expect(await stage.statuses(3)).toEqual(Array(3).fill('token_endpoint_unavailable'))
    stage.endpointFails = undefined
    stage.answer = endsBefore(3)
    expect((await stage.send()).status).toBe(200)
  })

  test('two Orgs: the rejections of one change nothing for the other', async () => {
    const other = 'globex' as OrgId
    const stage = await Stage.settled()
    await stage.send({ org: other })
    stage.answer = (sent) => (isAdmin(sent) ? 401 : 200)
    await stage.statuses(20, ADMIN)
    await stage.pass(6_000)
    stage.answer = ({ token }) => (token <= 2 ? 401 : 200)
    expect((await stage.send({ org: other })).status).toBe(200)
  })
})

describe('another proxy that mints for the Org, where a new token ends the one before', () => {
  /** Each token ends at an age, once it was accepted. */
  const tokensEnding = async (count: number, ageMs: number) => {
    const stage = new Stage()
    let ended = 0
    stage.answer = (sent) => (sent.token <= ended ? 401 : 200)
    await stage.send()
    for (ended = 1; ended <= count; ended += 1) {
      await stage.pass(ageMs)
      expect((await stage.send()).status).toBe(200)
    }
    return { stage, isTold: () => (stage.orgs.peek(ACME)?.rivalUntil ?? 0) > stage.world.now() }
  }

  test('is told for ten minutes after two tokens that ended while they were young', async () => {
    expect((await tokensEnding(1, 0)).isTold()).toBe(false)
    const { stage, isTold } = await tokensEnding(2, 0)
    await stage.pass(599_000)
    expect(isTold()).toBe(true)
    await stage.pass(1_000)
    expect(isTold()).toBe(false)
  })

  test('is not told where tokens end later, or the service learns them late', async () => {
    expect((await tokensEnding(5, 6_000)).isTold()).toBe(false)
    const { stage, isTold } = await tokensEnding(0, 0)
    for (let i = 0; i < 5; i += 1) {
      // Every second back end knows the new token four seconds later.
      stage.answer = ({ token, ageMs }) => (token <= i || (ageMs < 4_000 && stage.sent.length % 2 === 0) ? 401 : 200)
      await stage.pass(6_000)
      for (let sent = 0; sent < 6; sent += 1) expect((await stage.send()).status).toBe(200)
    }
    expect(isTold()).toBe(false)
  })
})

describe('7. a request that may not be sent again', () => {
  test('gets the rejection; the next of its sort waits for a mint', async () => {
    const stage = await Stage.settled()
    stage.answer = endsBefore(2)
    expect(await stage.statuses(3, UPLOAD)).toEqual([401, 200, 200])
    expect(stage.mints).toBe(2)
    expect(stage.outcomes).toEqual(['not_kept'])
  })

  test('not in a pause of rule 6; if that one is not accepted, the pause follows', async () => {
    const stage = await Stage.settled()
    stage.answer = () => 401
    expect(await stage.statuses(8, UPLOAD)).toEqual(Array(8).fill(401))
    expect(stage.mints).toBe(2)
  })

  test('if the mint fails, the error of the endpoint', async () => {
    const stage = await Stage.settled()
    stage.answer = () => 401
    await stage.send(UPLOAD)
    stage.endpointFails = 'token_endpoint_unavailable'
    const sent = await stage.sentBy(async () => {
      expect(await stage.statuses(8, UPLOAD)).toEqual(Array(8).fill('token_endpoint_unavailable'))
    })
    expect(sent).toEqual([])
  })

  test('a young token was rejected: what is not kept waits until it is no longer young', async () => {
    const stage = new Stage()
    stage.answer = ({ ageMs }) => (ageMs < 3_000 ? 401 : 200)
    expect(await stage.statuses(2, UPLOAD)).toEqual([401, 200])
    expect(stage.sent.at(-1)?.ageMs).toBeGreaterThanOrEqual(SETTLE_MS)
    expect(stage.mints).toBe(1)
  })

  test('but no longer than tokens.settleTime in all, whatever tokens follow', async () => {
    const stage = new Stage()
    stage.answer = ({ ageMs }) => (ageMs < 3_000 ? 401 : 200)
    await stage.send(UPLOAD)
    const upload = stage.request(UPLOAD)
    await stage.pass(4_000)
    stage.orgs.purge()
    await stage.send(UPLOAD)
    expect((await stage.outcome(upload)).tookMs).toBeLessThan(2_000)
  })

  test('where no end is known: a token of five minutes that was not accepted for ten seconds is replaced first', async () => {
    const stage = await Stage.settled()
    await stage.pass(300_000)
    stage.answer = endsBefore(2)
    expect(await stage.statuses(1, UPLOAD)).toEqual([200])
    const shared = await Stage.settled({ sharesTokens: true })
    await shared.pass(300_000)
    await shared.send(UPLOAD)
    expect([stage.mints, shared.mints]).toEqual([2, 1])
  })

  test('if that mint fails, a token that was not rejected serves', async () => {
    const stage = await Stage.settled()
    await stage.pass(300_000)
    stage.endpointFails = 'token_endpoint_unavailable'
    expect(await stage.statuses(2, UPLOAD)).toEqual([200, 200])
  })

  test('a POST that is answered with a configured status other than 401 is sent once, and the next one waits', async () => {
    const stage = await Stage.settled({ rejectedStatuses: [302, 401] })
    stage.answer = endsBefore(2, 302)
    const sent = await stage.sentBy(async () => expect(await stage.statuses(2, POST)).toEqual([302, 200]))
    expect(tokensOf(sent)).toEqual([1, 2])
  })
})

test('rejectedStatuses lists all statuses that reject a token: a 401 that is not in it is passed on', async () => {
  const stage = await Stage.settled({ rejectedStatuses: [419, 498] })
  for (const [i, status] of [419, 498].entries()) {
    stage.answer = endsBefore(i + 2, status)
    await stage.pass(20_000)
    expect(await stage.statuses(2)).toEqual([200, 200])
  }
  stage.answer = () => 401
  await stage.pass(20_000)
  expect([await stage.statuses(6), stage.mints]).toEqual([Array(6).fill(401), 3])
})

describe('8. another status', () => {
  test('a row of five rejects the token; the fifth GET is repeated, and then the status rejects', async () => {
    const stage = await Stage.settled()
    stage.answer = endsBefore(2, 302)
    expect(await stage.statuses(6)).toEqual([302, 302, 302, 302, 200, 200])
    expect(stage.orgs.peek(ACME)?.learnedStatus).toBe(302)
    await stage.pass(20_000)
    stage.answer = endsBefore(3, 302)
    expect(await stage.statuses(2)).toEqual([200, 200])
  })

  test('POSTs alone: none is sent twice, and the next request after the fifth gets a new token', async () => {
    const stage = await Stage.settled()
    stage.answer = endsBefore(2, 403)
    const sent = await stage.sentBy(async () =>
      expect(await stage.statuses(6, POST)).toEqual([403, 403, 403, 403, 403, 200]),
    )
    expect(sent).toHaveLength(6)
  })

  test('POSTs alone: two such rows, each followed by an accepted request, make the status suspect, until one is not', async () => {
    const stage = await Stage.settled()
    const suspected = () => stage.orgs.peek(ACME)?.suspectedStatus
    for (const [dead, suspects] of [
      [1, undefined],
      [2, 403],
      [3, 403],
    ] as const) {
      stage.answer = endsBefore(dead + 1, 403)
      await stage.statuses(6, POST)
      await stage.pass(20_000)
      expect([stage.mints, suspected(), stage.orgs.peek(ACME)?.learnedStatus]).toEqual([dead + 1, suspects, undefined])
    }
    stage.answer = () => 403
    await stage.statuses(6, POST)
    expect(suspected()).toBeUndefined()
  })

  test('the status is forgotten when a repeat with a new token gets it, too', async () => {
    const stage = await Stage.settled()
    stage.answer = endsBefore(2, 404)
    await stage.statuses(5)
    await stage.pass(20_000)
    stage.answer = () => 404
    await stage.send()
    expect(stage.orgs.peek(ACME)?.learnedStatus).toBeUndefined()
  })

  test('if the mint fails, the answer of the service', async () => {
    const stage = await Stage.settled()
    stage.answer = () => 403
    stage.endpointFails = 'token_endpoint_unavailable'
    expect(await stage.statuses(8)).toEqual(Array(8).fill(403))
  })

  test.each([
    ['rejectedStatuses is set', 403, { rejectedStatuses: [401] }],
    ['the status is 429', 429, {}],
    ['the status is 503', 503, {}],
  ])('never if %s', async (_, status, options) => {
    const stage = await Stage.settled(options)
    stage.answer = () => status
    await stage.statuses(12)
    expect([stage.mints, stage.outcomes]).toEqual([1, []])
  })

  test('a challenge that asks for more scope says nothing about the token', async () => {
    const stage = await Stage.settled()
    stage.answer = () => ({ status: 401, challenge: 'Bearer error="insufficient_scope"' })
    const sent = await stage.sentBy(() => stage.statuses(12))
    expect([sent.length, stage.mints]).toEqual([12, 1])
  })

  test.each([
    ['nothing', 0],
    ['one in seven', 7],
  ])(
    'an app that polls for what is not there, and finds %s: after two minutes, a mint a minute at most',
    async (_, every) => {
      const stage = new Stage()
      stage.answer = ({ path }) => (path === '/v2/there' ? 200 : 404)
      const mintedAt: number[] = []
      for (let i = 0; stage.world.now() < 3_600_000; i += 1) {
        const before = stage.mints
        await stage.send({ path: i % every === 0 ? '/v2/there' : '/v2/not-there' })
        if (stage.mints > before) mintedAt.push(stage.world.now())
        await stage.pass(750)
      }
      const later = mintedAt.filter((at) => at > 120_000)
      expect(mintedAt.length - later.length).toBeLessThanOrEqual(7)
      expect(later.length).toBeLessThanOrEqual(58)
    },
  )
})

// ---- whatever the service does

const STATUSES = [200, 200, 200, 401, 401, 302, 403, 404, 409, 429, 503] as const
const MINT_TIMEOUT_MS = 2_000
const MOST_ROUND_TRIPS_MS = 25 * 4

const step = fc.record({
  org: fc.constantFrom('a' as OrgId, 'b' as OrgId),
  isLarge: fc.constantFrom(false, false, true),
  method: fc.constantFrom('GET', 'HEAD', 'POST', 'DELETE'),
  path: fc.constantFrom('/things', '/things/1', '/admin'),
  gapMs: fc.constantFrom(0, 1, 30, 500, 3_000, 20_000, 400_000),
  sleepsMs: fc.constantFrom(0, 0, 0, 3_600_000),
  endpoint: fc.constantFrom('good', 'good', 'good', 'same', 'fails', 'stated', 'slow'),
  purges: fc.constantFrom(false, false, false, true),
})
type Step = typeof step extends fc.Arbitrary<infer T> ? T : never

/** Answers by token, path and second. */
const service = fc.func<[Sent], number>(fc.constantFrom<number>(...STATUSES))

interface Request {
  readonly step: Step
  readonly sent: Sent[]
  outcome?: number | string
  tookMs?: number
}

async function play(steps: readonly Step[], answer: (sent: Sent) => number): Promise<Request[]> {
  const stage = new Stage({ mintTimeoutMs: MINT_TIMEOUT_MS })
  const requests: Request[] = []
  stage.answer = (sent) => answer({ ...sent, at: Math.floor(sent.at / 1_000), ageMs: Math.floor(sent.ageMs / 1_000) })
  for (const step of steps) {
    await stage.pass(step.gapMs)
    if (step.sleepsMs > 0) await stage.pass(60_000) // so that no request is under way
    stage.sleptMs += step.sleepsMs
    stage.endpointFails = step.endpoint === 'fails' ? 'token_endpoint_unavailable' : undefined
    stage.name = step.endpoint === 'same' ? 'the-same' : undefined
    stage.statedLifeMs = step.endpoint === 'stated' ? 15_000 : undefined
    stage.mintMs = step.endpoint === 'slow' ? 4_000 : 20
    if (step.purges) stage.orgs.purge(step.org)
    const request: Request = { step, sent: [] }
    requests.push(request)
    const startedAt = stage.world.now()
    stage
      .request(step, (sent) => request.sent.push(sent))
      .then((outcome) => Object.assign(request, { outcome, tookMs: stage.world.now() - startedAt }))
  }
  await stage.pass(60_000)
  return requests
}

test('every request ends in time, after few tries, with an answer or a failure of the endpoint, and nothing is sent that must not be', () =>
  fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 30 }), service, async (steps, answer) => {
      for (const { step, sent, outcome, tookMs } of await play(steps, answer)) {
        expect([...STATUSES, 'token_endpoint_unavailable', 'token_endpoint_timeout']).toContain(outcome)
        expect(tookMs).toBeLessThanOrEqual(SETTLE_MS + MINT_TIMEOUT_MS + MOST_ROUND_TRIPS_MS)
        expect(sent.length).toBeLessThanOrEqual(25)
        if (step.isLarge) expect(sent.length).toBeLessThanOrEqual(1)
        const isSafe = step.method === 'GET' || step.method === 'HEAD'
        for (const { status } of sent.slice(0, -1)) if (!isSafe) expect(status).toBe(401)
        for (const { endsInMs } of sent) expect(endsInMs).toBeGreaterThan(0)
        if (sent.some(({ status }) => status === 200)) expect(outcome).toBe(200)
      }
    }),
    { numRuns: 200 },
  ))
