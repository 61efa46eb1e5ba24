/** A candidate is a proxy that the bench can start and measure. */

import { mkdtempSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { Child, PROXY_CORE } from '../harness/children.mjs'
import { freePort } from '../harness/ports.mjs'
import { untilAnswering } from '../harness/readiness.mjs'

/**
 * The place of a proxy: its port, and the origin behind it.
 * @typedef {object} Site
 * @property {number} port
 * @property {string} originUrl
 * @property {string} caFile The certificate to trust, for an https origin.
 * @property {string} folder For its own files; it is deleted afterwards.
 * @property {Readonly<Record<string, unknown>>} settings Further settings of this program; peers have none.
 */

/**
 * @typedef {object} Candidate
 * @property {string} name
 * @property {string} title
 * @property {() => string | undefined} missing Why it cannot run on this machine, if it cannot.
 * @property {boolean} tunnelsWebSockets
 * @property {boolean} [isSecure] Its clients speak TLS.
 * @property {boolean} [isVariant] This program, of another revision or on another Node.
 * @property {((site: Site) => import('../harness/children.mjs').Program | Promise<import('../harness/children.mjs').Program>) | undefined} program
 *   Undefined where nothing stands before the origin.
 */

/**
 * @typedef {object} RunningProxy
 * @property {string} url The load requests this URL.
 * @property {number} port
 * @property {number | undefined} pid Undefined where nothing stands before the origin.
 * @property {number} startMs From the start of the process to its first proxied answer.
 * @property {() => Promise<void>} stop
 */

/**
 * @param {import('../harness/bench.mjs').Bench} bench
 * @param {Candidate} candidate
 * @param {{ readonly originUrl?: string, readonly settings?: Site['settings'] }} [options]
 * @returns {Promise<RunningProxy>}
 */
export async function startCandidate({ origin, folder }, candidate, { originUrl = origin.url, settings = {} } = {}) {
  if (candidate.program === undefined) return directly(originUrl)
  const ownFolder = mkdtempSync(join(folder, `${candidate.name}-`))
  const port = await freePort()
  const program = await candidate.program({ port, originUrl, caFile: origin.caFile, folder: ownFolder, settings })
  const startedAt = performance.now()
  const child = new Child(program, { core: PROXY_CORE, folder: ownFolder, name: 'output' })
  const stop = async () => {
    await child.stop()
    rmSync(ownFolder, { recursive: true, force: true })
  }
  try {
    await untilAnswering(port, '/v2/small', child, candidate.isSecure)
    const startMs = performance.now() - startedAt
    const scheme = candidate.isSecure ? 'https' : 'http'
    return { url: `${scheme}://127.0.0.1:${port}`, port, pid: child.pid, startMs, stop }
  } catch (error) {
    await stop()
    throw new Error(`${candidate.title} did not start`, { cause: error })
  }
}

/**
 * @param {string} originUrl
 * @returns {RunningProxy}
 */
function directly(originUrl) {
  return {
    url: originUrl,
    port: Number(new URL(originUrl).port),
    pid: undefined,
    startMs: 0,
    stop: async () => undefined,
  }
}
