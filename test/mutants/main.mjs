/**
 * `node test/mutants/main.mjs --area NAME --mutants N --seed X`: changes random lines of an area, one place at a time, and runs
 * its tests on each change. See README.md.
 */

import { spawnSync } from 'node:child_process'
import { globSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'

const HERE = fileURLToPath(new URL('.', import.meta.url))
const ROOT = fileURLToPath(new URL('../..', import.meta.url))
/** Measured on this code: what Stryker makes of a line, on average. */
const MUTANTS_PER_LINE = 2

const { values } = parseArgs({
  options: {
    area: { type: 'string', default: 'admission' },
    mutants: { type: 'string', default: '60' },
    seed: { type: 'string', default: String(Date.now() % 100_000) },
    /** Instead of random ones: `FILE:FROM-TO`, comma-separated. */
    lines: { type: 'string' },
  },
})

const areas = JSON.parse(readFileSync(`${HERE}areas.json`, 'utf8'))
const area = areas[values.area]
if (area === undefined) throw new Error(`no area ${values.area}: ${Object.keys(areas).join(', ')}`)

/** mulberry32 */
function randomNumbers(seed) {
  let state = seed >>> 0
  return () => {
    state = (state + 0x6d2b79f5) >>> 0
    let mixed = Math.imul(state ^ (state >>> 15), state | 1)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }
}

/** Lines with code, in random order. */
function pickLines() {
  const lines = globSync(area.mutate, { cwd: ROOT }).flatMap((file) =>
    readFileSync(`${ROOT}${file}`, 'utf8')
      .split('\n')
      .flatMap((text, i) =>
        /^\s*(\/?\*|\/\/|import |export (type|interface)|[})\]]*$)/.test(text) ? [] : [`${file}:${i + 1}-${i + 1}`],
      ),
  )
  const random = randomNumbers(Number(values.seed))
  const shuffled = lines.map((line) => [random(), line]).sort(([a], [b]) => a - b)
  return shuffled.slice(0, Math.ceil(Number(values.mutants) / MUTANTS_PER_LINE)).map(([, line]) => line)
}

const mutate = values.lines ?? pickLines().join()
console.log(`area ${values.area}, seed ${values.seed}: ${mutate}`)
const { status } = spawnSync(
  `${HERE}node_modules/.bin/stryker`,
  ['run', `${HERE}stryker.config.json`, '--mutate', mutate],
  {
    cwd: ROOT,
    stdio: 'inherit',
    env: { ...process.env, MUTANT_TESTS: area.tests.join(), TEST_SLOWNESS: '4' },
  },
)
process.exit(status ?? 1)
