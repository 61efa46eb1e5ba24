/** The sandbox as the token endpoint behind the origin: each mint takes some time, and is counted. */

import { setTimeout as sleep } from 'node:timers/promises'
import { productProgram } from '../candidates/org-access-proxy.mjs'
import { Child, LOAD_CORE } from '../harness/children.mjs'
import { fetchText } from '../harness/readiness.mjs'

const DEADLINE_MS = 10_000

/**
 * @typedef {object} TokenService
 * @property {() => Promise<number>} mints How many tokens it has given so far.
 * @property {() => Promise<void>} stop
 */

/**
 * @param {{ port: number, folder: string, mintLatencyMs: number }} options
 * @returns {Promise<TokenService>}
 */
export async function startTokenService({ port, folder, mintLatencyMs }) {
  const placement = { core: LOAD_CORE, folder, name: 'token-service' }
  const child = new Child(productProgram('sandbox', '--port', String(port)), placement)
  const url = `http://127.0.0.1:${port}/sandbox`
  await turn(`${url}/switches`, { linked: '*', mintLatencyMs })
  return {
    mints: async () => JSON.parse(await fetchText(`${url}/stats`)).totals.tokens,
    stop: () => child.stop(),
  }
}

/**
 * @param {string} url
 * @param {Record<string, unknown>} switches
 */
async function turn(url, switches) {
  const deadline = performance.now() + DEADLINE_MS
  for (;;) {
    try {
      await fetchText(url, { method: 'PUT', content: JSON.stringify(switches) })
      return
    } catch (error) {
      if (performance.now() > deadline) throw error
      await sleep(20)
    }
  }
}
