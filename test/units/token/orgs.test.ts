import { describe, expect, test } from 'vitest'
import * as realClock from '../../../src/clock.ts'
import { TokenError } from '../../../src/errors.ts'
import type { OrgId } from '../../../src/org-id.ts'
import type { Clock } from '../../../src/token/org.ts'
import { Orgs, type OrgsOptions } from '../../../src/token/orgs.ts'
import { RequestToken } from '../../../src/token/request-token.ts'
import type { AccessToken } from '../../../src/token/token-source.ts'
import { collectGarbage } from '../../support/collect-garbage.ts'
import { ORGS_OPTIONS } from '../../support/orgs-options.ts'
import { ScriptedSource, settled } from './scripted-source.ts'
import { tokenUser } from './simulation/simulation.ts'

/** Time as a number that the test owns. */
class ManualClock {
  #nowMs: number

  constructor(nowMs: number) {
    this.#nowMs = nowMs
  }

  readonly now = (): number => this.#nowMs

  advance(byMs: number): void {
    this.#nowMs += byMs
  }
}

const ACME = 'acme' as OrgId
const GLOBEX = 'globex' as OrgId

function setUp({ clock: given, ...options }: Partial<Omit<OrgsOptions, 'clock'> & { clock: Partial<Clock> }> = {}) {
  const clock = new ManualClock(1_000_000)
  const source = new ScriptedSource(clock.now)
  const evicted: string[] = []
  const orgs = new Orgs(
    {
      ...ORGS_OPTIONS,
      mintTimeoutMs: 60_000,
      clock: {
        ...realClock,
        now: clock.now,
        runningTime: clock.now,
        day: clock.now,
        random: () => 0.999,
        ...given,
      },
      observer: { tokenEvicted: (org) => evicted.push(org) },
      ...options,
    },
    source,
  )
  /** A request, which shows its tokens. */
  const request = (org = ACME) => {
    const user = tokenUser()
    const shown: AccessToken[] = []
    const withToken = (token: AccessToken) => String(shown.push(token))
    return { token: new RequestToken(orgs, org, { withToken }, user), user, shown }
  }
  const obtain = async (org = ACME, { token, user, shown } = request(org)) => {
    await token.take()
    await token.authorize()
    return { token: shown.at(-1), result: user.record.token }
  }
  return { orgs, source, clock, evicted, request, obtain }
}

async function codeOf(promise: Promise<unknown>): Promise<string> {
  const error = await promise.catch((reason: unknown) => reason)
  if (error instanceof TokenError) return error.limit ?? error.code
  throw new Error('no TokenError')
}

describe('one mint per Org', () => {
  test('all who wait share it', async () => {
    const { orgs, source, obtain } = setUp()
    const lookups = Array.from({ length: 200 }, () => obtain())
    const token = await source.last.issue()
    const results = (await Promise.all(lookups)).map((lookup) => {
      expect(lookup.token).toBe(token)
      return lookup.result
    })
    expect(source.mints).toHaveLength(1)
    expect(source.last.options.reason).toBe('cold')
    expect(results.filter((result) => result === 'miss')).toHaveLength(1)
    expect(results.filter((result) => result === 'joined')).toHaveLength(199)
    expect(await obtain()).toEqual({ token, result: 'hit' })
    expect(orgs.waiting).toBe(0)
  })

  test('one that fails fails all of them, and the next request mints again', async () => {
    const { source, obtain } = setUp()
    const waiting = [obtain(), obtain()]
    await source.last.fail('token_endpoint_unavailable')
    expect(await Promise.all(waiting.map(codeOf))).toEqual(['token_endpoint_unavailable', 'token_endpoint_unavailable'])
    const again = obtain()
    expect(source.mints).toHaveLength(2)
    await source.last.issue()
    expect((await again).result).toBe('miss')
  })

  test('Orgs that wait at the same time each get their own outcome, in whatever order', async () => {
    const { source, obtain } = setUp()
    const [acme, globex, initech] = [obtain(), obtain(GLOBEX), obtain('initech' as OrgId)]
    const [ofAcme, ofGlobex, ofInitech] = source.mints
    const forGlobex = await ofGlobex?.issue()
    await ofInitech?.fail('org_access_refused')
    const forAcme = await ofAcme?.issue()
    expect([(await acme).token, (await globex).token]).toEqual([forAcme, forGlobex])
    expect(await codeOf(initech)).toBe('org_access_refused')
  })

  test('more Orgs at once than the cache holds: each gets its token', async () => {
    const { orgs, source, evicted, obtain } = setUp({ maxOrgs: 2 })
    const names = Array.from({ length: 10 }, (_, i) => `org-${i}` as OrgId)
    const lookups = names.map((org) => obtain(org))
    for (const mint of source.mints) await mint.issue(`token-of-${mint.org}`)
    const tokens = (await Promise.all(lookups)).map(({ token }) => token?.reveal())
    expect(tokens).toEqual(names.map((org) => `token-of-${org}`))
    expect([source.mints.length, orgs.tokenCount, evicted.length]).toEqual([10, 2, 8])
  })
})

