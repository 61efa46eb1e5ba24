/** A Redis server for fleets. */

import { execFileSync } from 'node:child_process'
import { setTimeout as sleep } from 'node:timers/promises'
import { Child, isInstalled, LOAD_CORE } from '../harness/children.mjs'

const DEADLINE_MS = 10_000

/** @returns {string | undefined} why there can be none */
export function missingStore() {
  return isInstalled('redis-server') ? undefined : 'no redis-server'
}

/**
 * @param {string} folder
 * @param {number} port
 */
export async function startStore(folder, port) {
  const args = ['--port', String(port), '--bind', '127.0.0.1', '--save', '', '--dir', folder]
  const child = new Child({ command: 'redis-server', args }, { core: LOAD_CORE, folder, name: 'store' })
  /** @param {string[]} command */
  const cli = (...command) =>
    execFileSync('redis-cli', ['-p', String(port), ...command], {
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'ignore'],
    })
  const deadline = performance.now() + DEADLINE_MS
  for (;;) {
    try {
      if (cli('ping').includes('PONG')) break
    } catch (error) {
      if (performance.now() > deadline) throw error
    }
    await sleep(20)
  }
  return {
    scripts: () => Number(/cmdstat_eval:calls=(\d+)/.exec(cli('info', 'commandstats'))?.[1] ?? 0),
    /** Of the tokens and leases, not of the server. */
    bytes: () =>
      cli('--scan', '--pattern', '*:t')
        .split('\n')
        .filter((key) => key !== '')
        .reduce((sum, key) => sum + Number(cli('memory', 'usage', key)), 0),
    stop: () => child.stop(),
  }
}
