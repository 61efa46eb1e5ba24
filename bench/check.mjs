/** `npm run bench:check` compares the last results with the targets. It measures nothing. */

import { fileURLToPath } from 'node:url'
import { readResults } from './harness/results.mjs'
import { failedIn, TARGETS, targetTable, verdict } from './harness/targets.mjs'

const results = readResults(process.argv[2] ?? fileURLToPath(new URL('results', import.meta.url)))
const dates = Object.values(results)
  .map(({ run }) => run.startedAt)
  .sort()

if (dates.length === 0) {
  process.stdout.write('There are no results yet: run "npm run bench" first.\n')
  process.exitCode = 1
} else {
  const shortfalls = TARGETS.filter((target) => verdict(target, results) === 'falls short')
  const held = TARGETS.filter((target) => verdict(target, results) === 'holds')
  const limited = TARGETS.filter((target) => verdict(target, results) !== 'no limit')
  process.stdout.write(`Measured from ${dates.at(0)} to ${dates.at(-1)}.\n\n${targetTable(results)}\n\n`)
  process.stdout.write(`${held.length} of ${limited.length} targets hold, ${shortfalls.length} fall short.\n`)
  if (shortfalls.length > 0 || failedIn(results).length > 0) process.exitCode = 1
}
