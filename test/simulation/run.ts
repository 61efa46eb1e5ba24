/** Runs seeds, tells which failed and why, and prints the story of one. Started by `main.mjs`. */

import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { play } from './stage.ts'
import { storyOf } from './story.ts'
import { compareWithReal } from './world/compare.ts'
import { ProxyProcess } from './world/program.ts'

const [, , folder = '', ...args] = process.argv
const { values } = parseArgs({
  args,
  options: {
    seed: { type: 'string' },
    from: { type: 'string', default: '1' },
    count: { type: 'string' },
    seconds: { type: 'string', default: '60' },
    /** Compares the world with real sockets, and does nothing else. */
    world: { type: 'boolean', default: false },
  },
})
ProxyProcess.load(readFileSync(join(folder, 'program.cjs'), 'utf8'))
process.on('unhandledRejection', (error) => {
  console.error('unhandled rejection', error)
  process.exit(2)
})
if (values.world) await compare()
else setImmediate(run)

async function compare(): Promise<void> {
  const differences = await compareWithReal((name) => console.log(name))
  for (const difference of differences) console.log(`\nDIFFERENT: ${difference}`)
  process.exitCode = differences.length > 0 ? 1 : 0
}

function run(): void {
  const from = Number(values.seed ?? values.from)
  const count = Number(values.seed === undefined ? (values.count ?? Number.POSITIVE_INFINITY) : 1)
  const until = performance.now() + Number(values.seconds) * 1_000
  const startedAt = performance.now()
  const failures = new Map<string, number[]>()
  let seeds = 0
  let requests = 0
  for (let seed = from; seed < from + count && (values.count !== undefined || performance.now() < until); seed++) {
    const story = storyOf(seed)
    const result = play(story, values.seed !== undefined)
    seeds++
    requests += result.requests
    if (values.seed !== undefined) console.log(result.trace.join('\n'), `\n${result.hash}`)
    for (const { oracle, text } of result.violations) {
      failures.set(oracle, [...(failures.get(oracle) ?? []), seed])
      console.log(`seed ${seed} (${story.profile}): ${oracle}: ${text.split('\n').slice(0, 8).join('\n  ')}`)
    }
  }
  const perMinute = (seeds / (performance.now() - startedAt)) * 60_000
  console.log(`${seeds} seeds, ${requests} requests, ${perMinute.toFixed(0)} seeds a minute`)
  for (const [oracle, found] of failures)
    console.log(`${oracle}: ${found.length} in ${new Set(found).size} seeds, first ${found[0]}`)
  process.exitCode = failures.size > 0 ? 1 : 0
}
