/**
 * `npm run bench:check` compares the last results with the targets. It measures nothing. Exit code 1: one falls short; 3: none does,
 * but one cannot be decided.
 */

import { fileURLToPath } from 'node:url'
import { readResults } from './harness/results.mjs'
import { failedIn, TARGETS, targetTable, verdict } from './harness/targets.mjs'

const SHORT = 1
const UNDECIDED = 3

const results = readResults(process.argv[2] ?? fileURLToPath(new URL('results', import.meta.url)))
const dates = Object.values(results)
  .map(({ run }) => run.startedAt)
  .sort()

if (dates.length === 0) {
  process.stdout.write('There are no results yet: run "npm run bench" first.\n')
  process.exitCode = SHORT
} else {
  const verdicts = TARGETS.map((target) => verdict(target, results))
  const count = (/** @type {import('./harness/targets.mjs').Verdict} */ wanted) =>
    verdicts.filter((each) => each === wanted).length
  const [held, short, undecided] = [count('holds'), count('falls short'), count('cannot decide')]
  const limited = verdicts.length - count('no limit')
  process.stdout.write(`Measured from ${dates.at(0)} to ${dates.at(-1)}.\n\n${targetTable(results)}\n\n`)
  const counted = `${held} of ${limited} targets hold, ${short} fall short, ${undecided} cannot be decided`
  process.stdout.write(`${counted}, ${count('not measured')} were not measured.\n`)
  if (short > 0 || failedIn(results).length > 0) process.exitCode = SHORT
  else if (undecided > 0) {
    process.stdout.write('The machine is too noisy for these: measure again when nothing else runs on it.\n')
    process.exitCode = UNDECIDED
  }
}
