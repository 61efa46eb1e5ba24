/** Plays seeds with a fault until one fails that passes without it. Started by `main.mjs`. */

import { readFileSync } from 'node:fs'
import { FAMILIES } from '../families.ts'
import type { Violation } from '../stage.ts'
import { GROUND_REST, ODD_EVERY, ODD_REST, PROFILE_EVERY } from '../story.ts'
import { ProxyProcess } from '../world/program.ts'

const [, , wholeFile = '', faultyFile = '', most = '0', family = 'alone', oracle] = process.argv
const { storyOf, play } = FAMILIES[family as keyof typeof FAMILIES]
const [whole, faulty] = [readFileSync(wholeFile, 'utf8'), readFileSync(faultyFile, 'utf8')]

/** Those with a profile first: they find the most. */
function* seeds(): Generator<number> {
  if (most.includes(',')) return yield* most.split(',').map(Number)
  const all = Array.from({ length: Number(most) }, (_, i) => i + 1)
  const isOdd = (seed: number) => seed % ODD_EVERY === ODD_REST
  const rank = (seed: number) => (isOdd(seed) ? 0 : [GROUND_REST, 0].indexOf(seed % PROFILE_EVERY))
  for (const wanted of [0, 1, -1]) yield* all.filter((seed) => rank(seed) === wanted)
}

function violationsOf(code: string, seed: number): readonly Violation[] {
  ProxyProcess.load(code)
  return play(storyOf(seed)).violations
}

/** A fault may stop the world. */
function violationsOfFaulty(seed: number): readonly Violation[] {
  try {
    return violationsOf(faulty, seed)
  } catch (error) {
    return [{ oracle: 'the world goes on', text: String(error) }]
  }
}

function measure(): void {
  let played = 0
  for (const seed of seeds()) {
    played++
    const found = violationsOfFaulty(seed).filter((violation) => oracle === undefined || violation.oracle === oracle)
    if (found.length === 0) continue
    const known = new Set(violationsOf(whole, seed).map(({ oracle }) => oracle))
    const first = found.find((violation) => !known.has(violation.oracle))
    if (first === undefined) continue
    const { profile } = storyOf(seed)
    console.log(JSON.stringify({ seed, played, profile, ...first, text: first.text.slice(0, 200) }))
    return
  }
  console.log(JSON.stringify({ played }))
}

// Behind all ticks and promises of others.
setImmediate(measure)
