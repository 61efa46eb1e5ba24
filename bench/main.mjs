/** `npm run bench`: builds, starts the origin, runs the scenarios one after the other, and writes down what they gave. */

import { execFileSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs'
import { cpus, tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { isInstalled, LOAD_CORE } from './harness/children.mjs'
import { parseOptions, USAGE } from './harness/options.mjs'

const BENCH = fileURLToPath(new URL('.', import.meta.url))
const NEEDED = ['nginx', 'wrk', 'taskset', 'openssl']

const options = optionsOrUsage()
requireMachine()
if (options.builds) build()
// Only now: these import what was just installed.
const { runBench } = await import('./harness/run.mjs')
const folder = mkdtempSync(join(tmpdir(), 'org-access-proxy-bench-'))
process.on('exit', () => rmSync(folder, { recursive: true, force: true }))
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, () => process.exit(1))
const out = resolve(options.out)
mkdirSync(out, { recursive: true })
await runBench(options, folder, out)
// The origin and whatever is left end with this process.
process.exit(0)

function optionsOrUsage() {
  try {
    return parseOptions(process.argv.slice(2), BENCH)
  } catch (error) {
    process.stderr.write(`${error instanceof Error ? error.message : error}\n\n${USAGE}`)
    process.exit(2)
  }
}

function requireMachine() {
  const missing = NEEDED.filter((command) => !isInstalled(command))
  if (missing.length > 0) fail(`the bench needs ${missing.join(', ')} (Debian has them under these names)`)
  if (cpus().length < 2) fail('the bench needs two cores: one for the proxy, one for load and origin')
  execFileSync('taskset', ['-cp', String(LOAD_CORE), String(process.pid)], { stdio: 'ignore' })
}

/** @param {string} message */
function fail(message) {
  process.stderr.write(`${message}\n`)
  process.exit(1)
}

function build() {
  execFileSync('npm', ['run', '-s', 'build'], { cwd: join(BENCH, '..'), stdio: ['ignore', 'ignore', 'inherit'] })
  execFileSync('npm', ['ci'], { cwd: BENCH, stdio: ['ignore', 'ignore', 'inherit'] })
}
