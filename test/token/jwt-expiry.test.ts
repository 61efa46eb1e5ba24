import { describe, expect, test } from 'vitest'
import { jwtRestMs } from '../../src/token/jwt-expiry.ts'

const ISSUED_AT = Date.UTC(2026, 0, 1)
const NOW_SECONDS = ISSUED_AT / 1_000

function jwt(payload: unknown): string {
  const part = (value: unknown) => Buffer.from(JSON.stringify(value)).toString('base64url')
  return `${part({ alg: 'HS256' })}.${part(payload)}.c2lnbmF0dXJl`
}

test('an end in seconds that lies ahead counts from the issue', () => {
  expect(jwtRestMs(jwt({ exp: NOW_SECONDS + 300 }), ISSUED_AT)).toBe(300_000)
  expect(jwtRestMs(jwt({ exp: NOW_SECONDS + 1.5 }), ISSUED_AT)).toBe(1_500)
})

test('an end in milliseconds is so far ahead that it binds nothing', () => {
  expect(jwtRestMs(jwt({ exp: ISSUED_AT + 300_000 }), ISSUED_AT)).toBeGreaterThan(1e12)
})

describe('no end that could be relied on', () => {
  test.each([
    ['in the past', jwt({ exp: NOW_SECONDS - 1 })],
    ['now', jwt({ exp: NOW_SECONDS })],
    ['closer than two clocks agree', jwt({ exp: NOW_SECONDS + 0.9 })],
    ['a string', jwt({ exp: String(NOW_SECONDS + 300) })],
    ['null', jwt({ exp: null })],
    ['negative', jwt({ exp: -1 })],
    ['beyond all numbers', jwt({}).replace(/\.[^.]+\./, `.${Buffer.from('{"exp":1e999}').toString('base64url')}.`)],
    ['absent', jwt({ iat: NOW_SECONDS })],
    ['in a list', jwt([{ exp: NOW_SECONDS + 300 }])],
    ['no JSON', 'aaaa.bbbb.cccc'],
    ['not three parts', 'opaque'],
    ['empty parts', '..'],
    ['five parts', 'a.b.c.d.e'],
  ])('%s', (_, token) => {
    expect(jwtRestMs(token, ISSUED_AT)).toBeUndefined()
  })
})
