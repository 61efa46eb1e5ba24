/** The command line, taken apart into one of a closed set of commands. */

import { type ParseArgsConfig, parseArgs } from 'node:util'

export type Command =
  | { readonly name: 'serve'; readonly file: string | undefined }
  | { readonly name: 'check'; readonly file: string | undefined; readonly mint: string | undefined }
  | { readonly name: 'sandbox'; readonly port: number | undefined }
  | { readonly name: 'healthcheck'; readonly file: string | undefined }
  | { readonly name: 'help' }
  | { readonly name: 'version' }

/** The call was wrong; the message is the one line to print. */
export class UsageError extends Error {
  override readonly name = 'UsageError'
}

const OPTIONS = {
  config: { type: 'string' },
  mint: { type: 'string' },
  port: { type: 'string' },
  help: { type: 'boolean', short: 'h' },
  version: { type: 'boolean', short: 'v' },
} as const satisfies ParseArgsConfig['options']

type Values = ReturnType<typeof parse>['values']
type OptionName = keyof typeof OPTIONS

/** `argv` without the program and the script. @throws {UsageError} */
export function parseArguments(argv: readonly string[]): Command {
  const { values, positionals } = parse(argv)
  if (values.help === true) return { name: 'help' }
  if (values.version === true) return { name: 'version' }
  const [name = 'serve', ...rest] = positionals
  if (rest.length > 0) throw usage(`one command is enough, and ${quoted(rest[0])} is one too many`)
  switch (name) {
    case 'serve':
      refuseOthers(name, values, ['config'])
      return { name, file: nonEmpty(values, 'config') }
    case 'check':
      refuseOthers(name, values, ['config', 'mint'])
      return { name, file: nonEmpty(values, 'config'), mint: nonEmpty(values, 'mint') }
    case 'sandbox':
      refuseOthers(name, values, ['port'])
      return { name, port: portOf(values) }
    case 'healthcheck':
      refuseOthers(name, values, ['config'])
      return { name, file: nonEmpty(values, 'config') }
    case 'help':
    case 'version':
      refuseOthers(name, values, [])
      return { name }
    default:
      throw usage(`there is no command ${quoted(name)}`)
  }
}

function parse(argv: readonly string[]) {
  try {
    return parseArgs({ args: [...argv], options: OPTIONS, allowPositionals: true, strict: true })
  } catch (error) {
    // Node's text runs over several sentences; its first one names the option and what is wrong with it.
    const [first = 'the call is not understood'] = error instanceof Error ? error.message.split(/\.\s|\n/) : []
    throw usage(first.replace(/\.$/, ''))
  }
}

function refuseOthers(command: string, values: Values, known: readonly OptionName[]): void {
  const other = Object.keys(values).find((name) => !known.some((option) => option === name))
  if (other !== undefined) throw usage(`${command} takes no --${other}`)
}

function nonEmpty(values: Values, option: 'config' | 'mint'): string | undefined {
  const value = values[option]
  if (value === '') throw usage(`--${option} needs a value`)
  return value
}

function portOf({ port }: Values): number | undefined {
  if (port === undefined) return undefined
  if (!/^\d{1,5}$/.test(port) || Number(port) > 65_535) throw usage('--port needs a number from 0 to 65535')
  return Number(port)
}

function usage(message: string): UsageError {
  return new UsageError(`org-access-proxy: ${message}; see org-access-proxy --help`)
}

function quoted(word: string | undefined): string {
  return JSON.stringify((word ?? '').slice(0, 40))
}
