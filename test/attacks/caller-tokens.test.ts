/**
 * Attacks on the JWT of a caller. Each test forges a token in a way that has worked against other verifiers: without a
 * signature, with the public key as an HMAC secret, with a key of the attacker inside, with an unknown extension, with a
 * wrong key id, with a second audience, outside its time, huge or malformed.
 */

import { createHmac, createPrivateKey, createPublicKey, sign as signBytes } from 'node:crypto'
import { exportPKCS8, exportSPKI, importJWK } from 'jose'
import { describe, expect, test } from 'vitest'
import { parseKeySet } from '../../src/callers/jwt.ts'
import { byJwt, CLAIMS, encode, type Issuer, makeIssuer, sign } from '../units/callers/issuer.ts'
import { ANY, callerOf, makeCallers, rule } from '../units/callers/make-callers.ts'

const now = () => Math.floor(Date.now() / 1_000)
const PAYLOAD = { ...CLAIMS, exp: now() + 600 }

function callersOf(issuer: Issuer) {
  return makeCallers([rule('batch', byJwt(issuer))])
}

describe('no signature', () => {
  test.each(['none', 'None', 'NONE', 'nOnE', '', undefined])('alg %j', async (alg) => {
    const callers = callersOf(await makeIssuer())
    const head = encode({ alg, kid: 'key-ES256' })
    for (const token of [
      `${head}.${encode(PAYLOAD)}.`,
      `${head}.${encode(PAYLOAD)}.AA`,
      `${head}.${encode(PAYLOAD)}`,
    ]) {
      expect(await callerOf(callers, token)).toBeUndefined()
    }
  })
})

describe('the public key as the secret of an HMAC', () => {
  test.each(['HS256', 'HS384', 'HS512'])('%s', async (alg) => {
    const issuer = await makeIssuer('RS256')
    const callers = callersOf(issuer)
    const publicKey = await importJWK(issuer.publicJwk)
    if (publicKey instanceof Uint8Array) throw new Error('not a public key')
    const spki = await exportSPKI(publicKey)
    for (const secret of [spki, spki.trim(), issuer.jwks, issuer.publicJwk.n ?? '']) {
      const signed = `${encode({ alg, kid: issuer.publicJwk.kid })}.${encode(PAYLOAD)}`
      const mac = createHmac(`sha${alg.slice(2)}`, secret)
        .update(signed)
        .digest('base64url')
      expect(await callerOf(callers, `${signed}.${mac}`)).toBeUndefined()
    }
  })

  test('a symmetric key in the set is not used', () => {
    const keys = [{ kty: 'oct', k: 'c2VjcmV0', alg: 'HS256' }]
    expect(() => parseKeySet(JSON.stringify({ keys }))).toThrow('no public key')
  })
})

describe('a key inside the token', () => {
  test.each(['jwk', 'jku', 'x5u', 'x5c'])('%s', async (member) => {
    const issuer = await makeIssuer()
    const attacker = await makeIssuer()
    const value = {
      jwk: attacker.publicJwk,
      jku: 'https://attacker.example/jwks.json',
      x5u: 'https://attacker.example/cert.pem',
      x5c: ['MIIB'],
    }[member]
    for (const kid of [issuer.publicJwk.kid, 'attacker', undefined]) {
      const token = await sign(attacker, { header: { [member]: value, kid } })
      expect(await callerOf(callersOf(issuer), token)).toBeUndefined()
    }
  })

  test('is ignored in a token with a good signature', async () => {
    const issuer = await makeIssuer()
    const token = await sign(issuer, { header: { jwk: issuer.publicJwk, jku: 'https://attacker.example' } })
    expect((await callerOf(callersOf(issuer), token))?.name).toBe('batch')
  })
})

describe('an extension that must be understood', () => {
  test.each([{ crit: ['exp'], exp: 1 }, { crit: ['b64'], b64: false }, { crit: [] }])('%j', async (header) => {
    const issuer = await makeIssuer()
    const signed = `${encode({ alg: 'ES256', kid: issuer.publicJwk.kid, ...header })}.${encode(PAYLOAD)}`
    const key = createPrivateKey(await exportPKCS8(issuer.privateKey))
    const signature = signBytes('sha256', Buffer.from(signed), { key, dsaEncoding: 'ieee-p1363' })
    expect(await callerOf(callersOf(issuer), `${signed}.${signature.toString('base64url')}`)).toBeUndefined()
  })
})

