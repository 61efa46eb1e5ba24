/**
 * `node test/mutants/chosen.mjs [--area NAME] [--only TEXT]`: makes each change of chosen.json (whose description has the text) in a copy
 * of the last commit, and runs the tests of its area. Ends with 1 if fewer than 85 % of an area are noticed. See README.md.
 */

import { execFileSync, spawnSync } from 'node:child_process'
import { mkdtempSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'

const HERE = fileURLToPath(new URL('.', import.meta.url))
const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const LEAST_SHARE = 0.85

const { values } = parseArgs({ options: { area: { type: 'string' }, only: { type: 'string', default: '' } } })
const areas = JSON.parse(readFileSync(`${HERE}areas.json`, 'utf8'))
const chosen = JSON.parse(readFileSync(`${HERE}chosen.json`, 'utf8')).filter(
  ({ area, breaks }) => (values.area === undefined || area === values.area) && breaks.includes(values.only),
)

const copy = join(mkdtempSync(join(tmpdir(), 'oap-mutants-')), 'copy')
execFileSync('git', ['worktree', 'add', '--quiet', '--detach', copy], { cwd: ROOT })
process.on('exit', () => execFileSync('git', ['worktree', 'remove', '--force', copy], { cwd: ROOT }))
for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => process.exit(1))
symlinkSync(join(ROOT, 'node_modules'), join(copy, 'node_modules'))

/** @returns {boolean} whether all tests of the area passed */
function passes(area) {
  const args = ['vitest', 'run', '--bail=1', '--config=test/mutants/vitest.config.ts']
  const env = { ...process.env, MUTANT_TESTS: areas[area].tests.join() }
  return spawnSync('npx', args, { cwd: copy, env, stdio: 'ignore', timeout: 600_000 }).status === 0
}

// Some tests run the built program. It is built once: a test that needs each change to be built is not in an area.
spawnSync('npm', ['run', '-s', 'build'], { cwd: copy, stdio: 'ignore' })
for (const area of new Set(chosen.map(({ area }) => area))) {
  if (!passes(area)) throw new Error(`the tests of ${area} fail without any change`)
}

const killed = new Map()
for (const { area, file, find, replace, breaks } of chosen) {
  const path = join(copy, file)
  const source = readFileSync(path, 'utf8')
  const parts = source.split(find)
  if (parts.length !== 2) throw new Error(`${file} has the text ${parts.length - 1} times, not once: ${find}`)
  writeFileSync(path, parts.join(replace))
  const isKilled = !passes(area)
  writeFileSync(path, source)
  console.log(`${isKilled ? 'killed' : 'SURVIVED'}  ${area}: ${breaks}`)
  killed.set(area, [...(killed.get(area) ?? []), isKilled])
}

for (const [area, results] of killed) {
  const count = results.filter(Boolean).length
  console.log(`${area}: ${count} of ${results.length} killed`)
  if (count < results.length * LEAST_SHARE) process.exitCode = 1
}
