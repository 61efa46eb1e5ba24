import { expect, test } from 'vitest'
import { ServiceHabits } from '../../src/token/service-habits.ts'
import { TOKEN_CACHE_OPTIONS } from '../support/token-cache-options.ts'

test('the usual time of a mint changes by an eighth of what is new', () => {
  const habits = new ServiceHabits(TOKEN_CACHE_OPTIONS)
  for (const tookMs of [80, 160]) habits.mintTook(tookMs)
  expect(habits.mintMs).toBe(90)
})
