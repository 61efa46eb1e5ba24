import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { TokenError, type TokenErrorCode } from '../../src/errors.ts'
import type { OrgId } from '../../src/http/org-id.ts'
import { Secret } from '../../src/secret.ts'
import { AppCredentials, SecretRotation, type SecretRotationOptions } from '../../src/token/app-credentials.ts'
import { settled } from './scripted-source.ts'

beforeEach(() => {
  vi.useFakeTimers({ now: 0, toFake: ['setTimeout', 'clearTimeout', 'Date'] })
})
afterEach(() => {
  vi.useRealTimers()
})

const ACME = 'acme' as OrgId
const OLD = new Secret('old')
const NEW = new Secret('new')
const WRONG = new Secret('wrong')

/** The answer of the service to a mint with this secret. */
type Verdicts = Record<string, TokenErrorCode | 'ok'>

function setUp(verdicts: Verdicts, options: Partial<SecretRotationOptions> = {}) {
  const credentials = new AppCredentials('app', OLD)
  const proofs: string[] = []
  const outcomes: string[] = []
  let replaced = 0
  const rotation = new SecretRotation({
    credentials,
    prove: async (candidate, org) => {
      const secret = Buffer.from(candidate.authorization().slice(6), 'base64').toString().slice('app:'.length)
      proofs.push(`${secret} with ${org}`)
      await settled()
      const verdict = verdicts[`${secret} ${org}`] ?? verdicts[secret] ?? 'app_credentials_rejected'
      if (verdict !== 'ok') throw new TokenError(verdict, 'scripted')
    },
    knownOrgs: () => [ACME],
    isRejected: () => false,
    limitedUntil: () => Number.NEGATIVE_INFINITY,
    onReplaced: () => {
      replaced += 1
    },
    observer: { secretReloaded: (outcome) => outcomes.push(outcome) },
    now: () => Date.now(),
    ...options,
  })
  return { rotation, credentials, proofs, outcomes, replacements: () => replaced }
}

async function quiet(): Promise<void> {
  await vi.advanceTimersByTimeAsync(0)
  await settled()
  await vi.advanceTimersByTimeAsync(0)
}

