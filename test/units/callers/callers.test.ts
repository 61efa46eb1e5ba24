import { describe, expect, onTestFinished, test, vi } from 'vitest'
import { Callers } from '../../../src/callers/callers.ts'
import { namesOf } from '../../../src/listener/client-certificate.ts'
import { byJwt, CLAIMS, encode, makeIssuer, sign } from './issuer.ts'
import { ANY, byKey, callerOf, makeCallers, outcomeOf, rule } from './make-callers.ts'

describe('a caller by certificate', () => {
  const callers = makeCallers([
    rule('batch', { certificate: 'spiffe://example.org/ns/jobs/sa/batch' }),
    rule('reports', { certificate: 'dns:reports.jobs.svc' }),
    rule('billing', byKey('key')),
  ])
  const by = (names: readonly string[], ...keys: string[]) =>
    callers.identify({ callerSocket: undefined, certificateNames: names }, keys.length, keys.at(-1) ?? '')

  test('is found by one of its names, and by no other spelling', () => {
    expect(by(['spiffe://example.org/ns/jobs/sa/batch', 'dns:pod-7'])).toMatchObject({ name: 'batch' })
    expect(by(['dns:reports.jobs.svc'])).toMatchObject({ name: 'reports' })
    for (const name of [
      'spiffe://example.org/ns/jobs/sa/batch/',
      'spiffe://EXAMPLE.org/ns/jobs/sa/batch',
      'spiffe://example.org/ns/jobs/sa/batc%68',
      'dns:x.reports.jobs.svc',
      '__proto__',
    ]) {
      expect(by([name])).toBe('unknown certificate')
    }
  })

  test('is refused with a second credential; a certificate of nobody leaves the key to decide', () => {
    expect(by(['dns:reports.jobs.svc'], 'key')).toBe('several credentials')
    expect(by([], 'key', 'key')).toBe('several credentials')
    expect(by(['dns:mesh.example'], 'key')).toMatchObject({ name: 'billing' })
  })

  test.each([
    ['URI:spiffe://a.example/b, DNS:Pod-7.example', ['spiffe://a.example/b', 'dns:pod-7.example']],
    // A wildcard would be the name of many.
    ['DNS:*.jobs.svc, DNS:jobs.svc', ['dns:jobs.svc']],
    ['URI:spiffe://a.example/b, URI:spiffe://a.example/c, DNS:x', ['dns:x']],
    // A separator inside a name must not begin another name (CVE-2021-44532).
    ['DNS:"a.example, DNS:reports.jobs.svc"', ['dns:a.example, dns:reports.jobs.svc']],
    ['URI:"spiffe://a.example/b, DNS:x"', ['spiffe://a.example/b, DNS:x']],
    ['URI:dns:reports.jobs.svc', []],
    ['IP Address:10.0.0.1, DNS:x', ['dns:x']],
    ['othername:UPN:u@x, DNS:x', ['dns:x']],
    // Nobody knows what the part says that Node cannot read.
    ['URI:spiffe://a.example/b, othername:<unsupported>', []],
    ['URI:spiffe://a.example/b, X400Name:<unsupported>, URI:spiffe://a.example/c', []],
    ['URI:spiffe://a.example/b, "', []],
    [undefined, []],
  ])('the names in %s', (subjectAltName, names) => {
    expect(namesOf({ subjectAltName }).names).toEqual(names)
  })
})