describe('ahead of a stated end', () => {
  test.each([
    [0, 0.9],
    [0.999, 0.95],
  ])(
    'one mint begins in the last tenth, jittered for each token (%d), and the others get the present one',
    async (random, share) => {
      const { source, clock, obtain } = setUp({ clock: { random: () => random } })
      const first = obtain()
      const token = await source.last.issue(undefined, clock.now() + 100_000)
      await first
      clock.advance(100_000 * share - 100)
      expect(await obtain()).toEqual({ token, result: 'hit' })
      clock.advance(200)
      expect(await obtain()).toEqual({ token, result: 'refreshing' })
      for (let i = 0; i < 100; i += 1) expect(await obtain()).toEqual({ token, result: 'hit' })
      expect(source.mints).toHaveLength(2)
      expect(source.last.options.reason).toBe('refresh')
      await source.last.fail('token_endpoint_unavailable') // nobody waits for it, so nobody hears of it
      expect(await obtain()).toEqual({ token, result: 'refreshing' })
    },
  )

  test('no mint for an Org that is refused', async () => {
    const { orgs, source, clock, obtain } = setUp()
    const first = obtain()
    await source.last.issue(undefined, clock.now() + 100_000)
    await first
    clock.advance(98_000)
    orgs.noteTrouble(ACME, new TokenError('org_access_refused', 'scripted'))
    expect((await obtain()).result).toBe('hit')
    expect(source.mints).toHaveLength(1)
  })
})

describe('waiting', () => {
  test('a request waits no longer than the limit; the token that comes later serves the next one', async () => {
    const { source, obtain } = setUp({ mintTimeoutMs: 20 })
    const first = obtain()
    expect(await codeOf(first)).toBe('token_endpoint_timeout')
    const token = await source.last.issue()
    expect(await obtain()).toEqual({ token, result: 'hit' })
  })

  test('the time for which the process stood still is not charged', async () => {
    const waits: number[] = []
    const within = <T>(ms: number, work?: Promise<T>) => {
      waits.push(ms)
      return work ?? Promise.resolve(undefined)
    }
    const { source, clock, request, obtain } = setUp({ clock: { within, runningTime: () => 0 } })
    const asked = request()
    const first = obtain(ACME, asked)
    clock.advance(50_000)
    await source.last.issue()
    await first
    clock.advance(10_000)
    const repeat = asked.token.judge({ status: 401, rawFields: [] })
    await source.last.issue()
    await repeat
    expect(waits).toEqual([60_000, 60_000])
  })

  test('a call is awaited as long as anybody is still there', async () => {
    const { source, request } = setUp()
    const [one, other] = [request(), request()]
    const waiting = [one.token.take(), other.token.take()]
    const { awaitedBy } = source.last.options
    expect(awaitedBy?.()).toBeDefined()
    one.user.isOver = true
    expect(awaitedBy?.()).toBeDefined()
    other.user.isOver = true
    expect(awaitedBy?.()).toBeUndefined()
    await source.last.issue()
    await Promise.all(waiting)
  })

  test('so many requests may wait, half of them for one Org; one that ends makes room', async () => {
    const { orgs, source, request, obtain } = setUp({ maxWaiting: 40 })
    const requests = Array.from({ length: 20 }, () => request())
    const waiting: unknown[] = requests.map(({ token }) => token.take())
    expect(await codeOf(obtain())).toBe('waiting requests of one Org')
    requests[0]?.token.end()
    waiting.push(obtain())
    for (let i = 0; i < 20; i += 1) waiting.push(obtain(`org-${i}` as OrgId))
    expect(await codeOf(obtain(GLOBEX))).toBe('waiting requests')
    for (const mint of source.mints) await mint.issue()
    await Promise.all(waiting)
    expect(orgs.waiting).toBe(0)
  })
})

