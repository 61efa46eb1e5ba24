/** What the rules of docs/tokens.md promise, whatever the service does. */

import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import type { OrgId } from '../../../src/org-id.ts'
import { Lives } from '../../../src/token/lives.ts'
import { OrgTokens, type RequestKind } from '../../../src/token/org-tokens.ts'
import { Rejection } from '../../../src/token/rejection.ts'
import { ServiceFacts, type TokenRules } from '../../../src/token/service-facts.ts'
import { AccessToken } from '../../../src/token/token-source.ts'
import { SETTLE_MS, type Sent, Stage } from './simulation/stage.ts'

const STATUSES = [200, 200, 200, 401, 401, 302, 403, 404, 409, 429, 503] as const
const RULES: TokenRules = {
  settleTimeMs: SETTLE_MS,
  lifetimeMs: undefined,
  rejectedStatuses: undefined,
  rejectedCooldownMs: 10_000,
}

const step = fc.record({
  org: fc.constantFrom('a', 'b'),
  kind: fc.constantFrom<RequestKind>('repeatable', 'repeatable', 'once'),
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
  readonly mintsBefore: number
  outcome?: number | string
  tookMs?: number
}

async function play(steps: readonly Step[], answer: (sent: Sent) => number): Promise<Request[]> {
  const stage = new Stage({ mintTimeoutMs: 2_000 })
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
    if (step.purges) stage.cache.purge(step.org as OrgId)
    const request: Request = { step, sent: [], mintsBefore: stage.mints }
    requests.push(request)
    const startedAt = stage.world.now()
    stage
      .request(step.kind, step.path, step.org as OrgId, step.method, (sent) => request.sent.push(sent))
      .then((outcome) => Object.assign(request, { outcome, tookMs: stage.world.now() - startedAt }))
  }
  await stage.pass(60_000)
  return requests
}

describe('whatever the service and the endpoint do', () => {
  const runs = { numRuns: 300 }
  const everyRequest = async (check: (request: Request) => void) =>
    fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 30 }), service, async (steps, answer) => {
        for (const request of await play(steps, answer)) check(request)
      }),
      runs,
    )

  test('every request ends, soon and after few tries, with an answer or a failure of the endpoint', () =>
    everyRequest(({ outcome, tookMs, sent }) => {
      expect([...STATUSES, 'token_endpoint_unavailable', 'token_endpoint_timeout']).toContain(outcome)
      // One wait before it is sent, one after a rejection, and the mints of both.
      expect(tookMs).toBeLessThan(2 * SETTLE_MS + 2 * 2_000 + 2_000)
      expect(sent.length).toBeLessThanOrEqual(40)
    }))

  test('a request that cannot be repeated is sent once at most', () =>
    everyRequest(({ step, sent }) => {
      if (step.kind === 'once') expect(sent.length).toBeLessThanOrEqual(1)
    }))

  test('a request that is no GET or HEAD is sent again after nothing but a 401', () =>
    everyRequest(({ step, sent }) => {
      if (step.method === 'GET' || step.method === 'HEAD') return
      for (const { status } of sent.slice(0, -1)) expect(status).toBe(401)
    }))

  test('no token is sent past the end that it states, also after the machine slept', () =>
    everyRequest(({ sent }) => {
      for (const { endsInMs } of sent) expect(endsInMs).toBeGreaterThan(0)
    }))

  test('the client of a request that was accepted sees that answer', () =>
    everyRequest(({ sent, outcome }) => {
      if (sent.some(({ status }) => status === 200)) expect(outcome).toBe(200)
    }))
})

describe('one Org', () => {
  const at = fc.integer({ min: 0, max: 1_000_000 })

  test('a rejection that comes late never retires or marks the successor', () => {
    const run = (mintedAt: number, sentAt: number, now: number) => {
      const service = new ServiceFacts(RULES)
      const old = new AccessToken('old', 0, undefined, undefined, 0)
      const tokens = new OrgTokens(old, service, 1)
      const current = new AccessToken('new', mintedAt, undefined, undefined, mintedAt)
      tokens.take(current, 'refresh', mintedAt, mintedAt, 1)
      tokens.noteAccepted(current, mintedAt, 'repeatable', { method: 'GET', path: '/' })
      const rejection = new Rejection({ method: 'GET', path: '/' }, 'repeatable')
      const answer = { token: old, sentAt, status: 401 }
      expect(rejection.judge(tokens, answer, 'rejected', now, now)).toEqual({ token: current, afterMs: 0 })
      expect([tokens.current, tokens.former, tokens.suspect, tokens.row]).toEqual([current, undefined, undefined, 0])
    }
    fc.assert(fc.property(at, at, at, run))
  })

  test('no request waits longer than the settle time for a token that is there', () => {
    const kinds = fc.constantFrom<RequestKind>('repeatable', 'once')
    const run = (kind: RequestKind, times: number[], lot: number, delayMs: number) => {
      const service = new ServiceFacts(RULES)
      const token = new AccessToken('t', 0, undefined, undefined, 0)
      const tokens = new OrgTokens(token, service, lot)
      service.noteDelay(delayMs, 0)
      let now = 0
      for (const [i, passedMs] of times.entries()) {
        now += passedMs
        if (i % 2 === 0) tokens.noteRejected(token, now)
        const choice = tokens.choose(kind, now, now)
        if ('wait' in choice && choice.wait === 'until') expect(choice.at - now).toBeLessThanOrEqual(SETTLE_MS)
      }
    }
    fc.assert(fc.property(kinds, fc.array(fc.integer({ min: 0, max: 4_000 })), fc.nat(999), fc.nat(100_000), run))
  })

  test('a known life is never more than the lesser of two ages at death, and never less than the last accepted one', () => {
    const death = fc.tuple(fc.integer({ min: 1, max: 1e6 }), fc.integer({ min: 0, max: 1e5 }))
    const run = (deaths: [number, number][]) => {
      const lives = new Lives()
      let before: [number, number] = [0, 0]
      for (const [aliveMs, gapMs] of deaths) {
        lives.noteDeath(aliveMs, aliveMs + gapMs)
        if (lives.knownMs < Number.POSITIVE_INFINITY) {
          expect(lives.knownMs).toBe(Math.min(aliveMs + gapMs, before[1]))
          expect(lives.knownMs * 1.05).toBeGreaterThanOrEqual(Math.max(aliveMs, before[0]))
        }
        before = [aliveMs, aliveMs + gapMs]
      }
    }
    fc.assert(fc.property(fc.array(death, { maxLength: 20 }), run))
  })
})
