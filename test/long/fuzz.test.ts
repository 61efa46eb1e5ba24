/** A short run of the fuzzer, with a new seed each time. `npm run fuzz` runs it longer. */

import { expect, test } from 'vitest'
import { runFuzz } from '../fuzz/run.ts'
import { withSeed } from '../support/seed.ts'

const RUNS = 900

test(`${RUNS} damaged messages, from clients, origin and token endpoint`, () =>
  withSeed(async ({ seed }) => {
    const { requests, responses, mints, forwarded } = await runFuzz({ seed, runs: RUNS })
    expect(requests + responses + mints).toBe(RUNS)
    // If the proxy refused all messages alike, the run would test little.
    expect(forwarded).toBeGreaterThan(RUNS / 4)
  }))
