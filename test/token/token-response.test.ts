import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { readOrgAccessToken } from '../../src/token/token-response.ts'

const read = (text: string) => readOrgAccessToken(Buffer.from(text))

test.each([
  ['as specified', '{"orgAccessToken":"abc.DEF-123_~+/="}', 'abc.DEF-123_~+/='],
  ['with white space', ' {\n "orgAccessToken" : "t" } ', 't'],
  ['with members of a later version', '{"expiresIn":60,"orgAccessToken":"t","scope":["a"]}', 't'],
  ['named in another value', '{"hint":"\\"orgAccessToken\\": is below","orgAccessToken":"t"}', 't'],
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
    ['a string', '"orgAccessToken"'],
    ['null for a token', '{"orgAccessToken":null}'],
    ['a number for a token', '{"orgAccessToken":12}'],
    ['a list for a token', '{"orgAccessToken":["t"]}'],
    ['an empty token', '{"orgAccessToken":""}'],
    ['cut off', '{"orgAccessToken":"abc'],
    ['a byte order mark', '\ufeff{"orgAccessToken":"t"}'],
    ['the member twice', '{"orgAccessToken":"a","orgAccessToken":"b"}'],
    ['the member twice, once escaped', '{"orgAccessToken":"a","\\u006frgAccessToken":"b"}'],
    ['behind a prototype', '{"__proto__":{"orgAccessToken":"t"}}'],
    ['one level down', '{"data":{"orgAccessToken":"t"}}'],
    ['with CR LF', '{"orgAccessToken":"a\\r\\nX: y"}'],
    ['with NUL', '{"orgAccessToken":"a\\u0000"}'],
    ['with a space', '{"orgAccessToken":"a b"}'],
    ['beyond ASCII', '{"orgAccessToken":"tökén"}'],
    ['too long', `{"orgAccessToken":"${'x'.repeat(16 * 1024 + 1)}"}`],
  ])('%s', (_, text) => {
    expect(read(text)).toBeUndefined()
  })
})

test('whatever the bytes, it neither throws nor gives out what may not stand in a field', () => {
  fc.assert(
    fc.property(
      fc.oneof(
        fc.uint8Array({ maxLength: 200 }),
        fc.json().map((text) => Buffer.from(text)),
      ),
      (bytes) => {
        const token = readOrgAccessToken(Buffer.from(bytes))
        expect(token ?? 'none').toMatch(/^[\x21-\x7e]+$/)
      },
    ),
  )
})

test('a string that may stand in a field is given out as it came, whatever else is in the object', () => {
  const visible = fc.stringMatching(/^[\x21-\x7e]{1,40}$/)
  fc.assert(
    fc.property(visible, fc.dictionary(fc.string(), fc.jsonValue()), (token, others) => {
      fc.pre(!JSON.stringify(others).includes('orgAccessToken'))
      expect(read(JSON.stringify({ ...others, orgAccessToken: token }))).toBe(token)
    }),
  )
})
