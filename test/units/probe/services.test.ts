/** What `probe` says of services with habits of all kinds, on a clock of the test: never more than it saw. */

import { expect, test } from 'vitest'
import { renderPage } from '../../../src/probe/report.ts'
import type { Reply } from '../../support/origin-connection.ts'
import { resetNow } from '../../support/reset-now.ts'
import { startService } from '../../support/service.ts'
import { ProbeClock, runProbe } from './run-probe.ts'

const [SECOND, MINUTE] = [1_000, 60_000]

interface Issued {
  readonly text: string
  /** The first of the Org has 0. */
  readonly index: number
  readonly at: number
  usedAt: number
}

interface Habits {
  /** When this token ends, in ms after its mint. */
  readonly lifeMs?: (token: Issued, tokens: readonly Issued[]) => number
  /** It begins anew with each use. */
  readonly slides?: boolean
  /** How long a new token is not known to the back end of this connection. */
  readonly delayMs?: (token: Issued, connection: number, get: number) => number
  /** The answer to a token that is not good; 401 otherwise. */
  readonly rejection?: (token: Issued | undefined) => Reply
  /** Comes in place of the answer, whatever the token is; `ms` counts from the first request. */
  readonly trouble?: (get: number, ms: number) => Reply | 'reset' | undefined
  readonly mintTrouble?: (mint: number) => Reply | 'reset' | undefined
  readonly gives?: (tokens: readonly Issued[], fresh: string) => string
  readonly members?: (text: string) => object
  readonly goodStatus?: number
  readonly mintMs?: number
}

async function probed(habits: Habits, { wait, interruptAfterMs }: { wait?: string; interruptAfterMs?: number } = {}) {
  const clock = new ProbeClock()
  const startedAt = clock.ms
  if (interruptAfterMs !== undefined) clock.interruptAt = startedAt + interruptAfterMs
  const tokens: Issued[] = []
  const connections: unknown[] = []
  let [gets, mints] = [0, 0]
  const isGood = (token: Issued, connection: number) => {
    const ageMs = clock.ms - token.at
    const lifeMs = habits.lifeMs?.(token, tokens) ?? 24 * 60 * MINUTE
    const livesFrom = habits.slides === true ? token.usedAt : token.at
    return ageMs >= (habits.delayMs?.(token, connection, gets) ?? 0) && clock.ms - livesFrom < lifeMs
  }
  await using service = await startService({
    acceptsAnyToken: true,
    mint: ({ org, request }) => {
      clock.ms += habits.mintMs ?? 20
      mints++
      const trouble = habits.mintTrouble?.(mints)
      if (trouble === 'reset') return resetNow(request.connection.socket)
      if (trouble !== undefined) return trouble
      if (org !== 'acme') return { status: 403 }
      const fresh = `token-${tokens.length}-${Math.random().toString(36).slice(2)}-of-many-letters`
      const text = habits.gives?.(tokens, fresh) ?? fresh
      tokens.push({ text, index: tokens.length, at: clock.ms, usedAt: clock.ms })
      const content = JSON.stringify(habits.members?.(text) ?? { orgAccessToken: text })
      return { fields: ['Content-Type', 'application/json'], content }
    },
    script: (request, connection) => {
      if (!connections.includes(connection)) connections.push(connection)
      clock.ms += 5
      gets++
      const trouble = habits.trouble?.(gets, clock.ms - startedAt)
      if (trouble === 'reset') return resetNow(connection.socket)
      if (trouble !== undefined) return trouble
      const token = tokens.find(({ text }) => request.values('authorization').join() === `Bearer ${text}`)
      if (token === undefined || !isGood(token, connections.indexOf(connection))) {
        return habits.rejection?.(token) ?? { status: 401 }
      }
      token.usedAt = clock.ms
      return { status: habits.goodStatus ?? 200 }
    },
  })
  const { report, finding, exitCode } = await runProbe(service, { clock, ...(wait !== undefined && { wait }) })
  expect(report.mints).toBeLessThanOrEqual(20)
  expect(report.gets).toBeLessThanOrEqual(200)
  const page = renderPage(report)
  return { page, settings: report.settings, notes: report.notes, switches: report.sandbox, finding, exitCode }
}

const JUST = (status: number) => () => ({ status })
const oneLive: Habits['lifeMs'] = ({ index }, tokens) => (index === tokens.length - 1 ? 60 * MINUTE : 0)

/** `asked` is `--wait`; the texts must be part of the findings. */
const SERVICES: Readonly<
  Record<string, { habits: Habits; wait?: string; says: Readonly<Record<string, string>>; settings?: object }>
