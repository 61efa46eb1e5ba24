/** The command line: its commands with their options, the help, and the parser that turns it into one of them. */

import { type ParseArgsConfig, parseArgs } from 'node:util'

/** The commands, each with the options that it takes. */
const COMMANDS = {
  serve: ['config'],
  check: ['config', 'mint'],
  status: ['config', 'json'],
  healthcheck: ['config'],
  sandbox: ['port'],
  help: [],
  version: [],
} as const satisfies Readonly<Record<string, readonly (keyof typeof OPTIONS)[]>>

const OPTIONS = {
  config: { type: 'string' },
  mint: { type: 'string' },
  json: { type: 'boolean' },
  port: { type: 'string' },
  help: { type: 'boolean', short: 'h' },
  version: { type: 'boolean', short: 'v' },
} as const satisfies ParseArgsConfig['options']

/** Options that the command does not take are undefined. */
interface Command {
  readonly name: keyof typeof COMMANDS
  readonly file?: string | undefined
  readonly mint?: string | undefined
  readonly json?: boolean | undefined
  readonly port?: number | undefined
}

/** The command line is wrong. The message is the one line to print. */
export class UsageError extends Error {
  constructor(problem: string) {
    super(`org-access-proxy: ${problem}; see org-access-proxy --help`)
  }
}

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
  const [name = 'serve', second] = positionals
  if (values.help === true) return { name: 'help' }
  if (values.version === true) return { name: 'version' }
  if (second !== undefined) throw new UsageError(`give one command; ${quoted(second)} is a second one`)
  if (!isCommand(name)) throw new UsageError(`there is no command ${quoted(name)}`)
  const known: readonly string[] = COMMANDS[name]
  for (const [option, value] of Object.entries(values)) {
    if (!known.includes(option)) throw new UsageError(`${name} takes no --${option}`)
    if (value === '') throw new UsageError(`--${option} needs a value`)
  }
  const { config: file, mint, json, port } = values
  if (port === undefined) return { name, file, mint, json }
  if (!/^\d{1,5}$/.test(port) || Number(port) > 65_535) throw new UsageError('--port needs a number from 0 to 65535')
  return { name, port: Number(port) }
}

function isCommand(name: string): name is Command['name'] {
  return Object.hasOwn(COMMANDS, name)
}

function parse(argv: readonly string[]) {
  try {
    return parseArgs({ args: [...argv], options: OPTIONS, allowPositionals: true })
  } catch (error) {
    // The first sentence of Node's message names the option and the problem.
    const [first = ''] = String((error as Error).message).split(/\.\s|\.?\n|\.$/)
    throw new UsageError(first)
  }
}

function quoted(word: string): string {
  return JSON.stringify(word.slice(0, 40))
}
