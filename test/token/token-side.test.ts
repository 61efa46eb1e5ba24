/** Cache, guard and endpoint together, with a scripted service on a port of its own. */

import { describe, expect, test } from 'vitest'
import { TokenError } from '../../src/errors.ts'
import type { OrgId } from '../../src/http/org-id.ts'
import { MintGuard, type MintGuardOptions } from '../../src/token/mint-guard.ts'
import { TokenCache, type TokenCacheOptions } from '../../src/token/token-cache.ts'
import { Gate } from '../support/changes.ts'
import type { Reply } from '../support/origin-connection.ts'
import { type Service, startService } from '../support/service.ts'
import { ACME, EndpointUnderTest, GLOBEX } from './endpoint-under-test.ts'

class TokenSide implements AsyncDisposable {
  readonly #client: EndpointUnderTest
  readonly cache: TokenCache

  constructor(service: Service, options: Partial<TokenCacheOptions & MintGuardOptions> = {}) {
    this.#client = new EndpointUnderTest(service)
    const guard = new MintGuard(
      { mintTimeoutMs: 5_000, mintConcurrency: 32, mintRate: 10_000, ...options },
      this.#client.endpoint,
    )
    this.cache = new TokenCache(
      {
        maxOrgs: 1_000,
        settleTimeMs: 5_000,
        lifetimeMs: 300_000,
        learns: true,
        rejectedStatuses: [401],
        rejectedCooldownMs: 10_000,
        refusalTtlMs: 5_000,
        mintTimeoutMs: 5_000,
        looksFarAhead: true,
        ...options,
      },
      guard,
    )
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.cache.purgeAll()
    await this.#client[Symbol.asyncDispose]()
  }
}

async function codeOf(promise: Promise<unknown>): Promise<string> {
  const error = await promise.catch((reason: unknown) => reason)
  return error instanceof TokenError ? error.code : 'none'
}

describe('one mint per org', () => {
  test('ten thousand at once: one mint', async () => {
    const start = new Gate()
    await using service = await startService({
      mint: async (mint) => {
        await start.pass()
        return mint.issue()
      },
    })
    await using side = new TokenSide(service)
    const leases = Array.from({ length: 10_000 }, () => side.cache.obtain(ACME, { kind: 'repeatable' }))
    await service.origin.waitFor((origin) => origin.requests.length > 0, 'the mint')
    start.open()
    const tokens = new Set((await Promise.all(leases)).map((lease) => lease.token))
    expect(tokens.size).toBe(1)
    expect(service.tokens.mints).toHaveLength(1)
  })

  test('two places in the cache, ten cold orgs at once: each gets its own token, and none is minted twice', async () => {
    await using service = await startService()
    await using side = new TokenSide(service, { maxOrgs: 2 })
    const orgs = Array.from({ length: 10 }, (_, i) => `org-${i}` as OrgId)
    const leases = await Promise.all(
      orgs.flatMap((org) => [
        side.cache.obtain(org, { kind: 'repeatable' }),
        side.cache.obtain(org, { kind: 'repeatable' }),
      ]),
    )
    const holders = leases.map(({ token }) => service.tokens.orgOf(token.reveal().slice('Bearer '.length)))
    expect(holders).toEqual(orgs.flatMap((org) => [org, org]))
    expect(service.tokens.mints).toHaveLength(10)
    expect(side.cache.size).toBe(2)
  })
})

test('a slow mint of one org delays no other', async () => {
  const slow = new Gate()
  await using service = await startService({
    mint: async (mint) => {
      if (mint.org === ACME) await slow.pass()
      return mint.issue()
    },
  })
  await using side = new TokenSide(service)
  const ofAcme = side.cache.obtain(ACME, { kind: 'repeatable' })
  await service.origin.waitFor((origin) => origin.requests.length > 0, 'the slow mint')
  for (let i = 0; i < 100; i += 1) await side.cache.obtain(`org-${i}` as OrgId, { kind: 'repeatable' })
  expect(service.tokens.mints).toHaveLength(101)
  slow.open()
  expect((await ofAcme).result).toBe('miss')
})

describe('an unusable token is not kept', () => {
  test.each<[string, Reply]>([
    ['HTML', { content: '<html></html>' }],
    ['an empty object', { content: '{}' }],
    ['cut off', { content: '{"orgAccessToken":"abc' }],
    ['two of them', { content: '{"orgAccessToken":"a","orgAccessToken":"b"}' }],
  ])('%s', async (_, reply) => {
    await using service = await startService({ mint: () => reply })
    await using side = new TokenSide(service, { mintTimeoutMs: 300 })
    expect(await codeOf(side.cache.obtain(ACME, { kind: 'repeatable' }))).toBe('token_response_invalid')
    expect(side.cache.size).toBe(0)
    service.tokens.script = (mint) => mint.issue()
    expect((await side.cache.obtain(GLOBEX, { kind: 'repeatable' })).result).toBe('miss')
  })
})

test('requests do not notice a passing failure of the endpoint', async () => {
  await using service = await startService({
    mint: (mint) => (service.tokens.mints.length < 3 ? { status: 503 } : mint.issue()),
  })
  await using side = new TokenSide(service)
  expect((await side.cache.obtain(ACME, { kind: 'repeatable' })).result).toBe('miss')
  expect(service.tokens.mints).toHaveLength(3)
})
