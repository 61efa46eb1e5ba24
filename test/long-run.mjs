/**
 * `npm run fuzz -- --seconds 60`, `npm run soak -- --minutes 12`: one long run, without a limit. Node 20 cannot run TypeScript by
 * itself, so vitest does: it runs this file again, as a test.
 */

import { randomInt } from 'node:crypto'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'

/** The options of each run, with their defaults. Each has `--seed`, too. */
const RUNS = { fuzz: { runs: 10_000, 'parser-runs': 1_000_000, seconds: 3_600 }, soak: { minutes: 12 } }
const DAY_MS = 24 * 3_600_000

if (process.env.LONG_RUN === undefined) await start()
else await defineTest(JSON.parse(process.env.LONG_RUN))

async function start() {
  const [, file = '', name = '', ...args] = process.argv
  if (RUNS[name] === undefined)
    throw new Error(`usage: node test/long-run.mjs ${Object.keys(RUNS).join('|')} [OPTIONS]`)
  const defaults = { ...RUNS[name], seed: randomInt(2 ** 31) }
  const options = Object.fromEntries(
    Object.entries(defaults).map(([option, value]) => [option, { type: 'string', default: String(value) }]),
  )
  const { values } = parseArgs({ args, options })
  const numbers = Object.fromEntries(Object.entries(values).map(([option, value]) => [option, Number(value)]))
  process.env.LONG_RUN = JSON.stringify({ name, ...numbers })
  const { startVitest } = await import('vitest/node')
  const root = fileURLToPath(new URL('..', import.meta.url))
  const vitest = await startVitest('test', [], {
    root,
    run: true,
    include: [file.slice(root.length)],
    testTimeout: DAY_MS,
    disableConsoleIntercept: true,
  })
  await vitest.close()
}

async function defineTest({ name, ...options }) {
  const { test } = await import('vitest')
  const { longRun } = await import(`./${name}/run.ts`)
  const report = (line) => process.stdout.write(`${line}\n`)
  test(`${name} ${JSON.stringify(options)}`, async () => {
    const date = new Date().toISOString().slice(0, 10)
    report(`${date}, Node ${process.versions.node}, ${name} ${JSON.stringify(options)}`)
    await longRun(options, report)
  })
}
