import { describe, expect, test } from 'vitest'
import { jwtLifeMs, meaningOf, parseRetryAfter, readOrgAccessToken } from '../../src/token/token-endpoint.ts'
import { AccessToken } from '../../src/token/token-source.ts'
import { fc } from '../support/properties.ts'

describe('the token of a success', () => {
  const read = (content: string | Uint8Array) => readOrgAccessToken(Buffer.from(content))

  test.each([
    ['as specified', '{"orgAccessToken":"abc.DEF-123_~+/="}', 'abc.DEF-123_~+/='],
    ['behind a byte order mark', '\ufeff{"orgAccessToken":"t"}', 't'],
    ['with white space', ' {\n "orgAccessToken" : "t" } ', 't'],
    ['with members of a later version', '{"expiresIn":60,"orgAccessToken":"t","scope":["a"]}', 't'],
    ['named in another value', '{"hint":"\\"orgAccessToken\\": is below","orgAccessToken":"t"}', 't'],
    ['whose name is a value, too', '{"type":"orgAccessToken","orgAccessToken":"t"}', 't'],
    ['with its name escaped', '{"\\u006frgAccessToken":"t"}', 't'],
    ['as long as may be', `{"orgAccessToken":"${'x'.repeat(16 * 1024)}"}`, 'x'.repeat(16 * 1024)],
  ])('%s', (_, text, token) => {
    expect(read(text)).toBe(token)
  })

  describe('no usable token', () => {
    test.each([
      ['nothing', ''],
      ['HTML', '<html><body>Sign in</body></html>'],
      ['an empty object', '{}'],
      ['null', 'null'],
      ['a list', '["orgAccessToken"]'],
      ['null for a token', '{"orgAccessToken":null}'],
      ['a number for a token', '{"orgAccessToken":12}'],
      ['an empty token', '{"orgAccessToken":""}'],
      ['cut off', '{"orgAccessToken":"abc'],
      ['the member twice', '{"orgAccessToken":"a","orgAccessToken":"b"}'],
      ['the member twice, at two levels', '{"data":{"orgAccessToken" :"a"},"orgAccessToken":"b"}'],
      ['behind a prototype', '{"__proto__":{"orgAccessToken":"t"}}'],
      ['one level down', '{"data":{"orgAccessToken":"t"}}'],
      ['with CR LF', '{"orgAccessToken":"a\\r\\nX: y"}'],
      ['with NUL', '{"orgAccessToken":"a\\u0000"}'],
      ['with a space', '{"orgAccessToken":"a b"}'],
      ['beyond ASCII', '{"orgAccessToken":"tökén"}'],
      ['too long', `{"orgAccessToken":"${'x'.repeat(16 * 1024 + 1)}"}`],
    ])('%s', (_, text) => {
      expect(() => read(text)).toThrow()
    })
  })

  test('for any bytes, there is a failure, or a token that may be in a field', () => {
    fc.assert(
      fc.property(
        fc.oneof(
          fc.uint8Array({ maxLength: 200 }),
          fc.json().map((text) => Buffer.from(text)),
        ),
        (bytes) => {
          const meaning = meaningOf({ status: 200, fields: [], content: Buffer.from(bytes) }, 0, 0)
          if (meaning instanceof AccessToken) expect(meaning.reveal()).toMatch(/^Bearer [\x21-\x7e]+$/)
        },
      ),
    )
  })

  test('a string that may be in a field is returned unchanged, whatever else is in the object', () => {
    const visible = fc.stringMatching(/^[\x21-\x7e]{1,40}$/)
    fc.assert(
      fc.property(visible, fc.dictionary(fc.string(), fc.jsonValue()), (token, others) => {
        fc.pre(!JSON.stringify(others).includes('orgAccessToken'))
        expect(read(JSON.stringify({ ...others, orgAccessToken: token }))).toBe(token)
      }),
    )
  })
})

