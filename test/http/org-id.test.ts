import { describe, expect, test } from 'vitest'
import { parseOrgId } from '../../src/http/org-id.ts'

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
    'not %j even where the pattern takes everything',
    (id) => {
      expect(parseOrgId(id, /^[\s\S]*$/)).toBeUndefined()
    },
  )
})
