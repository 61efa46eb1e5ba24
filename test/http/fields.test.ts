import { describe, expect, test } from 'vitest'
import { gatherFields, isFieldValue, namedByConnection, withoutFields } from '../../src/http/fields.ts'

/** A field with this name goes on. */
const goesOn = (name: string) => gatherFields([name, '1']).kept.length > 0

describe('request fields', () => {
  test.each(['baggage', 'Cookie', 'Range', 'If-Match', 'my_field', 'constructor', '__proto__', 'toString'])(
    '%s is forwarded',
    (name) => {
      expect(goesOn(name)).toBe(true)
    },
  )

  test('known names are recognized among very many others', () => {
    for (let i = 0; i < 5_000; i++) goesOn(`x-flood-${i}`)
    expect(goesOn('aUtHoRiZaTiOn')).toBe(false)
  })
})

test('Connection options that name fields', () => {
  expect(namedByConnection('keep-alive')).toBeUndefined()
  expect(namedByConnection('close')).toBeUndefined()
  expect(namedByConnection('Close , Keep-Alive')).toBeUndefined()
  const named = namedByConnection('close, AUTHORIZATION , Host,,content-length')
  expect([...(named ?? [])]).toEqual(['authorization', 'host', 'content-length'])
})

test('fields are left out of a copy', () => {
  const fields = ['A', '1', 'B', '2', 'a', '3']
  expect(withoutFields(fields, new Set(['a']))).toEqual(['B', '2'])
  expect(fields).toEqual(['A', '1', 'B', '2', 'a', '3'])
})

test('field values', () => {
  expect(isFieldValue('a \t b\u00ff')).toBe(true)
  for (const bad of ['\u0000', '\r', '\n', '\u007f', '\u0100']) expect(isFieldValue(`a${bad}b`)).toBe(false)
})
