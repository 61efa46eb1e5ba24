/** Runs each chosen scenario in turn, prints its table, and saves its samples at once. */

import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { startNginxOrigin } from '../origins/nginx-origin.mjs'
import { TITLES } from './bench.mjs'
import { describeMachine } from './machine.mjs'
import { renderResults, scenarioTable } from './report.mjs'
import { readResults, writeResults } from './results.mjs'
import { failedSample } from './samples.mjs'
import { targetTable } from './targets.mjs'

/** Above this, others are at work on the machine. */
const QUIET_LOAD = 0.5
/** Linux' own choice. Others, like BBR, send by a timer even on the loopback, which costs more than what is measured. */
const USUAL_CONGESTION_CONTROL = 'cubic'

/**
 * @typedef {object} RunOptions
 * @property {import('./options.mjs').Options} options
 * @property {readonly import('../scenarios/scenario.mjs').Scenario[]} scenarios
 * @property {readonly import('../candidates/candidate.mjs').Candidate[]} candidates
 * @property {import('./bench.mjs').Skipped} skipped
 * @property {string} folder For everything that is written on the way.
 * @property {string} out For the results.
 */

/** @param {RunOptions} options */
export async function runBench({ options, scenarios, candidates, skipped, folder, out }) {
  const machine = describeMachine()
  const allSkipped = { ...skipped, ...missingScenarios(scenarios) }
  for (const [name, reason] of Object.entries(allSkipped)) say(`skipped: ${TITLES[name] ?? name}: ${reason}`)
  if (machine.loadBefore > QUIET_LOAD) say(`the load average is ${machine.loadBefore}: others are at work here`)
  if (machine.congestionControl !== USUAL_CONGESTION_CONTROL) {
    say(`TCP is ${machine.congestionControl} here, not ${USUAL_CONGESTION_CONTROL}: see README.md`)
  }

  const origin = await startNginxOrigin(folder)
  const bench = { options, folder, origin, candidates, say }
  const { rounds, seconds } = options
  const run = { startedAt: new Date().toISOString(), rounds, seconds, machine, skipped: allSkipped }
  // Without all its peers a scenario would take the place of one that had them.
  const isSaved = options.peers.length === 0
  let results = readResults(out)
  for (const scenario of scenarios.filter(({ name }) => !(name in allSkipped))) {
    say(`${scenario.name}: ${scenario.title}`)
    const samples = await scenario.run(bench).catch((error) => ({ [scenario.name]: [failedSample(error, say)] }))
    process.stdout.write(`\n${scenario.title}\n\n${scenarioTable(scenario, samples)}\n\n`)
    results = { ...results, [scenario.name]: { run, samples } }
    if (isSaved) save(out, results)
  }
  process.stdout.write(`${targetTable(results)}\n`)
  if (!isSaved) say('nothing was saved: not all peers took part')
}

/**
 * @param {RunOptions['scenarios']} scenarios
 * @returns {import('./bench.mjs').Skipped}
 */
function missingScenarios(scenarios) {
  const reasons = scenarios.map(({ name, missing }) => /** @type {const} */ ([name, missing?.() ?? '']))
  return Object.fromEntries(reasons.filter(([, reason]) => reason !== ''))
}

/**
 * @param {string} out
 * @param {import('./results.mjs').Results} results
 */
function save(out, results) {
  writeResults(out, results)
  writeFileSync(join(out, 'RESULTS.md'), renderResults(results))
}

/** @param {string} text */
function say(text) {
  process.stderr.write(`${text}\n`)
}
