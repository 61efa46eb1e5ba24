import { describe, expect, test, vi } from 'vitest'
import { Callers, type CallersOptions } from '../../src/callers/callers.ts'
import { CLAIMS, credentialOf, encode, makeIssuer, sign } from './issuer.ts'
import { byKey, callerOf, makeCallers, rule } from './make-callers.ts'

describe('a caller by key', () => {
  test('is found by each of its keys, and by nothing else', async () => {
    const callers = makeCallers([rule('billing', byKey('old-key', 'new-key')), rule('reports', byKey('other'))])
    expect((await callerOf(callers, 'old-key'))?.name).toBe('billing')
    expect((await callerOf(callers, 'new-key'))?.name).toBe('billing')
    expect((await callerOf(callers, 'other'))?.name).toBe('reports')
    for (const wrong of ['', 'old-ke', 'old-key ', 'OLD-KEY', 'old-key\u0000', 'billing', '__proto__']) {
      expect(await callerOf(callers, wrong)).toBeUndefined()
    }
  })

  test('needs exactly one field', () => {
    const callers = makeCallers([rule('billing', byKey('key'))])
    expect(callers.identify(undefined, 0, '')).toBeUndefined()
    expect(callers.identify(undefined, 2, 'key')).toBeUndefined()
  })
})

describe('a caller by socket', () => {
  test('is found by its socket, and only without a second credential', () => {
    const callers = makeCallers([
      rule('billing', { kind: 'socket', path: '/run/billing.sock' }),
      rule('reports', byKey('key')),
    ])
    const found = callers.identify('/run/billing.sock', 0, '')
    expect(typeof found === 'object' && found.name).toBe('billing')
    expect(callers.identify('/run/billing.sock', 1, 'key')).toBeUndefined()
    expect(callers.identify('/run/billing.sock', 1, '')).toBeUndefined()
    expect(callers.identify('/run/other.sock', 0, '')).toBeUndefined()
    expect(callers.identify('/run/other.sock', 1, 'key')).toBeUndefined()
  })
})

describe('a caller by JWT', () => {
  test.each(['RS256', 'PS256', 'ES256', 'EdDSA'])('%s is verified', async (alg) => {
    const issuer = await makeIssuer(alg)
    const callers = makeCallers([rule('batch', credentialOf(issuer))])
    expect((await callerOf(callers, await sign(issuer)))?.name).toBe('batch')
  })

  test('is verified once, and remembered until it expires', async () => {
    const issuer = await makeIssuer()
    let now = Date.now()
    const verify = vi.fn<CallersOptions['verify']>(async () => ({ outcome: 'valid', expiresAtMs: now + 1_000 }))
    const callers = new Callers([rule('batch', credentialOf(issuer))], { verify, now: () => now })
    const token = await sign(issuer)
    const together = await Promise.all([callers.verify(token), callers.verify(token)])
    expect(together.map((caller) => caller?.name)).toEqual(['batch', 'batch'])
    expect(callers.identify(undefined, 1, token)).toBe(together[0])
    expect(verify).toHaveBeenCalledTimes(1)
    now += 1_000
    expect(callers.identify(undefined, 1, token)).toBe('unverified')
  })

  test('10,000 verified tokens are remembered; the least recently used is dropped first', async () => {
    const verify: CallersOptions['verify'] = async () => ({ outcome: 'valid', expiresAtMs: 1_000 })
    const issuer = await makeIssuer()
    const callers = new Callers([rule('batch', credentialOf(issuer))], { verify, now: () => 0 })
    const [header, payload] = (await sign(issuer)).split('.')
    const tokenOf = (index: number) => `${header}.${payload}.${Buffer.from(`signature-${index}`).toString('base64url')}`
    for (let index = 0; index < 10_000; index++) await callers.verify(tokenOf(index))
    expect(callers.identify(undefined, 1, tokenOf(0))).toMatchObject({ name: 'batch' })
    await callers.verify(tokenOf(10_000))
    expect(callers.identify(undefined, 1, tokenOf(0))).toMatchObject({ name: 'batch' })
    expect(callers.identify(undefined, 1, tokenOf(1))).toBe('unverified')
  })

  test('another token with the signature of a remembered one is verified', async () => {
    const issuer = await makeIssuer()
    const callers = makeCallers([rule('batch', credentialOf(issuer))])
    const token = await sign(issuer)
    expect((await callerOf(callers, token))?.name).toBe('batch')
    const [head = '', , signature = ''] = token.split('.')
    const forged = `${head}.${encode({ ...CLAIMS, exp: 9_999_999_999 })}.${signature}`
    expect(callers.identify(undefined, 1, forged)).toBe('unverified')
    expect(await callers.verify(forged)).toBeUndefined()
    expect(callers.identify(undefined, 1, signature)).toBeUndefined()
    expect((await callerOf(callers, token))?.name).toBe('batch')
  })

  test('after a change of the key set, every token is verified again', async () => {
    const issuer = await makeIssuer()
    const callers = makeCallers([rule('batch', credentialOf(issuer))])
    const token = await sign(issuer)
    expect((await callerOf(callers, token))?.name).toBe('batch')
    callers.forgetTokens()
    expect(callers.identify(undefined, 1, token)).toBe('unverified')
  })

  test('a key that was withdrawn during a verification does not stay remembered', async () => {
    const issuer = await makeIssuer()
    let settle: () => void = () => undefined
    const verify: CallersOptions['verify'] = () =>
      new Promise((resolve) => {
        settle = () => resolve({ outcome: 'valid', expiresAtMs: Date.now() + 60_000 })
      })
    const callers = new Callers([rule('batch', credentialOf(issuer))], { verify })
    const token = await sign(issuer)
    const verifying = callers.verify(token)
    callers.forgetTokens()
    settle()
    await verifying
    expect(callers.identify(undefined, 1, token)).toBe('unverified')
  })

  test('a token that fails is never remembered', async () => {
    const callers = makeCallers([rule('batch', credentialOf(await makeIssuer()))])
    const forged = await sign(await makeIssuer())
    expect(await callerOf(callers, forged)).toBeUndefined()
    expect(callers.identify(undefined, 1, forged)).toBe('unverified')
  })
})

describe('the rules of a caller', () => {
  test('permit nothing by default; a trailing * stands for any ending', () => {
    const callers = makeCallers([
      rule('none', byKey('a'), { orgs: [] }),
      rule('some', byKey('b'), {
        orgs: [
          { id: 'acme', isPrefix: false },
          { id: 'globex-', isPrefix: true },
        ],
      }),
      rule('all', byKey('c')),
    ])
    const allowed = (key: string) => {
      const caller = callers.identify(undefined, 1, key)
      if (typeof caller !== 'object') throw new Error('not a caller')
      return ['acme', 'acme2', 'Acme', 'globex-1', 'globex-', 'globex', '*'].filter((org) => caller.mayNameOrg(org))
    }
    expect(allowed('a')).toEqual([])
    expect(allowed('b')).toEqual(['acme', 'globex-1', 'globex-'])
    expect(allowed('c')).toHaveLength(7)
  })
})
