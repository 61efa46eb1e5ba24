import { describe, expect, test } from 'vitest'
import { MAX_ORG_ID_LENGTH, parseOrgId } from '../../src/http/org-id.ts'

const DEFAULT = /^[\w-][\w.~:@+=-]{0,127}$/

describe('an org id', () => {
  test.each(['acme', 'A', '0', '-1', 'null', 'undefined', 'true', 'a.b~c:d@e+f=g', 'x'.repeat(128)])('%s', (id) => {
    expect(parseOrgId(id, DEFAULT)).toBe(id)
  })

  test.each([
    '',
    ' ',
    '.',
    '..',
    '...',
    'a b',
    'a\tb',
    'a/b',
    'a\\b',
    'a?b',
    'a#b',
    'a%41',
    'a,b',
    'a;b',
    'é',
    'Ａ',
    'x'.repeat(129),
  ])('not %j', (id) => {
    expect(parseOrgId(id, DEFAULT)).toBeUndefined()
  })

  test.each(['.', '..', 'a b', 'a\u0000', 'é', 'a/b', 'a\\b', 'a?b', 'a#b', 'a%b', 'a,b'])(
    'not %j, even if the pattern accepts everything',
    (id) => {
      expect(parseOrgId(id, /^[\s\S]*$/)).toBeUndefined()
    },
  )

  test('its length is checked before the pattern, which may backtrack', () => {
    const looked: string[] = []
    const pattern = /^a*$/
    pattern.test = (value) => looked.push(value) > 0
    expect(parseOrgId('a'.repeat(MAX_ORG_ID_LENGTH), pattern)).toBeDefined()
    expect(parseOrgId('a'.repeat(MAX_ORG_ID_LENGTH + 1), pattern)).toBeUndefined()
    expect(looked).toHaveLength(1)
  })
})