describe('a wrong key id', () => {
  test('only the key of that id is tried', async () => {
    const [first, second] = [await makeIssuer('ES256', 'first'), await makeIssuer('ES256', 'second')]
    const both = { ...first, jwks: JSON.stringify({ keys: [first.publicJwk, second.publicJwk] }) }
    const callers = callersOf(both)
    expect((await callerOf(callers, await sign(second)))?.name).toBe('batch')
    expect(await callerOf(callers, await sign(second, { header: { kid: 'first' } }))).toBeUndefined()
    expect(await callerOf(callers, await sign(first, { header: { kid: 'third' } }))).toBeUndefined()
    expect(await callerOf(callers, await sign(first, { header: { kid: '__proto__' } }))).toBeUndefined()
  })

  test('without an id, the only fitting key is used; if two fit, none', async () => {
    const [first, second] = [await makeIssuer('ES256', 'first'), await makeIssuer('ES256', 'second')]
    const token = await sign(first, { header: { kid: undefined } })
    expect((await callerOf(callersOf(first), token))?.name).toBe('batch')
    const both = { ...first, jwks: JSON.stringify({ keys: [first.publicJwk, second.publicJwk] }) }
    expect(await callerOf(callersOf(both), token)).toBeUndefined()
  })

  test('a key is not used for another algorithm', async () => {
    const issuer = await makeIssuer('RS256')
    const token = `${encode({ alg: 'PS256', kid: issuer.publicJwk.kid })}.${encode(PAYLOAD)}`
    const key = createPrivateKey(await exportPKCS8(issuer.privateKey))
    const signature = signBytes('sha256', Buffer.from(token), { key, padding: 6, saltLength: 32 })
    expect(await callerOf(callersOf(issuer), `${token}.${signature.toString('base64url')}`)).toBeUndefined()
  })
})

describe('claims', () => {
  test.each([
    { iss: 'https://issuer.example/' },
    { iss: 'https://ISSUER.example' },
    { iss: ['https://issuer.example'] },
    { iss: undefined },
    { aud: 'org-access-proxy2' },
    { aud: [] },
    { aud: undefined },
    { aud: { 0: 'org-access-proxy' } },
    { sub: 'system:serviceaccount:jobs:batch2' },
    { sub: ['system:serviceaccount:jobs:batch'] },
    { sub: undefined },
    { exp: 'tomorrow' },
    { nbf: 'yesterday' },
  ])('%j is refused', async (claims) => {
    const issuer = await makeIssuer()
    expect(await callerOf(callersOf(issuer), await sign(issuer, { claims }))).toBeUndefined()
  })

  test('one of several audiences is enough', async () => {
    const issuer = await makeIssuer()
    const token = await sign(issuer, { claims: { aud: ['api', CLAIMS.aud] } })
    expect((await callerOf(callersOf(issuer), token))?.name).toBe('batch')
  })

  test('the token of another issuer with the same names is refused', async () => {
    const [issuer, other] = [await makeIssuer(), { ...(await makeIssuer()), issuer: 'https://other.example' }]
    const callers = makeCallers([rule('one', byJwt(issuer)), rule('two', byJwt(other))])
    expect(await callerOf(callers, await sign(other))).toBeUndefined()
    expect((await callerOf(callers, await sign(other, { claims: { iss: other.issuer } })))?.name).toBe('two')
  })
})

describe('time, with 30 seconds for the clock of an issuer that is ahead', () => {
  test.each([
    ['without exp', { expiresIn: undefined }, false],
    ['valid in 20 s', { claims: { nbf: now() + 20 } }, true],
    ['valid in 2 min', { claims: { nbf: now() + 120 } }, false],
  ])('%s', async (_, options, isAccepted) => {
    const issuer = await makeIssuer()
    expect((await callerOf(callersOf(issuer), await sign(issuer, options))) !== undefined).toBe(isAccepted)
  })
})

describe('huge and malformed tokens', () => {
  test.each([
    '...',
    '..',
    'eyJ.eyJ.eyJ',
    `${encode([])}.${encode([])}.AA`,
    `${encode(null)}.${encode(null)}.AA`,
    `${encode('x')}.${encode(7)}.AA`,
    `${encode({ alg: 'ES256' })}.${encode(PAYLOAD)}.AA.AA.AA`,
    `${encode({ alg: 'ES256' })}.{}.AA`,
    `${encode({ alg: ['ES256'] })}.${encode(PAYLOAD)}.AA`,
  ])('%s', async (token) => {
    expect(await callerOf(callersOf(await makeIssuer()), token)).toBeUndefined()
  })

  test('a token of more than 8 KiB is refused without parsing, even with a good signature', async () => {
    const issuer = await makeIssuer()
    const token = await sign(issuer, { claims: { padding: 'x'.repeat(8_192) } })
    const callers = callersOf(issuer)
    expect(callers.identify(ANY, 1, token)).toBe('unknown key')
  })
})

test('a key set keeps only the members for verification, and drops private ones', async () => {
  const issuer = await makeIssuer('RS256')
  const privateJwk = createPrivateKey(await exportPKCS8(issuer.privateKey)).export({ format: 'jwk' })
  const { keys } = parseKeySet(JSON.stringify({ keys: [{ ...privateJwk, kid: 'a', alg: 'RS256', use: 'sig' }] }))
  expect(Object.keys(keys[0] ?? {}).sort()).toEqual(['alg', 'e', 'kid', 'kty', 'n'])
  expect(createPublicKey({ key: { ...keys[0] }, format: 'jwk' }).type).toBe('public')
})
