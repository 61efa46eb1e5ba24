/** A short run of the fuzzer with a new seed each time; `npm run fuzz` is the long one. */

import { expect, test } from 'vitest'
import { runFuzz } from '../../fuzz/run.ts'
import { withSeed } from '../support/seed.ts'

const RUNS = 2_400

test(
  `R1, R3, R4, R11, R12: ${RUNS} damaged messages, from clients, origin and token endpoint`,
  { timeout: 90_000 },
  () =>
    withSeed(async ({ seed }) => {
      const { requests, responses, mints, forwarded } = await runFuzz({ seed, runs: RUNS, seconds: 30 })
      // On a busy machine the time may end it; most of what is sent must be more than noise at the door.
      expect(requests).toBeGreaterThan(100)
      expect(responses).toBeGreaterThan(50)
      expect(mints).toBeGreaterThan(10)
      expect(forwarded).toBeGreaterThan((requests + responses) / 4)
    }),
)
