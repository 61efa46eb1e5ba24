import { expect, test } from 'vitest'
import { runParserCases } from '../../fuzz/parser-cases.ts'
import { withSeed } from '../../support/seed.ts'

const CASES = 5_000

test('of 5,000 damaged messages, Node reads each that our parser accepts in the same way', () =>
  withSeed(async ({ seed }) => {
    const { cases, accepted, stricter } = await runParserCases(seed, 0, CASES)
    expect(cases).toBe(CASES)
    // Damage that stops everything at the door would show little, and so would a parser that refuses most.
    expect(accepted).toBeGreaterThan(CASES / 5)
    expect([...stricter.values()].reduce((sum, count) => sum + count, 0)).toBeLessThan(CASES / 10)
  }))
