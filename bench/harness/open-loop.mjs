/** The open loop of `go/open-loop`: each request leaves at its time, whatever became of the others. */

import { runLoad } from './children.mjs'
import { goProgram } from './go-programs.mjs'

/**
 * @param {number} port
 * @param {number} rate Requests per second, small GETs.
 * @param {number} seconds
 * @returns {Promise<{ latenciesMs: number[], latenessMs: number[], failures: number }>}
 */
export async function runOpenLoop(port, rate, seconds) {
  const flags = { port, path: '/v2/small', rate, for: `${seconds}s` }
  const args = Object.entries(flags).flatMap(([flag, value]) => [`-${flag}`, String(value)])
  const lines = await runLoad({ command: goProgram('open-loop'), args })
  return JSON.parse(lines.at(-1) ?? '')
}
