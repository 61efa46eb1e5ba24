/** Errors that end the program before it runs, as lines for people, and the exit code. */

import { ConfigRefused, InstancesFailed } from '../config/problem.ts'
import { UsageError } from './arguments.ts'

/** EX_CONFIG of sysexits.h: the configuration was refused. */
const EXIT_CONFIG = 78

/** What to do about errors of the system, whose messages name the address. */
const REMEDIES: Readonly<Record<string, string>> = {
  EADDRINUSE: 'stop the program that listens there, or choose another address',
  EADDRNOTAVAIL: 'choose an address of this machine',
  EACCES: 'choose a port above 1023',
  EMFILE: 'raise the limit of open files (ulimit -n, LimitNOFILE)',
}

export function explainStartupFailure(error: unknown): { readonly text: string; readonly exitCode: number } {
  if (error instanceof ConfigRefused) return { text: `${error.message}\n`, exitCode: EXIT_CONFIG }
  if (error instanceof InstancesFailed) {
    const each = error.failures.map(explainStartupFailure)
    return { text: each.map(({ text }) => text).join(''), exitCode: Math.max(...each.map(({ exitCode }) => exitCode)) }
  }
  if (error instanceof UsageError) return { text: `${error.message}\n`, exitCode: 1 }
  const { message, code = '' }: NodeJS.ErrnoException = error instanceof Error ? error : new Error('unexpected failure')
  const remedy = REMEDIES[code]
  return { text: `org-access-proxy: ${message}${remedy === undefined ? '' : `: ${remedy}`}\n`, exitCode: 1 }
}