describe('T-TK-32 a changed secret', () => {
  test('takes over after a mint has proved it', async () => {
    const { rotation, credentials, proofs, outcomes, replacements } = setUp({ new: 'ok' })
    rotation.offer(NEW)
    expect(credentials.holds(OLD)).toBe(true)
    await quiet()
    expect(credentials.holds(NEW)).toBe(true)
    expect(proofs).toEqual(['new with acme'])
    expect(outcomes).toEqual(['proved'])
    expect(replacements()).toBe(1)
  })

  test('that is wrong leaves the old one in use, and is reported once, however often it is offered', async () => {
    const { rotation, credentials, outcomes, replacements } = setUp({})
    for (let i = 0; i < 5; i += 1) {
      rotation.offer(WRONG)
      await quiet()
    }
    expect(credentials.holds(OLD)).toBe(true)
    expect(outcomes).toEqual(['rejected'])
    expect(replacements()).toBe(0)
  })

  test('that equals the one in use is ignored', async () => {
    const { rotation, proofs, outcomes } = setUp({ old: 'ok' })
    rotation.offer(new Secret('old'))
    await quiet()
    expect(proofs).toEqual([])
    expect(outcomes).toEqual([])
  })

  test('is replaced by the next one', async () => {
    const { rotation, credentials, outcomes } = setUp({ new: 'ok' })
    rotation.offer(WRONG)
    rotation.offer(NEW)
    await quiet()
    expect(credentials.holds(NEW)).toBe(true)
    expect(outcomes).toEqual(['proved'])
  })

  test('is dropped if the file goes back to the one in use', async () => {
    const { rotation, credentials, outcomes } = setUp({ new: 'ok' })
    rotation.offer(NEW)
    rotation.offer(OLD)
    await quiet()
    expect(credentials.holds(OLD)).toBe(true)
    expect(outcomes).toEqual([])
  })

  test('is tried with another org if one was unlinked, and with three at most', async () => {
    const orgs = ['a', 'b', 'c', 'd'] as OrgId[]
    const unlinked = setUp({ 'new a': 'org_access_refused', 'new b': 'ok' }, { knownOrgs: () => orgs })
    unlinked.rotation.offer(NEW)
    await quiet()
    expect(unlinked.proofs).toEqual(['new with a', 'new with b'])
    expect(unlinked.outcomes).toEqual(['proved'])

    const refused = setUp({ new: 'org_access_refused' }, { knownOrgs: () => orgs })
    refused.rotation.offer(NEW)
    await quiet()
    expect(refused.proofs).toEqual(['new with a', 'new with b', 'new with c'])
    expect(refused.outcomes, 'a refusal of an org proves the credentials').toEqual(['proved'])
  })

  test('is used although the only known org was unlinked', async () => {
    const { rotation, credentials, outcomes } = setUp({ new: 'org_access_refused' })
    rotation.offer(NEW)
    await quiet()
    expect(outcomes).toEqual(['proved'])
    expect(credentials.holds(NEW)).toBe(true)
  })

  test('is used although one org gets a 401 of its own, and refused if all do', async () => {
    const orgs = ['a', 'b', 'c', 'd'] as OrgId[]
    const sick = setUp({ 'new a': 'app_credentials_rejected', 'new b': 'ok' }, { knownOrgs: () => orgs })
    sick.rotation.offer(NEW)
    await quiet()
    expect(sick.outcomes).toEqual(['proved'])

    const unlinked = setUp(
      { 'new a': 'app_credentials_rejected', new: 'org_access_refused' },
      { knownOrgs: () => orgs },
    )
    unlinked.rotation.offer(NEW)
    await quiet()
    expect(unlinked.outcomes).toEqual(['proved'])

    const wrong = setUp({ new: 'app_credentials_rejected' }, { knownOrgs: () => orgs })
    wrong.rotation.offer(NEW)
    await quiet()
    expect(wrong.proofs).toHaveLength(3)
    expect(wrong.outcomes).toEqual(['rejected'])
  })
})

describe('that cannot be proved now', () => {
  test.each([
    'token_endpoint_unavailable',
    'token_endpoint_timeout',
    'token_endpoint_rate_limited',
    'token_response_invalid',
  ] as const)('%s: it is tried again, with growing pauses', async (code) => {
    const verdicts: Verdicts = { new: code }
    const { rotation, credentials, proofs, outcomes } = setUp(verdicts)
    rotation.offer(NEW)
    const counts: number[] = []
    for (const seconds of [0, 1, 2, 4, 8, 16, 30, 30]) {
      await vi.advanceTimersByTimeAsync(seconds * 1_000)
      await quiet()
      counts.push(proofs.length)
    }
    expect(counts).toEqual([1, 2, 3, 4, 5, 6, 7, 8])
    expect(outcomes).toEqual(['undecided'])
    Object.assign(verdicts, { new: 'ok' })
    await vi.advanceTimersByTimeAsync(30_000)
    await quiet()
    expect(credentials.holds(NEW)).toBe(true)
    expect(outcomes).toEqual(['undecided', 'proved'])
  })

  test('no org is known, and the old one has been rejected: it takes over unproved, without a wait', async () => {
    const { rotation, credentials, proofs, outcomes } = setUp({}, { knownOrgs: () => [], isRejected: () => true })
    rotation.offer(NEW)
    await quiet()
    expect(credentials.holds(NEW)).toBe(true)
    expect([proofs, outcomes]).toEqual([[], ['unproved']])
  })

  test('an org is known, and the old one has been rejected: it is proved all the same', async () => {
    const { rotation, credentials, proofs } = setUp({ new: 'ok' }, { isRejected: () => true })
    rotation.offer(WRONG)
    await quiet()
    expect(credentials.holds(OLD)).toBe(true)
    rotation.offer(NEW)
    await quiet()
    expect(credentials.holds(NEW)).toBe(true)
    expect(proofs).toEqual(['wrong with acme', 'new with acme'])
  })

  test('no org is known: it waits for one', async () => {
    const orgs: OrgId[] = []
    const { rotation, credentials, proofs } = setUp({ new: 'ok' }, { knownOrgs: () => orgs })
    rotation.offer(NEW)
    await vi.advanceTimersByTimeAsync(10_000)
    expect(proofs).toEqual([])
    expect(credentials.holds(OLD)).toBe(true)
    orgs.push(ACME)
    await vi.advanceTimersByTimeAsync(10_000)
    await quiet()
    expect(credentials.holds(NEW)).toBe(true)
  })

  test('T-TK-11 during a Retry-After, no call is made', async () => {
    const { rotation, credentials, proofs } = setUp({ new: 'ok' }, { limitedUntil: () => 20_000 })
    rotation.offer(NEW)
    await vi.advanceTimersByTimeAsync(19_999)
    expect(proofs).toEqual([])
    await vi.advanceTimersByTimeAsync(30_000)
    await quiet()
    expect(credentials.holds(NEW)).toBe(true)
  })

  test('close() drops the candidate and its timer', async () => {
    const { rotation, proofs } = setUp({ new: 'token_endpoint_unavailable' })
    rotation.offer(NEW)
    await quiet()
    rotation.close()
    await vi.advanceTimersByTimeAsync(60_000)
    expect(proofs).toHaveLength(1)
    expect(vi.getTimerCount()).toBe(0)
  })
})