> = {
  'tokens of one life': {
    habits: { lifeMs: () => 20 * MINUTE },
    wait: '60m',
    says: {
      'life in use': 'seen: A token in use ended when it was 19 min to 21 min old. (used every',
      'life left alone': 'seen: A token that was left alone ended when it was 18 min to 22 min old.',
      'ended token': 'seen: A token that has ended gets 401.',
      'one live token': 'not seen: A new token does not end the one before within 3.0 s.',
      delay: 'not seen: No connection rejected a new token. (at first 20 of 20',
    },
    settings: { lifetime: expect.stringMatching(/^1[01]\d\ds$/) },
  },
  'a life that is longer than the wait': {
    habits: { lifeMs: () => 20 * MINUTE },
    wait: '10m',
    says: {
      'life in use': 'not seen: No token in use ended within 600 s.',
      'life left alone': 'not seen: A token that was left alone did not end within 600 s. (not used for',
      'ended token': 'could not be asked:  (no token is known to have ended)',
    },
  },
  'a life that a second token would need more time for': {
    habits: { lifeMs: () => 20 * MINUTE },
    wait: '30m',
    says: { 'life in use': 'seen: ', 'life left alone': 'could not be asked:  (a second life takes --wait 2' },
  },
  'lives that differ': {
    habits: { lifeMs: ({ index }) => (index % 2 === 0 ? 10 : 25) * MINUTE },
    wait: '60m',
    says: { 'life in use': 'seen: A token in use ended', 'life left alone': 'seen: ' },
  },
  'lives that a use extends': {
    habits: { lifeMs: () => 8 * MINUTE, slides: true },
    wait: '60m',
    says: {
      'life in use': 'not seen: No token in use ended within 60 min.',
      'life left alone': 'seen: A token that was left alone ended when it was 5 ms to 60 min old. (not used for 60 min',
    },
  },
  'a delay that differs by back end': {
    habits: { delayMs: (_, __, get) => (get % 3) * SECOND, lifeMs: () => 20 * MINUTE },
    wait: '60m',
    says: {
      delay: 'seen: A new token was rejected until',
      'life in use': 'seen: A token in use ended when it was',
      'one live token': 'not seen: ',
    },
    settings: { lifetime: expect.any(String) },
  },
  'a delay of ten seconds': {
    habits: { delayMs: () => 10 * SECOND },
    wait: '1m',
    says: { delay: 'seen: A new token was rejected until', 'life in use': 'not seen: No token in use ended' },
    settings: { settleTime: expect.stringMatching(/^2\ds$/) },
  },
  'a delay at a quarter of the back ends': {
    habits: { delayMs: (_, connection) => (connection % 4 === 3 ? 2 * SECOND : 0) },
    says: { delay: 'at first 15 of 20 connections accepted it, 5 rejected it; from' },
  },
  'one live token': {
    habits: { lifeMs: oneLive },
    wait: '10m',
    says: {
      'one live token': 'seen: A new token ends the one before. (3 times',
      'ended token': 'seen: A token that has ended gets 401.',
      'life in use': 'not seen: No token in use ended within 600 s.',
      'life left alone': 'could not be asked:  (a new token may end the one before)',
    },
  },
  'one live token, after a moment': {
    habits: {
      lifeMs: ({ index }, tokens) => {
        const next = tokens[index + 1]
        return next === undefined ? 60 * MINUTE : next.at - (tokens[index]?.at ?? 0) + SECOND
      },
    },
    says: { 'one live token': 'seen: A new token ends the one before.' },
  },
  'one live token that back ends come to know late': {
    habits: { lifeMs: oneLive, delayMs: () => 2 * SECOND },
    says: { 'one live token': 'seen: ', delay: 'seen: A new token was rejected until' },
  },
  'two live tokens': {
    habits: { lifeMs: ({ index }, tokens) => (index >= tokens.length - 2 ? 60 * MINUTE : 0) },
    wait: '10m',
    says: { 'one live token': 'not seen: ', 'life in use': 'not seen: ', 'life left alone': 'not seen: ' },
  },
  'lives of a second': {
    habits: { lifeMs: () => SECOND },
    says: { 'one live token': 'could not be asked:  (' },
  },
  'the same token again': {
    habits: { gives: (tokens, fresh) => tokens[0]?.text ?? fresh },
    wait: '1h',
    says: {
      'same token': 'seen: A second mint gives the same token again.',
      delay: 'could not be asked:  (the endpoint gives the same token again)',
      'one live token': 'could not be asked:  (the endpoint gives the same token again)',
      'life in use': 'could not be asked:  (the endpoint gives the same token again)',
    },
  },
  'ends told by 403': {
    habits: { lifeMs: oneLive, rejection: JUST(403) },
    says: { 'ended token': 'seen: A token that has ended gets 403.' },
    settings: { rejectedStatuses: [401, 403] },
  },
  'ends told by 404, of a path that answers 401 to a made-up token': {
    habits: { lifeMs: () => 20 * MINUTE, rejection: (token) => ({ status: token === undefined ? 401 : 404 }) },
    wait: '60m',
    says: { 'ended token': 'seen: A token that has ended gets 404.', 'life in use': 'seen: A token in use ended' },
    settings: { lifetime: expect.any(String) },
  },
  'ends told by a redirect: never proposed': {
    habits: { lifeMs: oneLive, rejection: JUST(302) },
    says: {
      'ended token': 'seen: A token that has ended gets 302.',
      'made-up token': 'seen: A made-up token gets 302.',
    },
  },
  '503 for five minutes': {
    habits: { trouble: (_, ms) => (ms > 5 * MINUTE && ms < 10 * MINUTE ? { status: 503 } : undefined) },
    wait: '20m',
    says: { 'life in use': 'not seen: No token in use ended within 20 min.', 'ended token': 'could not be asked' },
  },
  'a reset now and then': {
    habits: { trouble: (get) => (get % 7 === 0 ? 'reset' : undefined) },
    wait: '20m',
    says: {
      'life in use': 'not seen: No token in use ended within 20 min.',
      'life left alone': 'not seen: ',
      delay: 'not seen: No connection rejected a new token.',
      'one live token': 'not seen: ',
    },
  },
  '401 for all tokens for five minutes': {
    habits: { trouble: (_, ms) => (ms > 5 * MINUTE && ms < 10 * MINUTE ? { status: 401 } : undefined) },
    wait: '20m',
    says: { 'life in use': 'not seen: ', 'ended token': 'could not be asked:  (no token is known to have ended)' },
  },
  '401 for each fifth request': {
    habits: { trouble: (get) => (get % 5 === 0 ? { status: 401 } : undefined) },
    wait: '20m',
    says: {
      delay: 'could not be asked:  (4 of 20 connections rejected an older token, too)',
      'one live token': 'not seen: ',
      'life in use': 'not seen: ',
      'ended token': 'could not be asked:  (no token is known to have ended)',
    },
  },
  '503 to all GETs': {
    habits: { trouble: JUST(503) },
    says: {
      'no token': 'could not be asked:  (503)',
      'made-up token': 'could not be asked:  (503)',
      delay: 'could not be asked',
    },
  },
  'a limit of the GETs': {
    habits: { trouble: (get) => (get > 10 ? { status: 429, fields: ['Retry-After', '60'] } : undefined) },
    says: {
      limits: 'seen: A limit was met after 3 mints and',
      'one live token': 'could not be asked:  (the service told a limit)',
      delay: 'could not be asked:  (',
    },
  },
  'a limit of the mints': {
    habits: { mintTrouble: (mint) => (mint > 1 ? { status: 429, fields: ['Retry-After', '60'] } : undefined) },
    says: {
      limits: 'seen: A limit was met after 2 mints',
      'same token': 'could not be asked:  (a mint brought no token: 429)',
      'unknown Org': 'could not be asked:  (the token endpoint told a limit)',
    },
  },
  'mints that fail now and then': {
    habits: {
      mintTrouble: (mint) => ['reset' as const, { status: 500 }, undefined][mint % 3],
      lifeMs: () => 20 * MINUTE,
    },
    says: { 'token endpoint': 'seen: POST', 'same token': 'not seen: A second mint gives another token.' },
  },
  'mints that take their time': {
    habits: { mintMs: 6 * SECOND },
    says: { 'token endpoint': 'seen: POST' },
    settings: { mintTimeout: '12s' },
  },
  'another path than a good token opens': {
    habits: { goodStatus: 404 },
    says: {
      'good token': 'could not be asked:  (--path got 404 with a new token, 1',
      delay: 'could not be asked:  (--path got 404',
      'same token': 'not seen: ',
    },
  },
  'a path that any token opens': {
    habits: { rejection: JUST(200) },
    says: {
      'made-up token': 'not seen: A made-up token is not rejected.',
      delay: 'could not be asked:  (the path accepts a made-up token, too: give another --path)',
    },
  },
  'a stated end that has passed': {
    habits: { members: (orgAccessToken) => ({ orgAccessToken, expires_in: -30 }) },
    says: { 'stated end': 'not seen: The answer states no end that lies ahead, within a year. (expires_in: in -30 s' },
  },
  'a stated end in a century': {
    habits: { members: (orgAccessToken) => ({ orgAccessToken, expires_in: 3_155_760_000 }) },
    says: { 'stated end': 'not seen: The answer states no end that lies ahead, within a year. (expires_in: in ' },
  },
  'a token in another member': {
    habits: { members: (access_token) => ({ access_token }) },
    says: {
      'token endpoint': 'not seen: POST',
      answer: 'seen: The token is the member access_token. (members: access_token)',
    },
    settings: { field: 'access_token' },
  },
  'another member than the token that looks like one': {
    habits: { members: () => ({ trace: 'a-word-of-many-letters' }), rejection: JUST(403) },
    says: { answer: 'not seen: The member trace may be the token: no request was accepted with it. (members: trace)' },
  },
  'an error with status 200': {
    habits: { members: () => ({ error: 'incorrect_client_credentials' }) },
    says: {
      'token endpoint': 'not seen: POST',
      answer: 'could not be asked:  (no token came; members: error)',
      'good token': 'could not be asked:  (a mint brought no token: 200, JSON, its content tells an error)',
    },
  },
  'an error with status 200 beside a token': {
    habits: { members: (orgAccessToken) => ({ ok: false, orgAccessToken }) },
    says: { answer: 'could not be asked:  (no token came; members: ok, orgAccessToken)' },
  },
  'a made-up Org that is refused with status 200': {
    habits: { mintTrouble: (mint) => (mint === 3 ? { content: '{"error":"no_such_org"}' } : undefined) },
    says: {
      'unknown Org': 'seen: An Org with a made-up id is refused with 200 and no token. (200, its content tells an',
    },
  },
  'tokens that end before the end that they state': {
    habits: { lifeMs: () => 20 * MINUTE, members: (orgAccessToken) => ({ orgAccessToken, expires_in: 3_600 }) },
    wait: '60m',
    says: { 'stated end': 'seen: A token states that it ends in 60 min.' },
    settings: { lifetime: expect.any(String) },
  },
  'tokens that end as they state': {
    habits: { lifeMs: () => 20 * MINUTE, members: (orgAccessToken) => ({ orgAccessToken, expires_in: 1_200 }) },
    wait: '60m',
    says: { 'life left alone': 'seen: ' },
  },
}

