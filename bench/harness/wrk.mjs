/** One run of wrk, the load of all throughput scenarios. */

import { fileURLToPath } from 'node:url'
import { runLoad } from './children.mjs'

const SCRIPT = fileURLToPath(new URL('../load/request.lua', import.meta.url))

/**
 * The request that wrk repeats.
 * @typedef {object} Load
 * @property {string} path
 * @property {number} connections
 * @property {string} [method] GET if left out.
 * @property {number} [contentBytes]
 * @property {number} [furtherFields] Beside Host and X-Org-Id.
 * @property {number} [leastSeconds] For requests so long that few of them would end in the usual time.
 * @property {boolean} [makesFewRequests] Too few for a dynamic compiler to finish its work in a warm-up.
 * @property {number} [orgs] Each request names one of this many orgs at random. If left out, all requests name the same org.
 * @property {Turns} [turns] Instead of `orgs`.
 */

/**
 * Repeats these numbers of orgs, each for `turnMs` milliseconds of the monotonic clock.
 * @typedef {object} Turns
 * @property {number} turnMs
 * @property {readonly number[]} orgs
 */

/**
 * @typedef {object} WrkResult
 * @property {number} requests
 * @property {number} refused Answers with a status of 400 and above.
 * @property {number} broken Connections that could not be made or broke, and answers that did not come.
 * @property {number | null} p50Ms Null if no answer came.
 * @property {number | null} p99Ms
 */

/**
 * @param {string} url
 * @param {Load} load
 * @param {number} seconds
 * @returns {Promise<WrkResult>}
 */
export async function runWrk(url, load, seconds) {
  const { path, connections, method = 'GET', contentBytes = 0, furtherFields = 0, orgs = 0 } = load
  const turns = load.turns ?? { turnMs: 0, orgs: [orgs] }
  const flags = ['-t', '1', '-c', String(connections), '-d', `${seconds}s`, '--timeout', '10s', '-s', SCRIPT]
  const request = [method, contentBytes, furtherFields, turns.turnMs, ...turns.orgs].map(String)
  const lines = await runLoad({ command: 'wrk', args: [...flags, url + path, '--', ...request] })
  return JSON.parse(lines.at(-1) ?? '')
}
