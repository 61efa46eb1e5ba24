/**
 * The attack: a head within the size limit that takes extremely long to process, before anything is checked. A name of 15,900
 * underscores took half a second, and a handshake of 15,500 empty fields 22 seconds.
 *
 * Every pass over a head has to be linear. The worst heads are measured at the size limit and at a sixteenth of it: linear
 * work grows by 16, and by up to 70 where the large head no longer fits a cache. Quadratic work grows by 256.
 */

import { describe, expect, test } from 'vitest'
import { admit } from '../../src/gateway/admission.ts'
import { linksThrough } from '../../src/gateway/targets.ts'
import { headOf, RULES } from '../support/admission-rules.ts'
import { headOfResponse } from '../support/received-response.ts'

const LIMIT_BYTES = 16 * 1024
const FACTOR = 16
const MOST_GROWTH = 128

const repeated = (fields: readonly string[], bytes: number) => {
  const size = fields.join('').length + 2 * fields.length
  return Array.from({ length: Math.floor(bytes / size) }, () => fields).flat()
}
const numbered = (bytes: number) => Array.from({ length: Math.floor(bytes / 8) }, (_, i) => [`n${i}`, '']).flat()
const names = (bytes: number) => Array.from({ length: Math.floor(bytes / 6) }, (_, i) => `n${i}`).join(',')
const HANDSHAKE = [
  'Connection', 'Upgrade', 'Upgrade', 'websocket', 'Sec-WebSocket-Key', 'dGhlIHNhbXBsZSBub25jZQ==', 'Sec-WebSocket-Version', '13',
] // biome-ignore format: pairs

/** All processing of a head before the request is sent. */
function check(fields: readonly string[], target: string): void {
  const head = headOf('GET', target, ['Host', 'localhost', 'X-Org-Id', 'acme', ...fields])
  admit(head, RULES, () => 'id')
}

function fastest(work: () => void, times: number): number {
  let best = Number.POSITIVE_INFINITY
  for (let i = 0; i < times; i++) {
    const startedAt = performance.now()
    work()
    best = Math.min(best, performance.now() - startedAt)
  }
  return best
}

function growth(work: (bytes: number) => () => void): number {
  const small = work(LIMIT_BYTES / FACTOR)
  const large = work(LIMIT_BYTES)
  for (let i = 0; i < 20; i++) small() // compiled by now
  let least = Number.POSITIVE_INFINITY
  // On a busy machine, each of ten runs may be interrupted. Quadratic work stays quadratic in every measurement.
  for (let attempt = 0; attempt < 5 && least >= MOST_GROWTH; attempt++) {
    least = Math.min(least, fastest(large, 10) / fastest(small, 50))
  }
  return least
}

