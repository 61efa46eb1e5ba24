/** Requests for many orgs, each equally often. */

import { fileURLToPath } from 'node:url'
import { runLoad } from './children.mjs'

const SCRIPT = fileURLToPath(new URL('../load/each-org.mjs', import.meta.url))
const CONNECTIONS = 64

/**
 * @typedef {object} EachOrgResult
 * @property {number} seconds
 * @property {Readonly<Record<string, number>>} answers How often each status came; `broken` where none did.
 * @property {number} p50Ms
 * @property {number} p99Ms
 */

/**
 * @param {number} port
 * @param {{ requests: number, orgs: number, connections?: number }} load
 * @returns {Promise<EachOrgResult>}
 */
export async function askForEachOrg(port, { requests, orgs, connections = CONNECTIONS }) {
  const args = [SCRIPT, port, '/v2/small', requests, orgs, connections].map(String)
  const lines = await runLoad({ command: process.execPath, args })
  return JSON.parse(lines.at(-1) ?? '')
}

/**
 * @param {number} port
 * @param {number} orgs
 */
export async function fillTokenCache(port, orgs) {
  const { answers } = await askForEachOrg(port, { requests: orgs, orgs })
  if (answers['200'] !== orgs) throw new Error(`of ${orgs} orgs not all got their answer: ${JSON.stringify(answers)}`)
}
