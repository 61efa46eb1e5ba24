/** Runs seeds, tells which failed and why, and prints the story of one. Started by `main.mjs`; README.md has the options. */

import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { FAMILIES } from './families.ts'
import { shrink } from './shrink.ts'
import type { Violation } from './stage.ts'
import type { Story } from './story.ts'
import { compareWithReal } from './world/compare.ts'
import { ProxyProcess } from './world/program.ts'

const [, , folder = '', ...args] = process.argv
const { values } = parseArgs({
  args,
  options: {
    seed: { type: 'string' },
    from: { type: 'string', default: String(Math.floor(Math.random() * 2 ** 31)) },
    count: { type: 'string' },
    /** A comma between two. */
    seeds: { type: 'string' },
    seconds: { type: 'string', default: '60' },
    /** Plays each seed twice, and compares. */
    twice: { type: 'boolean', default: false },
    /** Several processes: a minter and its sidecars, or a fleet and its store. */
    minter: { type: 'boolean', default: false },
    fleet: { type: 'boolean', default: false },
    /** Compares the world with real sockets, and does nothing else. */
    world: { type: 'boolean', default: false },
  },
})
const SHRINK_MS = 60_000
const { storyOf, play } = FAMILIES[values.minter ? 'minter' : values.fleet ? 'fleet' : 'alone']
const { SEED: given = values.seed } = process.env

ProxyProcess.load(readFileSync(join(folder, 'program.cjs'), 'utf8'))
if (values.world) await compare()
// Behind all ticks and promises of others.
else setImmediate(given === undefined ? runMany : () => tell(Number(given)))

async function compare(): Promise<void> {
  const differences = await compareWithReal((name) => console.log(name))
  for (const difference of differences) console.log(`\nDIFFERENT: ${difference}`)
  process.exitCode = differences.length > 0 ? 1 : 0
}

/** The seeds that were asked for. */
function* seeds(): Generator<number> {
  if (values.seeds !== undefined) {
    yield* values.seeds.split(',').map(Number)
    return
  }
  const from = Number(values.from)
  const until = performance.now() + Number(values.seconds) * 1_000
  const most = Number(values.count ?? Number.POSITIVE_INFINITY)
  for (let seed = from; seed < from + most && (values.count !== undefined || performance.now() < until); seed++)
    yield seed
}

function runMany(): void {
  const startedAt = performance.now()
  const failures = new Map<string, number[]>()
  let played = 0
  let requests = 0
  const note = (seed: number, story: Story, { oracle, text }: Violation) => {
    failures.set(oracle, [...(failures.get(oracle) ?? []), seed])
    console.log(`SEED=${seed} (${story.profile}): ${oracle}: ${text.split('\n').slice(0, 8).join('\n  ')}`)
  }
  for (const seed of seeds()) {
    const story = storyOf(seed)
    const result = play(story)
    played++
    requests += result.requests
    for (const violation of result.violations) note(seed, story, violation)
    if (!values.twice) continue
    const { hash } = play(story)
    if (hash !== result.hash) note(seed, story, { oracle: 'one seed, one story', text: `${result.hash} and ${hash}` })
  }
  const perMinute = (played / (performance.now() - startedAt)) * 60_000
  console.log(`${played} seeds from ${values.from}, ${requests} requests, ${perMinute.toFixed(0)} seeds a minute`)
  for (const [oracle, found] of failures)
    console.log(`${oracle}: ${found.length} in ${new Set(found).size} seeds, first SEED=${found[0]}`)
  process.exitCode = failures.size > 0 ? 1 : 0
}

/** The story of one seed; if it fails, the smallest part of it that still fails so. */
function tell(seed: number): void {
  const whole = storyOf(seed)
  const [violation] = play(whole).violations
  const story = violation === undefined ? whole : shrink(whole, violation.oracle, performance.now() + SHRINK_MS, play)
  const { trace, hash, violations } = play(story, true)
  const { limits, tokens, service, lines, clients } = story
  console.log(JSON.stringify({ profile: story.profile, limits, tokens, service, lines }, undefined, 1))
  for (const [i, client] of clients.entries()) {
    for (const request of client.requests) console.log(`client-${i}: ${JSON.stringify(request)}`)
  }
  console.log(trace.join('\n'))
  for (const { oracle, text } of violations) console.log(`${oracle}: ${text}`)
  console.log(`hash ${hash}`)
  process.exitCode = violations.length > 0 ? 1 : 0
}