test('the state of an Org is one word: the first that fits', async () => {
  const { orgs, source, clock, request, obtain } = setUp()
  const state = () => orgs.peek(ACME)?.state
  const seen = [state()]
  const asked = request()
  const first = obtain(ACME, asked)
  seen.push(state())
  await source.last.issue(undefined, clock.now() + 60_000)
  await first
  seen.push(state())
  clock.advance(6_000)
  seen.push(state())
  await asked.token.authorize()
  asked.token.judge({ status: 401, rawFields: [] })
  seen.push(state())
  await source.last.issue(undefined, clock.now() + 60_000)
  seen.push(state())
  clock.advance(61_000)
  seen.push(state())
  orgs.noteTrouble(ACME, new TokenError('token_endpoint_unavailable', 'scripted'))
  seen.push(state())
  orgs.noteTrouble(ACME, new TokenError('org_access_refused', 'scripted'))
  seen.push(state())
  orgs.purge(ACME)
  orgs.of(ACME)
  const shown = [undefined, 'minting', 'young', 'fresh', 'rejected', 'young', 'ended', 'paused', 'refused', 'none']
  expect([...seen, state()]).toEqual(shown)
})

test('a token that was rejected stays so, until a request is accepted that was sent later', async () => {
  const { orgs, source, clock, request } = setUp()
  const state = () => orgs.peek(ACME)?.state
  const first = request().token.take()
  await source.last.issue()
  await first
  clock.advance(6_000)
  const send = (isKept = true) => {
    const { token, user } = request()
    Object.assign(user, { isKept })
    token.take()
    token.authorize()
    return (status: number) => token.judge({ status, rawFields: [] })
  }
  const [answerEarly, answerUpload] = [send(), send(false)]
  clock.advance(1_000)
  answerUpload(401)
  answerEarly(200)
  expect(state()).toBe('rejected')
  clock.advance(1_000)
  send()(200)
  expect(state()).toBe('fresh')
})

describe('purging', () => {
  test('drops the token, and the mint under way serves only those who wait', async () => {
    const { orgs, source, obtain } = setUp()
    const first = obtain()
    await source.last.issue()
    await first
    expect(orgs.purge(ACME)).toEqual([ACME])
    const second = obtain()
    expect(orgs.purge()).toEqual([])
    const token = await source.last.issue()
    expect((await second).token).toBe(token)
    expect(orgs.tokenCount).toBe(0)
  })

  test('a mint that a purge overtakes is not taken for the next one', async () => {
    const { orgs, source, obtain } = setUp()
    const before = obtain()
    const [mint] = source.mints
    orgs.purge(ACME)
    const after = obtain()
    await mint?.issue()
    await before
    expect(orgs.tokenCount).toBe(0)
    const token = await source.last.issue()
    expect([(await after).token, await obtain()]).toEqual([token, { token, result: 'hit' }])
  })

  test('a request whose token was purged, and then rejected, is repeated with a new one', async () => {
    const { orgs, source, clock, request, obtain } = setUp()
    const asked = request()
    const first = obtain(ACME, asked)
    await source.last.issue()
    await first
    clock.advance(10_000)
    await asked.token.authorize()
    orgs.purge()
    const next = asked.token.judge({ status: 401, rawFields: [] })
    await settled()
    const newToken = await source.last.issue()
    await next
    await asked.token.authorize()
    expect(asked.shown.at(-1)).toBe(newToken)
  })
})

test('an Org keeps nothing of the request that named it first in memory', async () => {
  const { orgs, source, obtain } = setUp()
  const heapBytes = () => {
    collectGarbage()
    return process.memoryUsage().heapUsed
  }
  const before = heapBytes()
  for (let i = 0; i < 1_000; i++) {
    // Flat, as the parser makes it.
    const head = Buffer.from(`x-org-id: an-org-with-a-long-id-${i}\r\n`.padEnd(20_000, '.')).toString('latin1')
    const lookup = obtain(head.slice(10, head.indexOf('\r')) as OrgId)
    await source.last.issue()
    await lookup
    source.mints.length = 0
  }
  expect(orgs.tokenCount).toBe(1_000)
  expect(heapBytes() - before).toBeLessThan(5_000_000)
})
