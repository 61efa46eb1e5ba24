/** What answers mean, one question at a time. */

import { describe, expect, test } from 'vitest'
import type { Got, Mint, ProbeToken } from '../../../src/probe/asker.ts'
import { judge } from '../../../src/probe/judgements.ts'
import type { Life, Unused } from '../../../src/probe/lives.ts'
import type { Answers, Succession } from '../../../src/probe/questions.ts'
import { Secret } from '../../../src/secret.ts'

const ANSWER = {
  at: 1_000,
  durationMs: 10,
  status: 200,
  failure: undefined,
  limits: [],
  isLimited: false,
  redirect: undefined,
  contentType: undefined,
  challenge: undefined,
}
const TOKEN: ProbeToken = { secret: new Secret('t'), isJwt: false, askedAt: 0, gotAt: 10 }
const MINT: Mint = {
  ...ANSWER,
  members: ['orgAccessToken'],
  candidates: [],
  token: TOKEN,
  stated: [],
  allow: undefined,
  clockOffsetMs: 0,
}
const GOT: Got = { ...ANSWER, connection: 0, keepsAlive: true, keepAliveSeconds: undefined }
const REJECTED: Got = { ...GOT, status: 401 }
const NO = { reason: 'no' }

function sample(isAccepted: boolean, ageMs: number, connection = 0): Unused {
  const got = isAccepted ? GOT : REJECTED
  return { isAccepted, leastAgeMs: ageMs, mostAgeMs: ageMs + 1, connection, status: got.status, got }
}

function answersWith(changes: Partial<Answers>): Answers {
  const rest = {
    noToken: NO,
    madeUp: NO,
    firstTrial: NO,
    second: NO,
    isSameToken: { answer: false },
    secondTrial: NO,
    olderToken: NO,
  }
  const more = { succession: NO, nextSuccession: NO, unknownOrg: NO, lives: NO }
  return { mints: [MINT], gets: [GOT], first: MINT, ...rest, ...more, ...changes }
}

function judged(about: string, changes: Partial<Answers>) {
  const { findings, facts } = judge(answersWith(changes), { url: 'POST https://s/v2', field: 'orgAccessToken' })
  const found = findings.find((each) => each.about === about)
  return { said: `${found?.outcome}: ${found?.says}`, evidence: found?.evidence, facts }
}

describe('a stated end', () => {
  test('that has passed is none', () => {
    const { said, facts } = judged('stated end', { mints: [{ ...MINT, stated: [{ by: 'jwt', lifeMs: -30_000 }] }] })
    expect([said, facts.statedBy]).toEqual(['not seen: The answer states no end that lies ahead.', []])
  })

  test('the earliest one counts', () => {
    const stated = [
      { by: 'jwt', lifeMs: 300_000 },
      { by: 'expires_in', lifeMs: 60_000 },
    ]
    const { said, evidence, facts } = judged('stated end', { mints: [{ ...MINT, stated }] })
    expect(said).toBe('seen: A token states that it ends in 60 s.')
    expect(evidence).toBe("exp is 300 s ahead; expires_in is 60 s ahead, by the endpoint's Date")
    expect(facts).toMatchObject({ statedBy: ['jwt', 'expires_in'], statedLifeMs: 60_000 })
  })
})

describe('whether a new token ends the one before', () => {
  const succession = (before: Got, after: Got, later: Got): Succession => {
    const isAccepted = ({ status }: Got) => status === 200
    const [isBeforeAccepted, isAfterAccepted, isLaterAccepted] = [before, after, later].map(isAccepted)
    return {
      ...{ before, after, later },
      ...{ isBeforeAccepted: isBeforeAccepted === true, isAfterAccepted: isAfterAccepted === true },
      isLaterAccepted: isLaterAccepted === true,
    }
  }
  const live = succession(GOT, GOT, GOT)
  const dead = succession(GOT, REJECTED, REJECTED)
  const late = succession(GOT, GOT, { ...REJECTED, at: 3_000 })

  test.each([
    ['not seen: Tokens of an Org live side by side.', live, live, false],
    ['seen: A new token ends the one before, at once.', dead, dead, true],
    ['seen: A new token ends the one before, within 2.0 s.', late, late, true],
    ['could not be asked: Whether a new token ends the one before.', dead, live, undefined],
    ['could not be asked: Whether a new token ends the one before.', succession(REJECTED, GOT, GOT), dead, undefined],
  ])('%s', (expected, first, next, endsFormer) => {
    const { said, facts } = judged('one live token', {
      succession: { answer: first },
      nextSuccession: { answer: next },
    })
    expect([said, facts.endsFormer]).toEqual([expected, endsFormer])
  })
})

