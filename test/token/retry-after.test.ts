import { expect, test } from 'vitest'
import { parseRetryAfter } from '../../src/token/retry-after.ts'

const NOW = Date.UTC(2026, 0, 1, 12, 0, 0)

test.each([
  ['17', 17],
  ['0', 0],
  ['Thu, 01 Jan 2026 12:00:42 GMT', 42],
  ['Thu, 01 Jan 2026 11:59:00 GMT', 0],
  ['999999999', 3_600],
  ['Fri, 01 Jan 2100 00:00:00 GMT', 3_600],
])('%s is %d seconds', (value, seconds) => {
  expect(parseRetryAfter(value, NOW)).toBe(seconds)
})

test.each([undefined, '', 'soon', '-5x', '1.5.2'])('%s is none', (value) => {
  expect(parseRetryAfter(value, NOW)).toBeUndefined()
})
