import { brotliCompressSync, gzipSync } from 'node:zlib'
import { describe, expect, test } from 'vitest'
import { AnswerReader } from '../../../src/token/token-endpoint.ts'
import { parseRetryAfter, readTokenReply } from '../../../src/token/token-reply.ts'
import { AccessToken } from '../../../src/token/token-source.ts'
import { fc } from '../../support/properties.ts'
import { ACME, ENDPOINT } from './endpoint-under-test.ts'

const FIELD = ['orgAccessToken']

function meaningOf(status: number, fields: string[], content: string | Uint8Array, tookMs = 0, wallNowMs = 0) {
  const reader = new AnswerReader({ ...ENDPOINT, baseUrl: new URL('https://service.example') })
  return reader.read({ status, fields, content: Buffer.from(content) }, ACME, tookMs, wallNowMs)
}

describe('the token of a success', () => {
  const read = (content: string | Uint8Array, field = FIELD, fields: string[] = []) =>
    readTokenReply({ fields, content: Buffer.from(content) }, field, 0).token

  test.each<[string, string | Uint8Array, string]>([
    ['as specified', '{"orgAccessToken":"abc.DEF-123_~+/="}', 'abc.DEF-123_~+/='],
    ['behind a byte order mark', '\ufeff{"orgAccessToken":"t"}', 't'],
    ['compressed, although nothing asked for it', gzipSync('{"orgAccessToken":"t"}'), 't'],
    ['with white space', ' {\n "orgAccessToken" : "t" } ', 't'],
    ['with members of a later version', '{"expiresIn":60,"orgAccessToken":"t","scope":["a"]}', 't'],
    ['named in another value', '{"hint":"\\"orgAccessToken\\": is below","orgAccessToken":"t"}', 't'],
    ['whose name is a value, too', '{"type":"orgAccessToken","orgAccessToken":"t"}', 't'],
    ['with its name escaped', '{"\\u006frgAccessToken":"t"}', 't'],
    ['whose name stands in another object, too', '{"orgAccessToken":"t","_links":{"orgAccessToken":"x"}}', 't'],
    ['whose name stands in a list, too', '{"a":[{"orgAccessToken":"x"}],"orgAccessToken":"t","b":[["x"],{}]}', 't'],
    ['as long as may be', `{"orgAccessToken":"${'x'.repeat(16 * 1024)}"}`, 'x'.repeat(16 * 1024)],
  ])('%s', (_, text, token) => {
    expect(read(text)).toBe(token)
  })

  describe('no usable token', () => {
    test.each<[string, string | Uint8Array, string, string[]?]>([
      ['nothing', '', 'it has no content'],
      ['HTML', '<html><body>Sign in</body></html>', 'its content is HTML or XML, not JSON'],
      ['text', 'Sign in', 'its content is not JSON'],
      ['an empty object', '{}', 'it has no orgAccessToken'],
      ['null', 'null', 'it has no orgAccessToken'],
      ['a list', '["orgAccessToken"]', 'it has no orgAccessToken'],
      ['null for a token', '{"orgAccessToken":null}', 'orgAccessToken is not text'],
      ['a number for a token', '{"orgAccessToken":12}', 'orgAccessToken is not text'],
      ['an empty token', '{"orgAccessToken":""}', 'orgAccessToken is empty'],
      ['cut off', '{"orgAccessToken":"abc', 'its JSON is cut off'],
      ['the member twice', '{"orgAccessToken":"a","orgAccessToken":"b"}', 'it has orgAccessToken twice'],
      ['the member twice, escaped', '{"orgAccessToken":"a","org\\u0041ccessToken":"a"}', 'it has orgAccessToken twice'],
      ['the member twice, around an object', '{"orgAccessToken":"a","x":{"y":[{}]},"orgAccessToken" : "b"}', 'twice'],
      ['behind a prototype', '{"__proto__":{"orgAccessToken":"t"}}', 'it has no orgAccessToken'],
      ['one level down', '{"data":{"orgAccessToken":"t"}}', 'it has no orgAccessToken'],
      ['with CR LF', '{"orgAccessToken":"a\\r\\nX: y"}', 'orgAccessToken has white space in it'],
      ['with NUL', '{"orgAccessToken":"a\\u0000"}', 'orgAccessToken has characters that no header may carry'],
      ['with a space', '{"orgAccessToken":"a b"}', 'orgAccessToken has white space in it'],
      ['beyond ASCII', '{"orgAccessToken":"tökén"}', 'orgAccessToken has characters that no header may carry'],
      ['too long', `{"orgAccessToken":"${'x'.repeat(16 * 1024 + 1)}"}`, 'orgAccessToken is larger than 16 KiB'],
      ['an error object', '{"error":"incorrect_client_credentials"}', 'its content tells an error'],
      ['an error beside a token', '{"error":{"code":7},"orgAccessToken":"t"}', 'its content tells an error'],
      ['an error code', '{"errcode":40013,"errmsg":"invalid appid"}', 'its content tells an error'],
      ['ok: false', '{"ok":false,"orgAccessToken":"t"}', 'its content tells an error'],
      [
        'a coding that it does not have',
        '{"orgAccessToken":"t"}',
        'its content has a coding',
        ['Content-Encoding', 'br'],
      ],
      ['Brotli', brotliCompressSync('{"orgAccessToken":"t"}'), 'its content has a coding', ['Content-Encoding', 'br']],
      ['gzip, cut', gzipSync('{"orgAccessToken":"t"}').subarray(0, 20), 'its content has a coding'],
    ])('%s', (_, content, reason, fields) => {
      expect(() => read(content, FIELD, fields)).toThrow(reason)
    })

    test.each([
      '{"errcode":0,"error":"","orgAccessToken":"t"}',
      '{"error":null,"ok":true,"orgAccessToken":"t"}',
      '{"error":false,"errcode":{},"orgAccessToken":"t"}',
    ])('%s tells none', (content) => {
      expect(read(content)).toBe('t')
    })
  })

  describe('a member in objects', () => {
    const DATA = ['data', 'token']

    test.each([
      ['{"data":{"token":"t"}}'],
      ['{"token":"x","data":{"data":{"token":"y"},"token":"t","z":{"token":"x"}},"e":{"data":{"token":"x"}}}'],
      ['{"data":{"a":[{"token":"x","token":"x"}],"token":"t"}}'],
    ])('%s', (text) => {
      expect(read(text, DATA)).toBe('t')
    })

    test.each([
      ['{"data":{"token":"a"},"data":{"token":"b"}}'],
      ['{"data":{"token":"a","token":"b"}}'],
      ['{"data":[{"token":"a"}]}'],
      ['[{"data":{"token":"a"}}]'],
      ['{"data":"token"}'],
      ['{"data.token":"a"}'],
      ['{"data":null}'],
      ['{"data":{"to\u0000ken":"a"}}'],
    ])('%s is no token', (text) => {
      expect(() => read(text, DATA)).toThrow()
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
          const meaning = meaningOf(200, [], bytes)
          if (meaning instanceof AccessToken) expect(meaning.reveal()).toMatch(/^[\x21-\x7e]+$/)
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

describe('the end that the answer states', () => {
  const ISSUED_AT = Date.UTC(2026, 0, 1)
  const NOW_SECONDS = ISSUED_AT / 1_000

  function jwt(payload: unknown): string {
    const part = (value: unknown) => Buffer.from(JSON.stringify(value)).toString('base64url')
    return `${part({ alg: 'HS256' })}.${part(payload)}.c2lnbmF0dXJl`
  }

  function lifeOf(reply: unknown, field = FIELD): number {
    return readTokenReply({ fields: [], content: Buffer.from(JSON.stringify(reply)) }, field, ISSUED_AT).statedLifeMs
  }
  const jwtLife = (payload: unknown) => lifeOf({ orgAccessToken: jwt(payload) })

  test('a JWT lives until its exp, whenever it was issued', () => {
    expect(jwtLife({ exp: NOW_SECONDS + 300 })).toBe(300_000)
    expect(jwtLife({ exp: NOW_SECONDS + 1.5 })).toBe(1_500)
    expect(jwtLife({ exp: ISSUED_AT + 300_000 }), 'in milliseconds').toBe(300_000)
    expect(jwtLife({ iat: NOW_SECONDS - 3_300, exp: NOW_SECONDS + 300 }), 'a token that the endpoint kept').toBe(
      300_000,
    )
  })

  test('our own clock counts only if the answer has no Date, or is hardly ahead of it', () => {
    const content = JSON.stringify({ orgAccessToken: jwt({ exp: NOW_SECONDS + 300 }) })
    const date = ['Date', new Date(ISSUED_AT).toUTCString()]
    for (const [offsetMs, isLeft] of [
      [0, 299_000],
      [999, 298_001],
      [1_999, 297_001],
      [2_000, 298_001],
      [-1, 298_001],
      [3_600_000, 298_001],
      [-3_600_000, 298_001],
    ] as const) {
      const dated = meaningOf(200, date, content, 1_000, ISSUED_AT + offsetMs)
      expect(dated, 'shortened by the time of the call').toHaveProperty('statedLifeMs', isLeft)
    }
    expect(meaningOf(200, [], content, 1_000, ISSUED_AT)).toHaveProperty('statedLifeMs', 299_000)
    expect(meaningOf(200, [], content, 300_000, ISSUED_AT)).toHaveProperty('statedLifeMs', 0)
    const late = meaningOf(200, [], content, 1_000, ISSUED_AT + 3_600_000)
    expect(late).toHaveProperty('statedLifeMs', Number.POSITIVE_INFINITY)
  })

  test.each([
    [{ expires_in: 60 }, 60_000],
    [{ expiresIn: '90.5' }, 90_500],
    [{ expires_at: NOW_SECONDS + 60 }, 60_000],
    [{ expires_at: String(NOW_SECONDS + 60) }, 60_000],
    [{ expiresAt: '2026-01-01T00:01:00Z' }, 60_000],
    [{ expiresAt: '2026-01-01t02:01:00.500+02:00' }, 60_500],
    [{ expires_in: 60, expiresAt: '2026-01-01T00:00:30Z' }, 30_000],
    [{ expires_in: 0, expires_at: NOW_SECONDS - 1, expiresIn: 60 }, 60_000],
    [{ expires_at: ISSUED_AT + 60_000 }, 60_000],
    [{ expiresAt: String(ISSUED_AT + 60_000) }, 60_000],
    [{ expires_in: 365 * 86_400 }, 365 * 86_400_000],
    [{ expires_in: 3_155_760_000, expires_at: NOW_SECONDS + 60 }, 60_000],
  ])('the earliest end that lies ahead: %j', (members, lifeMs) => {
    expect(lifeOf({ orgAccessToken: 't', ...members })).toBe(lifeMs)
    expect(lifeOf({ data: { token: 't', ...members } }, ['data', 'token'])).toBe(lifeMs)
    expect(lifeOf({ data: { token: 't' }, ...members }, ['data', 'token'])).toBe(lifeMs)
  })

  test('a JWT and members: the earlier one counts', () => {
    const orgAccessToken = jwt({ exp: NOW_SECONDS + 50 })
    expect(lifeOf({ orgAccessToken, expires_in: 60 })).toBe(50_000)
    expect(lifeOf({ orgAccessToken, expires_in: 40 })).toBe(40_000)
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
      ['in a century', jwt({ exp: NOW_SECONDS + 100 * 31_557_600 })],
      ['of a list', jwt([{ exp: NOW_SECONDS + 300 }])],
      ['no JSON', 'aaaa.bbbb.cccc'],
      ['not three parts', 'opaque'],
      ['five parts', 'a.b.c.d.e'],
    ])('%s', (_, token) => {
      expect(lifeOf({ orgAccessToken: token })).toBe(Number.POSITIVE_INFINITY)
    })

    test.each([
      [{ expires_in: -1 }],
      [{ expires_in: '1h' }],
      [{ expires_in: null }],
      [{ expires_in: [60] }],
      [{ expires_at: '2026-01-01T00:01:00' }],
      [{ expires_at: '2025-12-31T23:59:00Z' }],
      [{ expires_at: 'Thu, 01 Jan 2026 00:01:00 GMT' }],
      [{ expiry: 60 }],
      [{ expires_in: 400 * 86_400 }],
      [{ expires_at: '2126-01-01T00:00:00Z' }],
      [{ other: { expires_in: 60 } }],
    ])('%j', (members) => {
      expect(lifeOf({ orgAccessToken: 't', ...members })).toBe(Number.POSITIVE_INFINITY)
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
    const meaning = meaningOf(429, fields, '', 0, NOW)
    expect(meaning).toMatchObject({ code: 'token_endpoint_rate_limited', retryAfterSeconds })
  })
})

describe('a limit', () => {
  const NOW = Date.UTC(2026, 0, 1, 12, 0, 0)

  test.each([
    [429, [], undefined],
    [403, ['X-RateLimit-Remaining', '0', 'X-RateLimit-Reset', '0'], undefined],
    [503, ['Retry-After', '9'], 9],
    [403, ['RateLimit-Remaining', '0', 'RateLimit-Reset', '12'], 12],
    [429, ['X-RateLimit-Reset', String(NOW / 1_000 + 20)], 20],
    [429, ['X-RateLimit-Reset', String(NOW + 20_000)], 20],
    [429, ['X-RateLimit-Reset', '7', 'Retry-After', '5'], 5],
    [429, ['X-RateLimit-Reset', '86400'], 300],
    [429, ['Retry-After', 'Thu, 01 Jan 2026 14:00:30 GMT', 'Date', 'Thu, 01 Jan 2026 14:00:00 GMT'], 30],
  ])('%d with %j', (status, fields, retryAfterSeconds) => {
    const meaning = meaningOf(status, fields, '', 0, NOW)
    expect(meaning).toMatchObject({ code: 'token_endpoint_rate_limited', retryAfterSeconds })
  })

  test.each([
    [403, ['X-RateLimit-Remaining', '10', 'X-RateLimit-Reset', '60'], 'org_access_refused'],
    [403, ['X-RateLimit-Remaining', '0'], 'org_access_refused'],
    [403, [], 'org_access_refused'],
    [503, ['Retry-After', '0'], 'token_endpoint_unavailable'],
    [500, ['Retry-After', '9'], 'token_endpoint_unavailable'],
  ])('%d with %j is none', (status, fields, code) => {
    expect(meaningOf(status, fields, '', 0, NOW)).toMatchObject({ code })
  })
})
