/** Runs in the worker before each file of tests: the slowness is measured anew, and watched files are looked at more often. */

import { LOOK_MS } from '../../src/watched-file.ts'
import { measureAnew } from './pace.ts'

const LOOKS = 20

const { setInterval: platform } = globalThis
const often = (run: () => void, delayMs?: number, ...args: []) =>
  platform(run, delayMs === LOOK_MS ? LOOK_MS / LOOKS : delayMs, ...args)
// Once in a worker, whose next file runs this again.
if (platform.name !== 'often') globalThis.setInterval = Object.assign(often, platform)

measureAnew()
