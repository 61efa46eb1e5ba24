/** One soak as a test: progress on stdout, the result in one line for the README, and a verdict. */

import { expect, test } from 'vitest'
import { runSoak } from './run.ts'

const { SOAK_OPTIONS = '{}' } = process.env
const { minutes = '12', idle = '3', seed = '1' }: Record<string, string> = JSON.parse(SOAK_OPTIONS)

test(`${minutes} minutes from seed ${seed}`, async () => {
  const report = (line: string) => process.stdout.write(`${line}\n`)
  report(`soak: ${minutes} minutes of requests and ${idle} without, seed ${seed}`)
  const result = await runSoak({ minutes: Number(minutes), idleMinutes: Number(idle), seed: Number(seed), report })
  const { faults, ...rest } = result
  const isGood = Object.values(faults).every((count) => count === 0)
  const date = new Date().toISOString().slice(0, 10)
  report(`${date}, Node ${process.versions.node}, seed ${seed}: ${JSON.stringify(rest)}`)
  report(`${JSON.stringify(faults)}: ${isGood ? 'passed' : 'FAILED'}`)
  expect(Object.entries(faults).filter(([, count]) => count > 0)).toEqual([])
  expect(result.answers['200'] ?? 0, 'served').toBeGreaterThan(result.requests * 0.9)
})
