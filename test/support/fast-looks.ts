/** In the process of the tests, watched files are looked at twenty times as often as the program does. */

import { LOOK_MS } from '../../src/watched-file.ts'

const FACTOR = 20
const { setInterval: platform } = globalThis

/** Once for a process: each file of tests calls it. */
export function lookOften(): void {
  const often = (run: () => void, delayMs?: number, ...args: []) =>
    platform(run, delayMs === LOOK_MS ? LOOK_MS / FACTOR : delayMs, ...args)
  globalThis.setInterval = Object.assign(often, platform)
}