describe('the end that a JWT states', () => {
  const ISSUED_AT = Date.UTC(2026, 0, 1)
  const NOW_SECONDS = ISSUED_AT / 1_000

  function jwt(payload: unknown): string {
    const part = (value: unknown) => Buffer.from(JSON.stringify(value)).toString('base64url')
    return `${part({ alg: 'HS256' })}.${part(payload)}.c2lnbmF0dXJl`
  }

  test('an end in seconds that lies ahead counts from the issue', () => {
    expect(jwtLifeMs(jwt({ exp: NOW_SECONDS + 300 }), ISSUED_AT)).toBe(300_000)
    expect(jwtLifeMs(jwt({ exp: NOW_SECONDS + 1.5 }), ISSUED_AT)).toBe(1_500)
  })

  test('the life is the greater of exp − iat and exp − Date, because the clock of the issuer may be wrong', () => {
    const behind = jwt({ iat: NOW_SECONDS - 50, exp: NOW_SECONDS + 10 })
    const ahead = jwt({ iat: NOW_SECONDS + 50, exp: NOW_SECONDS + 110 })
    const odd = jwt({ iat: 'now', exp: NOW_SECONDS + 20 })
    expect([behind, ahead, odd].map((token) => jwtLifeMs(token, ISSUED_AT))).toEqual([60_000, 110_000, 20_000])
  })

  test('our own clock counts only if the answer has no Date', () => {
    const content = Buffer.from(JSON.stringify({ orgAccessToken: jwt({ exp: NOW_SECONDS + 300 }) }))
    const dated = { status: 200, fields: ['Date', new Date(ISSUED_AT).toUTCString()], content }
    for (const offsetMs of [0, 3_600_000, -3_600_000]) {
      expect(meaningOf(dated, 1_000, ISSUED_AT + offsetMs)).toHaveProperty('statedLifeMs', 300_000)
    }
    const undated = { ...dated, fields: [] }
    expect(meaningOf(undated, 1_000, ISSUED_AT)).toHaveProperty('statedLifeMs', 300_000)
    expect(meaningOf(undated, 1_000, ISSUED_AT + 3_600_000)).toHaveProperty('statedLifeMs', Number.POSITIVE_INFINITY)
  })

  test('an end in milliseconds is too far ahead to matter', () => {
    expect(jwtLifeMs(jwt({ exp: ISSUED_AT + 300_000 }), ISSUED_AT)).toBeGreaterThan(1e12)
  })

  describe('no end that could be relied on', () => {
    test.each([
      ['in the past', jwt({ exp: NOW_SECONDS - 1 })],
      ['now', jwt({ exp: NOW_SECONDS })],
      ['a string', jwt({ exp: String(NOW_SECONDS + 300) })],
      ['in two parts', `a.${jwt({ exp: NOW_SECONDS + 300 }).split('.')[1]}`],
      ['null', jwt({ exp: null })],
      ['beyond all numbers', jwt({}).replace(/\.[^.]+\./, `.${Buffer.from('{"exp":1e999}').toString('base64url')}.`)],
      ['absent', jwt({ iat: NOW_SECONDS })],
      ['no JSON', 'aaaa.bbbb.cccc'],
      ['not three parts', 'opaque'],
      ['five parts', 'a.b.c.d.e'],
    ])('%s', (_, token) => {
      expect(jwtLifeMs(token, ISSUED_AT)).toBeUndefined()
    })
  })
})

describe('Retry-After', () => {
  const NOW = Date.UTC(2026, 0, 1, 12, 0, 0)

  test.each([
    ['17', 17],
    ['Thu, 01 Jan 2026 12:00:42 GMT', 42],
    ['999999999', 300],
    ['Fri, 01 Jan 2100 00:00:00 GMT', 300],
  ])('%s is %d seconds', (value, seconds) => {
    expect(parseRetryAfter(value, NOW)).toBe(seconds)
  })

  test.each(['', '0', 'Thu, 01 Jan 2026 11:59:00 GMT', 'soon', '-5x', '1.5.2'])('%s is none', (value) => {
    expect(parseRetryAfter(value, NOW)).toBeUndefined()
  })

  test.each([
    [['Retry-After', '17', 'X-Rate-Next', '3'], 17],
    [['X-Hint', 'Retry-After', 'retry-after', '3'], 3],
  ])('in the fields %j: %s', (fields, retryAfterSeconds) => {
    const meaning = meaningOf({ status: 429, fields, content: Buffer.alloc(0) }, 0, NOW)
    expect(meaning).toMatchObject({ code: 'token_endpoint_rate_limited', retryAfterSeconds })
  })
})
