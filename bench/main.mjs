/** `npm run bench` builds, starts the origin, runs the scenarios in turn, and writes their results. */

import { execFileSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs'
import { cpus, tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { chooseCandidates } from './harness/bench.mjs'
import { isInstalled, LOAD_CORE } from './harness/children.mjs'
import { parseOptions, USAGE } from './harness/options.mjs'
import { runBench } from './harness/run.mjs'
import { chooseScenarios } from './scenarios/all.mjs'

const BENCH = fileURLToPath(new URL('.', import.meta.url))
const NEEDED = ['nginx', 'wrk', 'taskset', 'chrt', 'openssl']
const NEEDED_DESCRIPTORS = 20_000

const { options, scenarios, chosen } = choiceOrUsage()
requireMachine()
if (options.builds) build()
const folder = mkdtempSync(join(tmpdir(), 'org-access-proxy-bench-'))
process.on('exit', () => rmSync(folder, { recursive: true, force: true }))
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, () => process.exit(1))
const out = resolve(options.out)
mkdirSync(out, { recursive: true })
await runBench({ options, scenarios, ...chosen, folder, out })
// The origin and all other children end with this process.
process.exit(0)

function choiceOrUsage() {
  try {
    const options = parseOptions(process.argv.slice(2), join(BENCH, 'results'))
    return { options, scenarios: chooseScenarios(options.scenarios), chosen: chooseCandidates(options) }
  } catch (error) {
    process.stderr.write(`${error instanceof Error ? error.message : error}\n\n${USAGE}`)
    process.exit(2)
  }
}

function requireMachine() {
  const missing = NEEDED.filter((command) => !isInstalled(command))
  if (missing.length > 0) fail(`the bench needs ${missing.join(', ')} (Debian has them under these names)`)
  if (cpus().length < 2) fail('the bench needs two cores: one for the proxy, one for load and origin')
  const descriptors = Number(execFileSync('sh', ['-c', 'ulimit -Hn'], { encoding: 'utf8' }))
  if (descriptors < NEEDED_DESCRIPTORS) fail(`the bench needs ${NEEDED_DESCRIPTORS} descriptors (ulimit -Hn)`)
  execFileSync('taskset', ['-cp', String(LOAD_CORE), String(process.pid)], { stdio: 'ignore' })
}

/** @param {string} message */
function fail(message) {
  process.stderr.write(`${message}\n`)
  process.exit(1)
}

function build() {
  execFileSync('npm', ['run', '-s', 'build'], { cwd: join(BENCH, '..'), stdio: ['ignore', 'ignore', 'inherit'] })
  execFileSync('npm', ['install', '--no-package-lock', '--silent'], {
    cwd: BENCH,
    stdio: ['ignore', 'ignore', 'inherit'],
  })
}