describe('the head of a request', () => {
  test.each<[string, (bytes: number) => readonly string[]]>([
    ['a name of underscores', (bytes) => ['_'.repeat(bytes), '1']],
    ['a name of underscores between letters', (bytes) => [`a${'_'.repeat(bytes)}b`, '1']],
    ['names with underscores', (bytes) => repeated(['_a_', ''], bytes)],
    [
      'Connection that names as many fields as there are',
      (bytes) => ['Connection', names(bytes / 2), ...numbered(bytes / 2)],
    ],
    ['many lines of Connection', (bytes) => repeated(['Connection', 'x'], bytes)],
    ['Connection full of commas', (bytes) => ['Connection', ','.repeat(bytes)]],
    ['Connection full of blanks', (bytes) => ['Connection', `a${' '.repeat(bytes)}b`]],
    ['a handshake of empty fields of one name', (bytes) => [...HANDSHAKE, ...repeated(['a', ''], bytes)]],
    ['a handshake of empty fields of two spellings', (bytes) => [...HANDSHAKE, ...repeated(['a', '', 'A', ''], bytes)]],
    ['many keys of a handshake', (bytes) => [...HANDSHAKE, ...repeated(['Sec-WebSocket-Key', 'x'], bytes)]],
    ['Via of one word', (bytes) => ['Via', 'a'.repeat(bytes)]],
    ['Via of blanks', (bytes) => ['Via', `1.1 a${' '.repeat(bytes)}b`]],
    ['Via of commas', (bytes) => ['Via', ',a '.repeat(bytes / 3)]],
    ['one long value', (bytes) => ['X', 'a'.repeat(bytes)]],
  ])('%s', (_, fields) => {
    expect(growth((bytes) => () => check(fields(bytes), '/v2/x'))).toBeLessThan(MOST_GROWTH)
  })

  test.each<[string, (bytes: number) => string]>([
    ['one segment', (bytes) => `/${'a'.repeat(bytes)}`],
    ['many segments', (bytes) => '/a'.repeat(bytes / 2)],
    ['a plain path that ends otherwise', (bytes) => `${'/aa'.repeat(bytes / 3)}%`],
    ['slashes', (bytes) => '/'.repeat(bytes)],
    ['dots', (bytes) => `/a${'.'.repeat(bytes)}`],
    ['encoded dots and slashes', (bytes) => '/a%2e%2f'.repeat(bytes / 8)],
    ['double encoding', (bytes) => `/${'%252f'.repeat(bytes / 5)}access`],
    ['parameters', (bytes) => `/v2/orgs${'/;a'.repeat(bytes / 3)}/access`],
    ['blanks behind access', (bytes) => `/v2/access${'%20'.repeat(bytes / 3)}x`],
    ['absolute-form', (bytes) => `http://localhost/${'?'.repeat(bytes)}`],
    ['an authority', (bytes) => `http://${'a'.repeat(bytes)}/`],
  ])('a target: %s', (_, target) => {
    expect(growth((bytes) => () => check([], target(bytes)))).toBeLessThan(MOST_GROWTH)
  })

  test.each<[string, (bytes: number) => readonly string[]]>([
    ['Host', (bytes) => ['Host', `[${':'.repeat(bytes)}`]],
    ['X-Org-Id', (bytes) => ['X-Org-Id', 'a'.repeat(bytes)]],
    ['Content-Length', (bytes) => ['Content-Length', '1'.repeat(bytes)]],
  ])('a long %s', (_, fields) => {
    const work = (bytes: number) => {
      const head = headOf('GET', '/v2/x', fields(bytes))
      return () => void admit(head, RULES, () => 'id')
    }
    expect(growth(work)).toBeLessThan(MOST_GROWTH)
  })
})

test.each<[string, (bytes: number) => string]>([
  [
    'Connection that names as many fields as there are',
    (bytes) =>
      `Connection: ${names(bytes / 2)}\r\n${Array.from({ length: Math.floor(bytes / 16) }, (_, i) => `n${i}: 1`).join('\r\n')}`,
  ],
  ['many lines of Connection', (bytes) => 'Connection: xy\r\n'.repeat(bytes / 16).trimEnd()],
  ['a name of underscores', (bytes) => `${'_'.repeat(bytes)}: 1`],
  ['Keep-Alive', (bytes) => `Keep-Alive: ${'timeout='.repeat(bytes / 8)}`],
  ['Proxy-Status, and a string that does not end', (bytes) => `Proxy-Status: org-access-proxy, "${'a'.repeat(bytes)}`],
  ['Proxy-Status of quotes', (bytes) => `Proxy-Status: org-access-proxy, ${'"a'.repeat(bytes / 2)}`],
  ['Proxy-Status of escaped quotes', (bytes) => `Proxy-Status: org-access-proxy, ${'\\"'.repeat(bytes / 2)}`],
  ['Proxy-Status of backslashes', (bytes) => `Proxy-Status: org-access-proxy, "${'\\\\'.repeat(bytes / 2)}`],
  ['Proxy-Status of members', (bytes) => `Proxy-Status: org-access-proxy${',a'.repeat(bytes / 2)}`],
  ['a value of blanks', (bytes) => `X: a${' '.repeat(bytes)}b`],
])('the head of a response: %s', (_, fields) => {
  const work = (bytes: number) => {
    const text = fields(3 * bytes) // a response may be four times as long
    return () => void headOfResponse('HTTP/1.1 200 OK', text)
  }
  expect(growth(work)).toBeLessThan(MOST_GROWTH)
})

test.each<[string, (bytes: number) => string]>([
  ['parameters', (bytes) => `<a>${'; a=b'.repeat(bytes / 5)}"`],
  ['blanks between parameters', (bytes) => `<a>${'; '.repeat(bytes / 2)}<`],
  ['a string that does not end', (bytes) => `<a>; a="${'\\\\'.repeat(bytes / 2)}`],
  ['many links', (bytes) => `${'<a>,'.repeat(bytes / 4)}x`],
  ['commas', (bytes) => `<a>${', '.repeat(bytes / 2)}x`],
])('a Link of %s', (_, link) => {
  const baseUrl = new URL('https://service.example/')
  const work = (bytes: number) => {
    const field = link(3 * bytes)
    return () => void linksThrough('http://localhost', field, baseUrl)
  }
  expect(growth(work)).toBeLessThan(MOST_GROWTH)
})
