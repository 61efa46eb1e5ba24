import { expect, test } from 'vitest'
import { Random, withSeed } from './seed.ts'

test('the same seed gives the same schedule', () => {
  const draw = (random: Random) => Array.from({ length: 100 }, () => random.integer(0, 1000))
  expect(draw(new Random(7))).toEqual(draw(new Random(7)))
  expect(draw(new Random(7))).not.toEqual(draw(new Random(8)))
})

test('a numbered schedule does not depend on what the others have drawn', () => {
  const [first, second] = [new Random(7), new Random(7)]
  first.next()
  expect(first.numbered(3).next()).toBe(second.numbered(3).next())
  expect(first.numbered(3).next()).not.toBe(first.numbered(4).next())
})

test('integers reach both ends and nothing beyond', () => {
  const random = new Random(1)
  const drawn = new Set(Array.from({ length: 500 }, () => random.integer(3, 6)))
  expect([...drawn].sort()).toEqual([3, 4, 5, 6])
})

test('a failure names the seed', async () => {
  const failing = withSeed(() => {
    throw new Error('broken')
  }, 4711)
  await expect(failing).rejects.toThrow('TEST_SEED=4711: broken')
})
