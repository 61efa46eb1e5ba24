/** Everything that ends the program before it runs, as lines that say what to do, and its exit code. */

import { UsageError } from './cli/arguments.ts'
import { ConfigRefused, describeProblem } from './config/problem.ts'

/** Configuration refused (EX_CONFIG of sysexits.h). */
const EXIT_CONFIG = 78

export interface StartupFailure {
  readonly lines: readonly string[]
  readonly exitCode: 1 | typeof EXIT_CONFIG
}

export function explainStartupFailure(error: unknown): StartupFailure {
  if (error instanceof ConfigRefused) return { lines: error.problems.map(describeProblem), exitCode: EXIT_CONFIG }
  if (error instanceof UsageError) return { lines: [error.message], exitCode: 1 }
  return { lines: [`org-access-proxy: ${describe(error)}`], exitCode: 1 }
}

function describe(error: unknown): string {
  if (!(error instanceof Error)) return 'unexpected failure'
  const { code, address, port } = error as NodeJS.ErrnoException & { address?: string; port?: number }
  const place = placeOf(address, port)
  switch (code) {
    case 'EADDRINUSE':
      return `${place} is in use: stop what listens there, or choose another address`
    case 'EACCES':
      return `${place} may not be used by this user: choose a port above 1023, or a folder that exists and that it may write to`
    case 'EADDRNOTAVAIL':
      return `${place} is no address of this machine`
    case 'EMFILE':
    case 'ENFILE':
      return 'too few files may be open at once to start: raise the limit (ulimit -n), to 256 at the least'
    default:
      return error.message
  }
}

function placeOf(address: string | undefined, port: number | undefined): string {
  if (address === undefined) return 'the address'
  return port === undefined || port < 0 ? address : `${address}:${port}`
}