test.each(Object.entries(SERVICES))('%s', async (_, { habits, wait, says, settings = {} }) => {
  const found = await probed(habits, wait === undefined ? {} : { wait })
  const missing = Object.entries(says).filter(
    ([about, text]) =>
      !found.finding(about).startsWith(text) && !(text.startsWith('at first') && found.finding(about).includes(text)),
  )
  expect(missing.map(([about]) => found.finding(about))).toEqual([])
  expect(found.settings).toEqual(settings)
  expect(found.exitCode).toBe(found.finding('answer').startsWith('seen') ? 0 : 1)
})

test('a life that was seen once is told, and then nothing says that the defaults fit', async () => {
  const { notes, settings, page } = await probed({ lifeMs: () => 40 * SECOND }, { wait: '1m' })
  expect(settings).toEqual({})
  expect(notes).toEqual([expect.stringMatching(/^A token was rejected at an age of 4\d s, and others may live longer/)])
  expect(page).toContain('# No setting follows for sure.')
})

test('a redirect is named in a note; so is one live token', async () => {
  const { notes } = await probed({ lifeMs: oneLive, rejection: JUST(302) })
  expect(notes).toEqual([
    expect.stringContaining('docs/fleet.md'),
    expect.stringMatching(/^A token that has ended gets 302/),
  ])
})

test('Ctrl-C prints what was found', async () => {
  const { finding, exitCode } = await probed({}, { wait: '60m', interruptAfterMs: 30 * MINUTE })
  expect(finding('life in use')).toMatch(/^not seen: No token in use ended within \d\d min.*the probe was interrupted/)
  expect(finding('life left alone')).toBe('could not be asked:  (the probe was interrupted)')
  expect(finding('one live token')).toMatch(/^not seen: /)
  expect(exitCode).toBe(0)
  const early = await probed({}, { interruptAfterMs: 1_500 })
  expect(early.finding('delay')).toMatch(/^not seen: /)
  expect(early.finding('one live token')).toBe('could not be asked:  (the probe was interrupted)')
})
