/** The one declaration of the commands and their options. Parser, help, completions and man page are derived from it. */

export interface OptionDeclaration {
  readonly type: 'string' | 'boolean'
  readonly short?: string
  readonly multiple?: boolean
  /** Stands for the value in help texts: `FILE` completes to files. */
  readonly value?: string
  readonly says: string
}

export const OPTIONS = {
  config: {
    type: 'string',
    short: 'c',
    multiple: true,
    value: 'FILE',
    says: 'the configuration file; OAP_CONFIG names it, too',
  },
  mint: { type: 'string', value: 'ORG', says: 'get one real token for this Org, and print the outcome' },
  json: { type: 'boolean', says: 'print JSON' },
  yaml: { type: 'boolean', says: 'print only the settings that follow, as a configuration file' },
  org: { type: 'string', value: 'ORG', says: 'the Org' },
  path: { type: 'string', value: 'PATH', says: 'the path that the GETs ask for; /v2/example/endpoint by default' },
  wait: { type: 'string', value: 'DURATION', says: 'measure how long tokens live, for so long, such as 30m' },
  yes: { type: 'boolean', says: 'do not ask before anything is sent' },
  caller: { type: 'string', value: 'NAME', says: 'the caller that sends the request' },
  all: { type: 'boolean', says: 'of every Org' },
  port: { type: 'string', value: 'N', says: 'the port on 127.0.0.1; 9080 by default, 0 takes a free one' },
  like: { type: 'string', value: 'FILE', says: 'behave as the service did in this output of probe --json' },
  help: { type: 'boolean', short: 'h', says: 'print the help; of the command, if one is named' },
  version: { type: 'boolean', short: 'v', says: 'print the version' },
} as const satisfies Readonly<Record<string, OptionDeclaration>>

export type OptionName = keyof typeof OPTIONS

export interface CommandDeclaration {
  readonly says: string
  readonly options: readonly OptionName[]
  /** The option that may be given several times. */
  readonly repeated?: OptionName
  /** Options that must be given. */
  readonly required?: readonly OptionName[]
  /** The one argument behind the command. */
  readonly operand?: string
  /** The option that may stand in the place of the operand. */
  readonly insteadOfOperand?: OptionName
}

export const COMMANDS = {
  serve: {
    says: 'run the proxy (the default); with several files, one for each',
    options: ['config'],
    repeated: 'config',
  },
  check: {
    says: 'check the settings, and print each with its source',
    options: ['config', 'mint'],
    repeated: 'config',
  },
  explain: {
    says: 'say what would happen to a request; nothing is sent',
    options: ['config', 'org', 'caller'],
    operand: '"METHOD /path"',
  },
  probe: {
    says: 'measure the service with one Org: findings, evidence, settings',
    options: ['config', 'org', 'path', 'wait', 'yaml', 'json', 'yes'],
    required: ['org'],
  },
  status: { says: 'print the status of the running proxy', options: ['config', 'json'] },
  purge: {
    says: 'drop the token of one Org, or of all',
    options: ['config', 'all'],
    operand: 'ORG',
    insteadOfOperand: 'all',
  },
  resume: { says: 'end the pauses and limits of mints', options: ['config'] },
  reload: { says: 'read the configuration and the secret again', options: ['config'] },
  stop: { says: 'drain the proxy and wait for its end (needs admin.quit)', options: ['config'] },
  healthcheck: { says: 'ask the running proxy for /livez; exit 0 or 1', options: ['config'] },
  sandbox: { says: 'run the stand-in service alone', options: ['port', 'like'] },
  help: { says: 'print the help', options: [] },
  version: { says: 'print the version', options: [] },
} as const satisfies Readonly<Record<string, CommandDeclaration>>

export type CommandName = keyof typeof COMMANDS

export const COMMAND_NAMES = Object.keys(COMMANDS) as CommandName[]

export const EXIT_CODES = 'Exit codes: 0 stopped, good or ready; 1 failed; 78 configuration refused.'

/** Fits on one screen of 24 by 80. */
export const helpText = `org-access-proxy turns X-Org-Id into the Org's bearer token.
Usage: org-access-proxy [COMMAND] [OPTIONS]    (COMMAND --help: its options)

${COMMAND_NAMES.filter((name) => name !== 'help' && name !== 'version')
  .map((name) => `  ${name.padEnd(13)}${COMMANDS[name].says}\n`)
  .join('')}  --help, --version

${EXIT_CODES}
Settings come from the environment (OAP_TOKENS_MAX_ORGS for tokens.maxOrgs),
then the file of -c, --config (YAML), then defaults. Three have no default:

  OAP_APP_ID=my-app OAP_APP_SECRET_FILE=/run/secrets/app-secret \\
  OAP_BASE_URL=https://api.example.com org-access-proxy
`

/** `org-access-proxy check [-c FILE] [--mint ORG]`. */
export function usageOf(name: CommandName): string {
  const { options, repeated, required = [], operand, insteadOfOperand }: CommandDeclaration = COMMANDS[name]
  const shown = options
    .filter((option) => option !== insteadOfOperand)
    .map((option) => {
      const text = optionText(option)
      return required.includes(option) ? text : `[${text}]${option === repeated ? '...' : ''}`
    })
  const last = insteadOfOperand === undefined ? operand : `${operand} | ${optionText(insteadOfOperand)}`
  return ['org-access-proxy', name, ...shown, ...(last === undefined ? [] : [last])].join(' ')
}

function optionText(option: OptionName): string {
  const { value, short }: OptionDeclaration = OPTIONS[option]
  const flag = short === undefined ? `--${option}` : `-${short}`
  return value === undefined ? flag : `${flag} ${value}`
}

/** `-c, --config FILE`. */
export function optionNames(option: OptionName): string {
  const { value, short }: OptionDeclaration = OPTIONS[option]
  const long = value === undefined ? `--${option}` : `--${option} ${value}`
  return short === undefined ? long : `-${short}, ${long}`
}

export function helpOf(name: CommandName): string {
  const { says, options }: CommandDeclaration = COMMANDS[name]
  const width = Math.max(0, ...options.map((option) => optionNames(option).length)) + 2
  const rows = options.map((option) => `  ${optionNames(option).padEnd(width)}${OPTIONS[option].says}\n`).join('')
  return `Usage: ${usageOf(name)}\n\n${name}: ${says}\n${rows === '' ? '' : `\n${rows}`}`
}
