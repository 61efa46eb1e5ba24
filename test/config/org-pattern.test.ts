/**
 * The attack: an operator sets `orgs.pattern` to `^[a-z0-9]+(-?[a-z0-9]+)*$`, which looks harmless. A client sends an org id of
 * 32 letters and `!`. The regular expression engine tries every way to split the letters, and the process stops answering.
 */

import { describe, expect, test } from 'vitest'
import { matchesInTime, parseOrgPattern } from '../../src/config/org-pattern.ts'
import { refusalWith } from './refusal.ts'

describe('a pattern that backtracks is found', () => {
  test.each([
    '[a-z0-9]+(-?[a-z0-9]+)*',
    '(a+)+',
    'org-(?:a|aa)+',
    '(x|[xy])*z',
    't-([a-z]+|[a-z0-9]+)*',
    '\\d*\\d*\\d*\\d*',
    '([a-z0-9_-]+\\.?)+',
    '(a|b|ab)*c',
    '([a-zA-Z]|[A-Z0-9])*',
    '(?=(a+)+$)[ab]+',
    '(?:(?:a{1,20}){1,20}){1,20}b',
    '(?:[a-z]?[a-z0-9]?){16}',
    `${'[a-z]?'.repeat(40)}[0-9]`,
    '(\\x61+)+',
    '(\\u0061+)+',
  ])('%s', async (pattern) => {
    expect(await matchesInTime(parseOrgPattern(pattern), 300)).toBe(false)
  })
})

describe('a pattern that does not backtrack is accepted', () => {
  test.each([
    '^[\\w-][\\w.~:@+=-]{0,127}$',
    '^[a-z0-9]+(-[a-z0-9]+)*$',
    'acme|globex',
    '[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}',
    'org_[A-Za-z0-9]{16}',
    '[a-z]+[a-z0-9]*',
    '[a-z]{2,}[0-9]{3,}',
    '.*',
    '(?!admin)[a-z][a-z0-9-]{0,62}',
    '(ab+)+c',
    '(?:[a-z][0-9]?){3}-\\x61{4}',
    '((a{1000}){1000}){1000}',
    '[]a]|[^]b]|\\]|\\[',
  ])('%s', async (pattern) => {
    expect(await matchesInTime(parseOrgPattern(pattern))).toBe(true)
  })
})

test('a configuration with such a pattern is refused', async () => {
  expect(await refusalWith({ OAP_ORGS_PATTERN: '^[a-z0-9]+(-?[a-z0-9]+)*$' })).toEqual([
    'orgs.pattern (OAP_ORGS_PATTERN): takes too long to refuse some ids: one part can match the same text in several ways, as in (a+)+ or a*a*a*',
  ])
})
