/**
 * Programs that some tests run and that npm does not install. `programs.json` names them, each with its Debian package, or
 * null if Debian has no usable one (its kubectl is too old). Where a program is missing, its tests are skipped and say why.
 * CI installs every package and fails if a test was still skipped for want of one.
 */

import { accessSync, constants } from 'node:fs'
import { join } from 'node:path'
import packages from './programs.json' with { type: 'json' }

export type ProgramName = keyof typeof packages

const { PATH = '' } = process.env
/** Debian installs servers in `sbin`, which the PATH of a user often lacks. */
const FOLDERS = [...PATH.split(':'), '/usr/sbin', '/sbin'].filter((folder) => folder !== '')

const told = new Set<ProgramName>()

/** The path of the program, or undefined if this machine has none. */
export function findProgram(name: ProgramName): string | undefined {
  return FOLDERS.map((folder) => join(folder, name)).find(isExecutable)
}

/** The path of a program whose tests are skipped without it. */
export function programPath(name: ProgramName): string {
  const path = findProgram(name)
  if (path === undefined) throw new Error(`no ${name} here (Debian package: ${packages[name] ?? 'none'})`)
  return path
}

/** For `test.skipIf` and `describe.skipIf`: true if one of the programs is missing, and says so. */
export function lacks(...names: readonly ProgramName[]): boolean {
  const missing = names.filter((name) => findProgram(name) === undefined)
  for (const name of missing) {
    if (!told.has(name)) console.warn(`skipped: no ${name} here (Debian package: ${packages[name] ?? 'none'})`)
    told.add(name)
  }
  return missing.length > 0
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK)
    return true
  } catch {
    return false
  }
}
