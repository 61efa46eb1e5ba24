/** The heads of responses, as they are written to the client. */

import { expect, test } from 'vitest'
import { responseHeadText } from '../../../src/listener/client-response.ts'
import { fc } from '../../support/properties.ts'
import { fieldsOf, headOfResponse } from '../../support/received-response.ts'

const CLOSING = 'Connection: close\r\n'

const headWith = (lines: string, hasDate: boolean) => ({ status: 200, reason: 'OK', lines, hasDate })

test('a Date is added if there is none', () => {
  const before = Math.floor(Date.now() / 1_000) * 1_000
  const [, date = ''] = /\r\nDate: (.*)\r\n/.exec(responseHeadText(headWith('', false), false, CLOSING)) ?? []
  expect(date).toBe(new Date(date).toUTCString())
  expect(Date.parse(date)).toBeGreaterThanOrEqual(before)
  expect(Date.parse(date)).toBeLessThanOrEqual(Date.now())
  expect(responseHeadText(headWith('date: never\r\n', true), false, CLOSING)).not.toContain('Date:')
})

test('every accepted head is written as one head, with no additional lines', () => {
  const lines = fc.array(
    fc.oneof(
      fc.string({ unit: fc.integer({ min: 0, max: 255 }).map((code) => String.fromCharCode(code)), maxLength: 20 }),
      fc.constantFrom('X: 1', 'Set-Cookie: a=1', 'Connection: x', 'X: a\rY: b', 'X: a\nY: b', 'Content-Length: 3'),
    ),
    { maxLength: 6 },
  )
  const reason = fc.string({ unit: fc.constantFrom('a', ' ', '\r', '\n', '\u0000', '\u00e9', ':'), maxLength: 6 })
  let taken = 0
  const property = fc.property(reason, lines, (words, fields) => {
    const head = headOfResponse(`HTTP/1.1 200 ${words}`, ...fields)
    if (head === undefined) return
    taken++
    const text = responseHeadText(head, false, CLOSING)
    expect(text.indexOf('\r\n\r\n')).toBe(text.length - 4)
    const written = text.slice(0, -4).split('\r\n')
    expect(written).toHaveLength(1 + fieldsOf(head).length / 2 + (head.hasDate ? 0 : 1) + 1)
    for (const line of written) expect(line).toMatch(/^[\t\x20-\x7e\x80-\xff]+$/)
  })
  fc.assert(property, { numRuns: 2_000 })
  expect(taken).toBeGreaterThan(50)
})
