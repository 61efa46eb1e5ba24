/** As many cases as were asked for, with a line about how far it is, and the result in one line for the README. */

import { test } from 'vitest'
import { type FuzzResult, runFuzz } from './run.ts'

const { FUZZ_OPTIONS = '{}' } = process.env
const { runs = '1000', seconds = '60', seed = '1' }: Record<string, string> = JSON.parse(FUZZ_OPTIONS)

function describe({ requests, responses, mints, forwarded }: FuzzResult): string {
  return `${requests} requests, ${responses} responses, ${mints} mints; ${forwarded} messages went through`
}

test(`${runs} damaged messages from seed ${seed}`, async () => {
  const startedAt = performance.now()
  const result = await runFuzz({
    seed: Number(seed),
    runs: Number(runs),
    seconds: Number(seconds),
    report: (progress) => process.stdout.write(`${describe(progress)}\n`),
  })
  const date = new Date().toISOString().slice(0, 10)
  const tookSeconds = Math.round((performance.now() - startedAt) / 1_000)
  process.stdout.write(`${date}, seed ${seed}: ${describe(result)}; no violation in ${tookSeconds} s\n`)
})
