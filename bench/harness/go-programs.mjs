/** The programs of `bench/go`, built when the first one asks for them. */

import { execFileSync } from 'node:child_process'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { isInstalled } from './children.mjs'

const SOURCES = fileURLToPath(new URL('../go/', import.meta.url))
const BINARIES = fileURLToPath(new URL('../bin/', import.meta.url))

let isBuilt = false

/** @returns {string | undefined} why none can be built */
export function missingGo() {
  return isInstalled('go') ? undefined : 'go is not installed'
}

/**
 * @param {'reverse-proxy' | 'open-loop'} name
 * @returns {string} the path of the binary
 */
export function goProgram(name) {
  if (!isBuilt) {
    execFileSync('go', ['build', '-o', BINARIES, './...'], { cwd: SOURCES, stdio: ['ignore', 'ignore', 'inherit'] })
    isBuilt = true
  }
  return join(BINARIES, name)
}
