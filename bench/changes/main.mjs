/** `npm run bench:changes` sends an even load while all around the proxy changes, and tells what failed in each phase. */

import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { parseArgs } from 'node:util'
import { isInstalled } from '../harness/children.mjs'
import { positive } from '../harness/options.mjs'
import { quantile } from '../harness/statistics.mjs'
import { markdownTable, shown } from '../harness/table.mjs'
import { Load } from './load.mjs'
import { PHASES } from './phases.mjs'
import { startPrograms, until } from './programs.mjs'

const USAGE = `npm run bench:changes -- [options]

  --seconds N     the least length of a phase (21: five minutes in all)
  --rate N        requests per second (500)
  --phase NAMES   only the phases whose names contain one of these, separated by commas
`
const NEEDED = ['python3', 'redis-server', 'redis-cli', 'openssl', 'taskset']
const WARM_UP_MS = 8_000
/** How long a state lasts, at most; in short phases, less. */
const LONGEST_STAY_MS = 5_000
/** Of a phase's faults, so many are told one by one. */
const FAULTS_TOLD = 10

/**
 * What came of a phase.
 * @typedef {object} Result
 * @property {import('./phases.mjs').Phase} phase
 * @property {number} startedAt
 * @property {number} [goneAt]
 * @property {number} [backAt]
 * @property {number} mints
 * @property {string} [problem] Why it was not carried through.
 */

const { seconds, rate, phases } = parseOptions()
const missing = NEEDED.filter((command) => !isInstalled(command))
if (missing.length > 0) fail(1, `this needs ${missing.join(', ')}`)
const folder = mkdtempSync(join(tmpdir(), 'oap-changes-')) // short: it holds unix sockets
process.on('exit', () => rmSync(folder, { recursive: true, force: true }))
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, () => process.exit(1))

const programs = await startPrograms(folder)
const load = new Load(programs.proxyTarget, rate)
await sleep(WARM_UP_MS)
await until('an even load', () => load.underway < rate / 10 || undefined).catch(() => {
  fail(1, `this machine is too busy for ${rate} requests/s: see --rate`)
})
/** @type {Result[]} */
const results = []
for (const phase of phases) {
  process.stderr.write(`${phase.name}\n`)
  results.push(await run(phase))
}
const endedAt = performance.now()
await load.stop()
process.exit(tell() ? 0 : 1)

function parseOptions() {
  try {
    const { values } = parseArgs({
      options: {
        seconds: { type: 'string', default: '21' },
        rate: { type: 'string', default: '500' },
        phase: { type: 'string', default: '' },
      },
    })
    const [seconds, rate] = [positive('seconds', values.seconds), positive('rate', values.rate)]
    const phases = PHASES.filter(({ name }) => values.phase.split(',').some((part) => name.includes(part)))
    return { seconds, rate, phases }
  } catch (error) {
    return fail(2, `${error instanceof Error ? error.message : error}\n\n${USAGE}`)
  }
}

/**
 * @param {number} code
 * @param {string} message
 * @returns {never}
 */
function fail(code, message) {
  process.stderr.write(`${message}\n`)
  process.exit(code)
}

/**
 * @param {import('./phases.mjs').Phase} phase
 * @returns {Promise<Result>}
 */
async function run(phase) {
  const startedAt = performance.now()
  /** @type {Result} */
  const result = { phase, startedAt, mints: 0 }
  const mintsBefore = await programs.service.running.mints()
  const stayMs = Math.min(LONGEST_STAY_MS, seconds * 250)
  const scene = {
    programs,
    load,
    stay: () => sleep(stayMs),
    gone: () => {
      result.goneAt = performance.now()
    },
    back: () => {
      result.backAt = performance.now()
    },
  }
  await sleep(seconds * 100)
  try {
    await phase.change(scene)
  } catch (error) {
    result.problem = error instanceof Error ? error.message : String(error)
  }
  await sleep(startedAt + seconds * 1_000 - performance.now())
  const mints = await programs.service.running.mints()
  result.mints = mints < mintsBefore ? mints : mints - mintsBefore
  return result
}

/** Prints table and failures. Returns true if nothing failed but what must. */
function tell() {
  const rows = results.map((result, number) => {
    const until = results[number + 1]?.startedAt ?? endedAt
    const outcomes = load.outcomes.filter(({ startedAt }) => startedAt >= result.startedAt && startedAt < until)
    const failed = outcomes.filter(({ failure }) => failure !== '')
    const faults = failed.filter((outcome) => !mustFail(result, outcome))
    return { result, outcomes, failed, faults }
  })
  const cells = rows.map(({ result, outcomes, failed, faults }) => {
    const ms = outcomes.filter(({ failure }) => failure === '').map(({ startedAt, endedAt }) => endedAt - startedAt)
    return [
      result.phase.name,
      shown(outcomes.length, 0),
      shown(failed.length, 0),
      result.problem === undefined ? shown(faults.length, 0) : 'not carried through',
      shown(quantile(ms, 0.5), 1),
      shown(quantile(ms, 0.99), 1),
      shown(Math.max(...ms), 0),
      shown(result.mints, 0),
    ]
  })
  const titles = ['phase', 'requests', 'not 2xx', 'faults', 'p50 ms', 'p99 ms', 'longest ms', 'mints']
  const date = new Date().toISOString().slice(0, 10)
  print(`${date}, Node ${process.versions.node}: ${rate} requests/s, ${seconds} s and more a phase\n`)
  print(markdownTable(titles, cells))
  for (const { result, failed, faults } of rows) {
    const necessary = failed.filter((outcome) => !faults.includes(outcome))
    if (necessary.length > 0)
      print(`\nMust fail in "${result.phase.name}" (${result.phase.must?.who}): ${counted(necessary)}.`)
    if (faults.length > 0) print(`\n**Faults** in "${result.phase.name}": ${counted(faults)}.`)
    if (result.problem !== undefined) print(`\n**Not carried through**: "${result.phase.name}": ${result.problem}.`)
    for (const fault of faults.slice(0, FAULTS_TOLD)) {
      const away =
        result.goneAt === undefined ? '' : `, ${secondsBetween(result.goneAt, fault.startedAt)} s after it went`
      print(`- ${secondsBetween(result.startedAt, fault.startedAt)} s after the begin${away}: ${fault.failure}`)
    }
  }
  return rows.every(({ result, faults }) => faults.length === 0 && result.problem === undefined)
}

/**
 * It was under way while something was gone, and failed for that.
 * @param {Result} result
 * @param {import('./load.mjs').Outcome} outcome
 */
function mustFail({ phase: { must }, goneAt = Number.POSITIVE_INFINITY, backAt = Number.POSITIVE_INFINITY }, outcome) {
  if (must === undefined || !must.holdsFor(outcome)) return false
  return outcome.endedAt >= goneAt && outcome.startedAt <= backAt + (must.graceMs ?? 0)
}

/** @param {readonly import('./load.mjs').Outcome[]} outcomes */
function counted(outcomes) {
  /** @type {Record<string, number>} */
  const counts = {}
  for (const { failure } of outcomes) counts[failure] = (counts[failure] ?? 0) + 1
  return Object.entries(counts)
    .map(([failure, count]) => `${count} × ${failure}`)
    .join(', ')
}

/**
 * @param {number} from
 * @param {number} to
 */
function secondsBetween(from, to) {
  return shown((to - from) / 1_000, 2)
}

/** @param {string} text */
function print(text) {
  process.stdout.write(`${text}\n`)
}
