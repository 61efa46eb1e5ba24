/** Keeps both cores awake, with processes that run only when nothing else does. */

import { Child, LOAD_CORE, PROXY_CORE } from './children.mjs'

/** In the scheduler's idle class: whoever wakes up takes the core at once. */
const SPIN = { command: 'chrt', args: ['--idle', '0', 'sh', '-c', 'while :; do :; done'] }

/**
 * @param {string} folder For their output, which is none.
 * @returns {() => Promise<void>} lets the cores sleep again
 */
export function keepAwake(folder) {
  const spinning = [PROXY_CORE, LOAD_CORE].map((core) => new Child(SPIN, { core, folder, name: `awake-${core}` }))
  return async () => {
    await Promise.all(spinning.map((child) => child.stop()))
  }
}