describe('a caller by JWT', () => {
  test.each(['RS256', 'RS512', 'PS256', 'PS384', 'ES256', 'ES384', 'ES512', 'EdDSA', 'Ed25519'])(
    '%s is verified',
    async (alg) => {
      const issuer = await makeIssuer(alg)
      const callers = makeCallers([rule('batch', byJwt(issuer))])
      expect((await callerOf(callers, await sign(issuer)))?.name).toBe('batch')
    },
  )

  test('EdDSA and Ed25519 are two names of one algorithm', async () => {
    const issuer = await makeIssuer('EdDSA')
    const callers = makeCallers([rule('batch', byJwt(issuer))])
    expect((await callerOf(callers, await sign(issuer, { header: { alg: 'Ed25519' } })))?.name).toBe('batch')
  })

  test('a refusal says what is wrong', async () => {
    const issuer = await makeIssuer()
    const callers = makeCallers([rule('batch', byJwt(issuer)), rule('other', byJwt(issuer, 'other-audience'))])
    const outcomeWith = async (options: Parameters<typeof sign>[1]) => outcomeOf(callers, await sign(issuer, options))
    expect(await outcomeWith({ claims: { iss: 'x' } })).toBe('unknown issuer')
    expect(await outcomeWith({ claims: { sub: 'x' } })).toBe('unknown subject')
    expect(await outcomeWith({ claims: { aud: 'x' } })).toBe('wrong audience')
    expect(await outcomeWith({ claims: { aud: [CLAIMS.aud, 'other-audience'] } })).toBe('token of several callers')
    expect(await outcomeWith({ header: { kid: 'x' } })).toBe('unknown key id')
    expect(await outcomeWith({ expiresIn: -1 })).toBe('expired')
    expect(await outcomeWith({ expiresIn: -60 })).toBe('expired')
    expect(await outcomeWith({ claims: { nbf: 9_999_999_999 } })).toBe('not valid yet')
    expect(await outcomeOf(callers, await sign(await makeIssuer()))).toBe('wrong signature')
    expect(await outcomeOf(callers, `${encode({ alg: 'HS256' })}.${encode(CLAIMS)}.AA`)).toBe('wrong algorithm')
    expect(await outcomeOf(callers, 'a.b.c')).toBe('malformed token')
    expect(await outcomeOf(callers, 'some-key')).toBe('unknown key')
  })

  test('is verified once, and remembered until it expires', async () => {
    const issuer = await makeIssuer()
    vi.useFakeTimers({ toFake: ['Date'] })
    onTestFinished(() => void vi.useRealTimers())
    const verify = vi.fn(async () => Date.now() + 1_000)
    const callers = new Callers([rule('batch', byJwt(issuer))], verify)
    const token = await sign(issuer)
    const caller = await callers.verify(token)
    expect(caller).toMatchObject({ name: 'batch' })
    expect(callers.identify(ANY, 1, token)).toBe(caller)
    expect(verify).toHaveBeenCalledTimes(1)
    vi.setSystemTime(Date.now() + 1_000)
    expect(callers.identify(ANY, 1, token)).toBe('unverified')
  })

  test('10,000 verified tokens are remembered; the least recently used is dropped first', async () => {
    const issuer = await makeIssuer()
    const callers = new Callers([rule('batch', byJwt(issuer))], async () => Date.now() + 60_000)
    const [header, payload] = (await sign(issuer)).split('.')
    const tokenOf = (index: number) => `${header}.${payload}.${Buffer.from(`signature-${index}`).toString('base64url')}`
    for (let index = 0; index < 10_000; index++) await callers.verify(tokenOf(index))
    expect(callers.identify(ANY, 1, tokenOf(0))).toMatchObject({ name: 'batch' })
    await callers.verify(tokenOf(10_000))
    expect(callers.identify(ANY, 1, tokenOf(0))).toMatchObject({ name: 'batch' })
    expect(callers.identify(ANY, 1, tokenOf(1))).toBe('unverified')
  })

  test('another token with the signature of a remembered one is verified', async () => {
    const issuer = await makeIssuer()
    const callers = makeCallers([rule('batch', byJwt(issuer))])
    const token = await sign(issuer)
    expect((await callerOf(callers, token))?.name).toBe('batch')
    const [head = '', , signature = ''] = token.split('.')
    const forged = `${head}.${encode({ ...CLAIMS, exp: 9_999_999_999 })}.${signature}`
    expect(callers.identify(ANY, 1, forged)).toBe('unverified')
    expect(await callers.verify(forged)).toBe('wrong signature')
    expect(callers.identify(ANY, 1, forged)).toBe('unverified')
    expect(callers.identify(ANY, 1, signature)).toBe('unknown key')
    expect((await callerOf(callers, token))?.name).toBe('batch')
  })

  test('a key that was withdrawn during a verification does not stay remembered', async () => {
    const issuer = await makeIssuer()
    let settle: (() => void) | undefined
    const verify = () =>
      new Promise<number>((resolve) => {
        settle = () => resolve(Date.now() + 60_000)
      })
    const callers = new Callers([rule('batch', byJwt(issuer))], verify)
    const token = await sign(issuer)
    const verifying = callers.verify(token)
    await vi.waitFor(() => expect(settle).toBeDefined())
    callers.forgetTokens()
    settle?.()
    await verifying
    expect(callers.identify(ANY, 1, token)).toBe('unverified')
  })
})
