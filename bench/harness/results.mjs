/** The saved results: every sample of every scenario. Tables and verdicts are made from them. */

import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

/**
 * Under what a scenario was measured.
 * @typedef {object} Run
 * @property {string} startedAt ISO 8601.
 * @property {number} rounds
 * @property {number} seconds
 * @property {import('./machine.mjs').Machine} machine
 * @property {import('./bench.mjs').Skipped} skipped Candidates that were not there.
 */

/**
 * @typedef {object} ScenarioResult
 * @property {Run} run
 * @property {import('./samples.mjs').Samples} samples
 */

/** By the scenario's name. @typedef {Readonly<Record<string, ScenarioResult>>} Results */

const FILE = 'results.json'

/**
 * @param {string} folder
 * @returns {Results}
 */
export function readResults(folder) {
  const file = join(folder, FILE)
  return existsSync(file) ? JSON.parse(readFileSync(file, 'utf8')) : {}
}

/**
 * @param {string} folder
 * @param {Results} results
 */
export function writeResults(folder, results) {
  writeFileSync(join(folder, FILE), `${JSON.stringify(results, roundedNumber, 1)}\n`)
}

/**
 * Six digits are more than a measurement is worth.
 * @param {string} _key
 * @param {unknown} value
 */
function roundedNumber(_key, value) {
  return typeof value === 'number' ? Number(value.toPrecision(6)) : value
}