describe('the delay of a new token', () => {
  const atOnce = (late: number) => Array.from({ length: 20 }, (_, i) => sample(i >= late, 5, i))

  test('lies between the last rejection and the acceptance behind it', () => {
    const samples = [...atOnce(2), sample(false, 300), sample(false, 400, 1), sample(true, 600, 1), sample(true, 601)]
    const { said, facts } = judged('delay', { secondTrial: { answer: { samples, isClean: true, isRough: false } } })
    expect(said).toBe('seen: A new token is accepted late: the delay was between 400 ms and 601 ms.')
    expect(facts.delay).toEqual({ mostMs: 601, share: 0.1 })
  })

  test('where rejections do not end, nothing is said of a delay', () => {
    const samples = [...atOnce(2), sample(true, 60), sample(false, 20_000, 7)]
    const { said, facts } = judged('delay', { secondTrial: { answer: { samples, isClean: false, isRough: false } } })
    expect(said).toBe('seen: A new token is rejected for longer than 20 s, or now and then.')
    expect(facts.delay).toBeUndefined()
  })

  test('where an older token is rejected as well, it is no delay', () => {
    const trial = { samples: [...atOnce(2), sample(false, 700, 7)], isClean: false, isRough: false }
    const olderToken = {
      answer: [...Array.from({ length: 18 }, () => sample(true, 4_000)), sample(false, 4_000), sample(false, 4_000)],
    }
    const { said, facts } = judged('delay', { secondTrial: { answer: trial }, olderToken })
    expect([said, facts.delay]).toEqual(['could not be asked: How soon a new token is accepted.', undefined])
    const { evidence } = judged('good tokens rejected', { secondTrial: { answer: trial }, olderToken })
    expect(evidence).toBe('2 of 20 GETs with a token that is 4.0 s old')
  })

  test('a path that answers 404 to a good token is told', () => {
    const trial = (status: number) => ({
      answer: { samples: [{ ...sample(true, 20), status }], isClean: true, isRough: false },
    })
    expect(judged('good token', { firstTrial: trial(404) }).said).toMatch(/^seen: A good token gets 404 there/)
    expect(judged('good token', { firstTrial: trial(200) }).said).toBe('undefined: undefined')
  })

  test('a path that rejects every token says nothing', () => {
    const samples = [...atOnce(20), sample(false, 16_000)]
    const { said, evidence } = judged('delay', { secondTrial: { answer: { samples, isClean: false, isRough: false } } })
    expect(said).toBe('could not be asked: How soon a new token is accepted.')
    expect(evidence).toBe('a good token got 401 for 16 s: give another --path')
  })
})

describe('how long tokens live', () => {
  const life = (acceptedMs: number, rejectedMs?: number): Life => ({
    ...{ acceptedMs, rejectedMs, longestPauseMs: 10, end: rejectedMs === undefined ? undefined : REJECTED },
  })
  const judgedLives = (lives: Life[], unused: Unused[] = []) => {
    const answer = { lives, unused, whyNotUnused: undefined, contradicted: 0, asked: 9 }
    const { said, facts } = judged('life', { lives: { answer } })
    return [said, facts.life?.kind]
  }

  test.each<[string, Life[], Unused[], string, string | undefined]>([
    [
      'three that agree',
      [life(950, 1_050), life(990, 1_010), life(985, 1_005)],
      [],
      'between 990 ms and 1.0 s',
      'regular',
    ],
    ['one alone', [life(950, 1_050)], [], 'One token ended between 950 ms and 1.1 s', undefined],
    ['two', [life(950, 1_050), life(990, 1_010)], [], '2 tokens ended', undefined],
    ['three that differ', [life(950, 1_050), life(500, 510), life(1_400, 1_410)], [], 'Lives differ', 'irregular'],
    ['unused ones that end sooner', [life(950, 1_050), life(0, 860), life(0, 390)], [], 'Lives differ', undefined],
    ['none', [life(60_000)], [sample(true, 30_000)], 'No token ended within 60 s', undefined],
    [
      'unused ones that end early',
      [life(60_000)],
      [sample(true, 1_000), sample(false, 2_000), sample(false, 4_000)],
      'A use makes',
      'sliding',
    ],
    [
      'unused ones that end, but not early',
      [life(60_000)],
      [sample(true, 15_000), sample(false, 30_000), sample(false, 50_000)],
      'Unused, a token ended',
      undefined,
    ],
    [
      'one in use, and unused ones that contradict it',
      [life(950, 1_050), life(990, 1_010), life(985, 1_005)],
      [sample(false, 500), sample(true, 700)],
      'Lives differ',
      'irregular',
    ],
  ])('%s', (_, lives, unused, says, kind) => {
    expect(judgedLives(lives, unused)).toEqual([expect.stringContaining(says), kind])
  })

  test('the first life of a token that the endpoint had given before says nothing', () => {
    const answer = { lives: [life(100, 120)], unused: [], whyNotUnused: 'same', contradicted: 0, asked: 9 }
    const { said, facts } = judged('life', { lives: { answer }, isSameToken: { answer: true } })
    expect([said, facts.life]).toEqual([expect.stringMatching(/^could not be asked/), undefined])
  })

  test('what an ended token is answered is known from unused ones, too', () => {
    const ended = (unused: Unused[]) => {
      const answer = { lives: [life(60_000)], unused, whyNotUnused: undefined, contradicted: 0, asked: 9 }
      const { said, evidence } = judged('ended token', { lives: { answer } })
      return [said, evidence]
    }
    const seen = ['seen: A token that has ended gets 401.', '401']
    expect(ended([sample(true, 11_000), sample(false, 23_000)])).toEqual(seen)
    const unasked = 'could not be asked: What a token is answered that has ended.'
    expect(ended([sample(false, 500), sample(true, 700)])).toEqual([unasked, expect.stringMatching(/^none/)])
  })

  test('good tokens that are rejected now and then are told', () => {
    const answer = { lives: [life(60_000)], unused: [], whyNotUnused: undefined, contradicted: 2, asked: 90 }
    expect(judged('good tokens rejected', { lives: { answer } }).evidence).toMatch(/^2 of 90 GETs/)
  })
})

test('a limit is known only if nothing of it was used before', () => {
  const limits = ['X-RateLimit-Limit: 60', 'X-RateLimit-Remaining: 59', 'X-RateLimit-Reset: 30']
  expect(judged('limits', { mints: [{ ...MINT, limits }] }).facts.mintLimit).toEqual({ count: 60, windowMs: 30_000 })
  const used = limits.map((each) => each.replace('59', '12'))
  const { said, facts } = judged('limits', { mints: [{ ...MINT, limits: used }] })
  expect([said, facts.mintLimit]).toEqual(['seen: Answers tell a limit.', undefined])
})
