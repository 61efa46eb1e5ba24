/** A bounded run over all three kinds of cases: damaged requests, responses and mints, in the proportion of 12 to 7 to 1. */

import { endMintArena, mintCase, runMintCases, startMintArena } from './mint-cases.ts'
import { runParserCases } from './parser-cases.ts'
import { endRequestArena, requestCase, runRequestCases, startRequestArena } from './request-cases.ts'
import { endResponseArena, responseCase, runResponseCases, startResponseArena } from './response-cases.ts'

export interface FuzzOptions {
  readonly seed: number
  /** Cases of all kinds together. */
  readonly runs: number
  /** Stops earlier when the time is over. */
  readonly seconds?: number
  readonly report?: (progress: FuzzResult) => void
}

export interface FuzzResult {
  readonly requests: number
  readonly responses: number
  readonly mints: number
  /** What reached the origin: damage that stops everything at the door would show little. */
  readonly forwarded: number
}

const AT_ONCE = 36
const REPORT_EVERY_CASES = 5_000

/** Rejects with the first violation. Case i is made from the seed and i alone, so that it can be made again. */
export async function runFuzz(options: FuzzOptions): Promise<FuzzResult> {
  const { seed, runs, seconds = Number.POSITIVE_INFINITY } = options
  const endAt = performance.now() + seconds * 1_000
  const total = { requests: 0, responses: 0, mints: 0, forwarded: 0 }
  let reportAt = REPORT_EVERY_CASES
  let hasFailed = false

  const loop = async (
    kind: 'requests' | 'responses' | 'mints',
    count: number,
    firstIndex: number,
    run: (indices: number[]) => Promise<number>,
  ) => {
    for (let done = 0; done < count && !hasFailed && performance.now() < endAt; ) {
      const size = Math.min(AT_ONCE, count - done)
      const forwarded = await run(Array.from({ length: size }, (_, i) => firstIndex + done + i))
      total.forwarded += forwarded
      done += size
      total[kind] += size
      if (total.requests + total.responses + total.mints < reportAt) continue
      reportAt += REPORT_EVERY_CASES
      options.report?.(total)
    }
  }
  const guarded = async (work: () => Promise<void>) => {
    try {
      await work()
    } catch (error) {
      hasFailed = true
      throw error
    }
  }

  const requestCount = Math.round(runs * 0.6)
  const responseCount = Math.round(runs * 0.35)
  const work = [
    async () => {
      await using arena = await startRequestArena()
      const minted = new Set<string>()
      const run = async (indices: number[]) =>
        runRequestCases(arena, await Promise.all(indices.map((i) => requestCase(seed, i))), minted)
      await loop('requests', requestCount, 0, run)
      if (!hasFailed) await endRequestArena(arena)
    },
    async () => {
      const opened = await startResponseArena()
      await using _ = opened.arena
      const run = async (indices: number[]) =>
        runResponseCases(opened, await Promise.all(indices.map((i) => responseCase(seed, i))))
      await loop('responses', responseCount, requestCount, run)
      if (!hasFailed) await endResponseArena(opened)
    },
    async () => {
      const opened = await startMintArena()
      await using _ = opened.arena
      const run = async (indices: number[]) =>
        runMintCases(opened, await Promise.all(indices.map((i) => mintCase(seed, i))))
      await loop('mints', runs - requestCount - responseCount, requestCount + responseCount, run)
      if (!hasFailed) await endMintArena(opened)
    },
  ]
  const outcomes = await Promise.allSettled(work.map(guarded))
  for (const outcome of outcomes) if (outcome.status === 'rejected') throw outcome.reason
  return total
}

interface LongRunOptions extends FuzzOptions {
  readonly seconds: number
  readonly 'parser-runs': number
}

/** `npm run fuzz`: says how far it is, and at the end the results. Each of the two parts may take so many seconds. */
export async function longRun(options: LongRunOptions, report: (line: string) => void): Promise<void> {
  const describe = ({ requests, responses, mints, forwarded }: FuzzResult) =>
    `${requests} requests, ${responses} responses, ${mints} mints; ${forwarded} messages went through`
  const startedAt = performance.now()
  const secondsSince = (at: number) => Math.round((performance.now() - at) / 1_000)
  const result = await runFuzz({ ...options, report: (progress) => report(describe(progress)) })
  report(`${describe(result)}; no violation in ${secondsSince(startedAt)} s`)

  const { seed, seconds, 'parser-runs': parserRuns } = options
  const parserAt = performance.now()
  let total = { cases: 0, accepted: 0, stricter: new Map<string, number>() }
  const describeTotal = () => `${total.cases} messages for the parser, ${total.accepted} accepted by both`
  while (total.cases < parserRuns && secondsSince(parserAt) < seconds) {
    total = await runParserCases(seed, total.cases, Math.min(total.cases + 100_000, parserRuns), total)
    report(describeTotal())
  }
  const stricter = [...total.stricter].sort(([, a], [, b]) => b - a).map(([reason, count]) => `${reason} ${count}`)
  report(`${describeTotal()} in ${secondsSince(parserAt)} s; refused by ours alone: ${stricter.join(', ')}`)
}
