import { expect, test } from 'vitest'
import * as clock from '../../src/clock.ts'

test('time for which the process stood still is no running time, also for what runs before any timer fires', async () => {
  const beat = clock.every(20, () => undefined)
  await clock.within(100)
  const before = clock.runningTime()
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 600)
  const ran = clock.runningTime() - before
  beat.cancel()
  expect(ran).toBeLessThan(200)
})
