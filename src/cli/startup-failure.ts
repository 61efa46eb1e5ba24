/** Errors that end the program before it runs, as lines for people, and the exit code. */

import { ConfigRefused } from '../config/problem.ts'
import { UsageError } from './arguments.ts'

/** EX_CONFIG of sysexits.h: the configuration was refused. */
const EXIT_CONFIG = 78

interface StartupFailure {
  readonly lines: readonly string[]
  readonly exitCode: 1 | typeof EXIT_CONFIG
}

export function explainStartupFailure(error: unknown): StartupFailure {
  if (error instanceof ConfigRefused) return { lines: error.message.split('\n'), exitCode: EXIT_CONFIG }
  if (error instanceof UsageError) return { lines: [error.message], exitCode: 1 }
  return { lines: [`org-access-proxy: ${describe(error)}`], exitCode: 1 }
}

function describe(error: unknown): string {
  if (!(error instanceof Error)) return 'unexpected failure'
  const { code, address, port } = error as NodeJS.ErrnoException & { address?: string; port?: number }
  const place = placeOf(address, port)
  switch (code) {
    case 'EADDRINUSE':
      return `${place} is in use: stop the program that listens there, or choose another address`
    case 'EACCES': // also for a unix socket in a folder that does not exist
      return isPort(port)
        ? `${place} may not be used by this user: choose a port above 1023`
        : `${place} cannot be made: choose a folder that exists and that this user may write to`
    case 'EADDRNOTAVAIL':
      return `${place} is not an address of this machine: choose one that is`
    default:
      return isOutOfDescriptors(error)
        ? 'too few file descriptors to start: raise the limit (ulimit -n) to 256 or more'
        : error.message
  }
}

/** Node's module loader gives such errors other codes and keeps the text. */
function isOutOfDescriptors({ message }: Error): boolean {
  return /EMFILE|ENFILE|too many open files/i.test(message)
}

function placeOf(address: string | undefined, port: number | undefined): string {
  if (address === undefined) return 'the address'
  return isPort(port) ? `${address}:${port}` : address
}

/** The error of a unix socket has no port, or -1. */
function isPort(port: number | undefined): boolean {
  return port !== undefined && port >= 0
}