describe('the secret in use is rejected', () => {
  test('the proxy looks for a new one, and rejected mints are repeated if there is one', async () => {
    const found = { secret: NEW }
    const { rotation, credentials, outcomes } = setUp(
      { new: 'ok' },
      {
        reread: async () => {
          await settled()
          rotation.offer(found.secret)
        },
      },
    )
    await vi.advanceTimersByTimeAsync(1_000)
    const recovered = rotation.recover(900)
    await quiet()
    expect(await recovered).toBe(true)
    expect(credentials.holds(NEW)).toBe(true)
    expect(outcomes).toEqual(['proved'])
    expect(await rotation.recover(999)).toBe(true)
  })

  test('a call made after the replacement is not repeated', async () => {
    const { rotation } = setUp({ new: 'ok' })
    rotation.offer(NEW)
    await quiet()
    await vi.advanceTimersByTimeAsync(1_000)
    expect(await rotation.recover(500)).toBe(false)
  })

  test('a proof under way is awaited', async () => {
    let rereads = 0
    const { rotation } = setUp(
      { new: 'ok' },
      {
        reread: async () => {
          rereads += 1
        },
      },
    )
    rotation.offer(NEW)
    const recovered = rotation.recover(-1)
    await quiet()
    expect(await recovered).toBe(true)
    expect(rereads).toBe(0)
  })

  test('a candidate that failed its proof is tried again, because the service may know it by now', async () => {
    const verdicts: Verdicts = { new: 'app_credentials_rejected' }
    const { rotation, credentials, outcomes } = setUp(verdicts, { reread: async () => rotation.offer(NEW) })
    rotation.offer(NEW)
    await quiet()
    expect(await rotation.recover(-1)).toBe(false)
    Object.assign(verdicts, { new: 'ok' })
    const recovered = rotation.recover(-1)
    await quiet()
    expect(await recovered).toBe(true)
    expect(credentials.holds(NEW)).toBe(true)
    expect(outcomes).toEqual(['rejected', 'proved'])
  })

  test('if no org is known, the new one takes over unproved, because it cannot be worse', async () => {
    const { rotation, credentials, outcomes } = setUp(
      {},
      { knownOrgs: () => [], reread: async () => rotation.offer(NEW) },
    )
    expect(await rotation.recover(-1)).toBe(true)
    expect(credentials.holds(NEW)).toBe(true)
    expect(outcomes).toEqual(['unproved'])
  })

  test('nothing new, or nothing readable: no repeat', async () => {
    const { rotation } = setUp({}, { reread: () => Promise.reject(new Error('EACCES')) })
    expect(await rotation.recover(-1)).toBe(false)
    expect(await setUp({}).rotation.recover(-1)).toBe(false)
  })
})
