/** The command line: its commands with their options and help, and the parser that turns it into one of them. */

import { type ParseArgsConfig, parseArgs } from 'node:util'

type Command =
  | { readonly name: 'serve'; readonly file: string | undefined }
  | {
      readonly name: 'check'
      readonly file: string | undefined
      readonly mint: string | undefined
      readonly diff: boolean
    }
  | { readonly name: 'status'; readonly file: string | undefined; readonly json: boolean }
  | { readonly name: 'healthcheck'; readonly file: string | undefined }
  | { readonly name: 'sandbox'; readonly port: number | undefined }
  | { readonly name: 'help'; readonly text: string }
  | { readonly name: 'version' }

/** The command line is wrong. The message is the one line to print. */
export class UsageError extends Error {
  override readonly name = 'UsageError'
}

const OPTIONS = {
  config: { type: 'string' },
  mint: { type: 'string' },
  diff: { type: 'boolean' },
  json: { type: 'boolean' },
  port: { type: 'string' },
  help: { type: 'boolean', short: 'h' },
  version: { type: 'boolean', short: 'v' },
} as const satisfies ParseArgsConfig['options']

type Values = ReturnType<typeof parse>['values']
type OptionName = keyof typeof OPTIONS

interface CommandHelp {
  readonly options: readonly OptionName[]
  /** Printed by `COMMAND --help`. */
  readonly text: string
}

const CONFIG_OPTION = `  --config FILE  configuration file (YAML); OAP_CONFIG names it too
`

const COMMANDS: Readonly<Record<'serve' | 'check' | 'status' | 'healthcheck' | 'sandbox', CommandHelp>> = {
  serve: {
    options: ['config'],
    text: `Usage: org-access-proxy [serve] [--config FILE]

Runs the proxy until SIGTERM or SIGINT. SIGHUP reloads.

${CONFIG_OPTION}
Exit codes: 0 stopped after draining; 1 failed, or the drain deadline cut
requests off; 78 the configuration was refused.
`,
  },
  check: {
    options: ['config', 'mint', 'diff'],
    text: `Usage: org-access-proxy check [--config FILE] [--mint ORG] [--diff]

Checks the configuration, and prints every setting with its value and source.
Secrets are masked.

${CONFIG_OPTION}  --mint ORG     also get one token for ORG from the token endpoint, and print
                 the URL and the outcome, never the token
  --diff         ask the running proxy at admin.address for the settings in
                 use, and print only what a reload would change

Exit codes: 0 good; 1 no token, or no answer from the running proxy; 78 the
configuration was refused.
`,
  },
  status: {
    options: ['config', 'json'],
    text: `Usage: org-access-proxy status [--config FILE] [--json]

Asks the running proxy for its status, and prints it: readiness, warnings,
errors with the Orgs concerned, tokens. Finds it by the setting admin.address,
so give it the same configuration as the proxy.

${CONFIG_OPTION}  --json         print everything as JSON, as /status has it

Exit codes: 0 ready; 1 not ready, or no answer.
`,
  },
  healthcheck: {
    options: ['config'],
    text: `Usage: org-access-proxy healthcheck [--config FILE]

Asks the running proxy for /livez, for containers without curl. Finds it by
the setting admin.address, so give it the same configuration as the proxy.

${CONFIG_OPTION}
Exit codes: 0 alive; 1 not.
`,
  },
  sandbox: {
    options: ['port'],
    text: `Usage: org-access-proxy sandbox [--port N]

Runs a stand-in for the service on 127.0.0.1, and prints commands to try.

  --port N  port; 9080 by default, 0 takes a free one
`,
  },
}

/** Printed by `--help`: every command on one screen of 24 by 80. */
export const helpText = `org-access-proxy turns X-Org-Id into the Org's bearer token: apps call it on
localhost, it holds the App secret and the tokens, so that no app has to.

Usage: org-access-proxy [COMMAND] [OPTIONS]

  serve [--config FILE]               run the proxy (the default command)
  check [--config FILE] [--mint ORG]  check the settings and print each with its
                                      source; --mint gets one real token
  status [--config FILE] [--json]     print the status of the running proxy
  healthcheck [--config FILE]         ask the running proxy for /livez; 0 or 1
  sandbox [--port N]                  run the stand-in service alone
  COMMAND --help, --version           help for one command; the version

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
  if (values.help === true)
    return { name: 'help', text: isCommand(positionals[0]) ? COMMANDS[positionals[0]].text : helpText }
  if (values.version === true) return { name: 'version' }
  if (rest.length > 0) throw usage(`give one command; ${quoted(rest[0])} is a second one`)
  if (name === 'help' || name === 'version') {
    refuseOthers(name, values, [])
    return name === 'help' ? { name, text: helpText } : { name }
  }
  if (!isCommand(name)) throw usage(`there is no command ${quoted(name)}`)
  refuseOthers(name, values, COMMANDS[name].options)
  switch (name) {
    case 'check':
      return { name, file: nonEmpty(values, 'config'), mint: nonEmpty(values, 'mint'), diff: values.diff === true }
    case 'sandbox':
      return { name, port: portOf(values) }
    case 'status':
      return { name, file: nonEmpty(values, 'config'), json: values.json === true }
    case 'serve':
    case 'healthcheck':
      return { name, file: nonEmpty(values, 'config') }
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
