/** The sandbox: behind the origin as its token endpoint, where each mint takes some time and is counted, or as the service. */

import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { APP_SECRET, productProgram } from '../candidates/org-access-proxy.mjs'
import { Child, LOAD_CORE } from '../harness/children.mjs'
import { fetchText, untilAnswering } from '../harness/readiness.mjs'

/**
 * @typedef {object} TokenService
 * @property {(switches: Readonly<Record<string, unknown>>) => Promise<void>} set Changes these.
 * @property {() => Promise<number>} mints How many calls of the token endpoint it has had so far.
 * @property {() => Promise<void>} stop
 */

/**
 * @param {number} port
 * @param {string} folder
 * @param {Readonly<Record<string, unknown>>} switches
 * @param {string} [secret] Of the App.
 * @returns {Promise<TokenService>}
 */
export async function startTokenService(port, folder, switches, secret = APP_SECRET) {
  const file = join(folder, 'token-service.json')
  writeFileSync(file, JSON.stringify({ sandbox: { linked: '*', ...switches } }))
  const program = productProgram('sandbox', '--port', String(port), '--like', file)
  const placement = { core: LOAD_CORE, folder, name: 'token-service' }
  const child = new Child({ ...program, env: { OAP_APP_SECRET: secret } }, placement)
  await untilAnswering(port, '/sandbox/stats', child)
  const url = `http://127.0.0.1:${port}/sandbox`
  return {
    set: async (changed) =>
      void (await fetchText(`${url}/switches`, { method: 'PUT', content: JSON.stringify(changed) })),
    mints: async () => JSON.parse(await fetchText(`${url}/stats`)).totals.mints,
    stop: () => child.stop(),
  }
}
