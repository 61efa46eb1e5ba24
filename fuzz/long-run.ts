/** As many cases as were asked for, with a line about how far it is, and the result in one line for the README. */

import { test } from 'vitest'
import { runParserCases } from './parser-cases.ts'
import { type FuzzResult, runFuzz } from './run.ts'

const { FUZZ_OPTIONS = '{}' } = process.env
const options: Record<string, string> = JSON.parse(FUZZ_OPTIONS)
const { runs = '1000', 'parser-runs': parserRuns = '100000', seconds = '60', seed = '1' } = options

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

test(`${parserRuns} damaged messages for the parser alone, from seed ${seed}`, async () => {
  const startedAt = performance.now()
  const tookSeconds = () => Math.round((performance.now() - startedAt) / 1_000)
  let total = { cases: 0, accepted: 0, stricter: new Map<string, number>() }
  const describeTotal = () => `${total.cases} messages for the parser, ${total.accepted} accepted by both`
  while (total.cases < Number(parserRuns) && tookSeconds() < Number(seconds)) {
    total = await runParserCases(Number(seed), total.cases, Math.min(total.cases + 100_000, Number(parserRuns)), total)
    process.stdout.write(`${describeTotal()}\n`)
  }
  const stricter = [...total.stricter].sort(([, a], [, b]) => b - a).map(([reason, count]) => `${reason} ${count}`)
  process.stdout.write(
    `seed ${seed}: ${describeTotal()} in ${tookSeconds()} s; refused by ours alone: ${stricter.join(', ')}\n`,
  )
})
