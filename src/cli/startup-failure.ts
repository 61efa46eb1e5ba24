/** Errors that end the program before it runs, as lines for people, and the exit code. */

import { ConfigRefused } from '../config/problem.ts'
import { UsageError } from './arguments.ts'

/** EX_CONFIG of sysexits.h: the configuration was refused. */
const EXIT_CONFIG = 78

export function explainStartupFailure(error: unknown): { readonly text: string; readonly exitCode: number } {
  if (error instanceof ConfigRefused) return { text: `${error.message}\n`, exitCode: EXIT_CONFIG }
  if (error instanceof UsageError) return { text: `${error.message}\n`, exitCode: 1 }
  return { text: `org-access-proxy: ${describe(error)}\n`, exitCode: 1 }
}

function describe(error: unknown): string {
  if (!(error instanceof Error)) return 'unexpected failure'
  const {
    message,
    code,
    address = 'the address',
    port = -1,
  }: Error & { code?: string; address?: string; port?: number } = error
  const isPort = port >= 0 // the error of a unix socket has no port, or -1
  const place = isPort ? `${address}:${port}` : address
  switch (code) {
    case 'EADDRINUSE':
      return `${place} is in use: stop the program that listens there, or choose another address`
    case 'EACCES': // also for a unix socket in a folder that does not exist
      return isPort
        ? `${place} may not be used by this user: choose a port above 1023`
        : `${place} cannot be made: choose a folder that exists and that this user may write to`
    case 'EADDRNOTAVAIL':
      return `${place} is not an address of this machine: choose one that is`
    default:
      // Node's module loader gives such errors other codes and keeps the text.
      return /EMFILE|ENFILE|too many open files/i.test(message)
        ? 'too few file descriptors to start: raise the limit (ulimit -n) to 256 or more'
        : message
  }
}
