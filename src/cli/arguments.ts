/** The command line: its commands with their options, the help, and the parser that turns it into one of them. */

import { type ParseArgsConfig, parseArgs } from 'node:util'

type Command =
  | { readonly name: 'serve'; readonly file: string | undefined }
  | { readonly name: 'check'; readonly file: string | undefined; readonly mint: string | undefined }
  | { readonly name: 'status'; readonly file: string | undefined; readonly json: boolean }
  | { readonly name: 'healthcheck'; readonly file: string | undefined }
  | { readonly name: 'sandbox'; readonly port: number | undefined }
  | { readonly name: 'help' | 'version' }

/** The command line is wrong. The message is the one line to print. */
export class UsageError extends Error {
  override readonly name = 'UsageError'
}

const OPTIONS = {
  config: { type: 'string' },
  mint: { type: 'string' },
  json: { type: 'boolean' },
  port: { type: 'string' },
  help: { type: 'boolean', short: 'h' },
  version: { type: 'boolean', short: 'v' },
} as const satisfies ParseArgsConfig['options']

type Values = ReturnType<typeof parse>['values']
type OptionName = keyof typeof OPTIONS

/** The commands, each with the options that it takes. */
const COMMANDS = {
  serve: ['config'],
  check: ['config', 'mint'],
  status: ['config', 'json'],
  healthcheck: ['config'],
  sandbox: ['port'],
  help: [],
  version: [],
} as const satisfies Readonly<Record<Command['name'], readonly OptionName[]>>

/** Fits on one screen of 24 by 80. */
export const helpText = `org-access-proxy turns X-Org-Id into the Org's bearer token: apps call it on
localhost, it holds the App secret and the tokens, so that no app has to.

Usage: org-access-proxy [COMMAND] [OPTIONS]

  serve [--config FILE]               run the proxy (the default command)
  check [--config FILE] [--mint ORG]  check the settings and print each with its
                                      source; --mint gets one real token
  status [--config FILE] [--json]     print the status of the running proxy
  healthcheck [--config FILE]         ask the running proxy for /livez; 0 or 1
  sandbox [--port N]                  run the stand-in service alone
  --help, --version                   this text; the version

Exit codes: 0 stopped, good or ready; 1 failed; 78 configuration refused.

Settings come from the environment (OAP_ and the key in upper snake case, such
as OAP_TOKENS_MAX_ORGS for tokens.maxOrgs), then from FILE (YAML), then from the
defaults. Three have no default:

  OAP_APP_ID=my-app OAP_APP_SECRET_FILE=/run/secrets/app-secret \\
  OAP_BASE_URL=https://api.example.com org-access-proxy
`

/** `argv` without the program and the script. @throws {UsageError} */
export function parseArguments(argv: readonly string[]): Command {
  const { values, positionals } = parse(argv)
  const [name = 'serve', ...rest] = positionals
  if (values.help === true) return { name: 'help' }
  if (values.version === true) return { name: 'version' }
  if (rest.length > 0) throw usage(`give one command; ${quoted(rest[0])} is a second one`)
  if (!isCommand(name)) throw usage(`there is no command ${quoted(name)}`)
  refuseOthers(name, values)
  switch (name) {
    case 'check':
      return { name, file: nonEmpty(values, 'config'), mint: nonEmpty(values, 'mint') }
    case 'sandbox':
      return { name, port: portOf(values) }
    case 'status':
      return { name, file: nonEmpty(values, 'config'), json: values.json === true }
    case 'serve':
    case 'healthcheck':
      return { name, file: nonEmpty(values, 'config') }
    case 'help':
    case 'version':
      return { name }
  }
}

function isCommand(name: string | undefined): name is keyof typeof COMMANDS {
  return name !== undefined && Object.hasOwn(COMMANDS, name)
}

function parse(argv: readonly string[]) {
  try {
    return parseArgs({ args: [...argv], options: OPTIONS, allowPositionals: true, strict: true })
  } catch (error) {
    // The first sentence of Node's message names the option and the problem.
    const [first = 'the command line is wrong'] = error instanceof Error ? error.message.split(/\.\s|\n/) : []
    throw usage(first.replace(/\.$/, ''))
  }
}

function refuseOthers(command: keyof typeof COMMANDS, values: Values): void {
  const known: readonly OptionName[] = COMMANDS[command]
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
