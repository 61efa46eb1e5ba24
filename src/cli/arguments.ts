/** The command line: turns it into one of the commands. */

import { parseArgs } from 'node:util'
import { COMMANDS, type CommandDeclaration, type CommandName, helpOf, helpText, OPTIONS } from './commands.ts'

type Values = ReturnType<typeof parse>['values']

/** Options that the command does not take are undefined. */
export interface Command extends Readonly<Partial<Omit<Values, 'config' | 'help' | 'version' | 'port'>>> {
  readonly name: CommandName
  readonly file?: string | undefined
  /** If there are several. */
  readonly files?: readonly string[] | undefined
  readonly port?: number | undefined
  /** What stands behind the command. */
  readonly operand?: string | undefined
  /** Of `help`. */
  readonly text?: string | undefined
}

/** The command line is wrong. The message is the one line to print. */
export class UsageError extends Error {
  constructor(problem: string) {
    super(`org-access-proxy: ${problem}; see org-access-proxy --help`)
  }
}

/** `argv` without the program and the script. @throws {UsageError} */
export function parseArguments(argv: readonly string[]): Command {
  const { values, positionals } = parse(argv)
  const [name = 'serve', operand, ...more] = positionals
  if (values.help === true) return helpFor(name === 'help' ? (operand ?? '') : positionals[0])
  if (values.version === true) return { name: 'version' }
  if (!isCommand(name)) throw new UsageError(`there is no command ${quoted(name)}`)
  const { options, repeated, required = [], operand: expected, insteadOfOperand }: CommandDeclaration = COMMANDS[name]
  const known: readonly string[] = options
  for (const [option, value] of Object.entries(values)) {
    if (!known.includes(option)) throw new UsageError(`${name} takes no --${option}`)
    const given = [value].flat()
    if (given.includes('')) throw new UsageError(`--${option} needs a value`)
    if (given.length > 1 && option !== repeated) throw new UsageError(`${name} takes one --${option}`)
  }
  if (name === 'help') return helpFor(operand)
  const surplus = expected === undefined ? operand : more[0]
  if (surplus !== undefined) throw new UsageError(`give one command; ${quoted(surplus)} is a second one`)
  for (const option of required) if (values[option] === undefined) throw new UsageError(`${name} needs --${option}`)
  const isReplaced = insteadOfOperand !== undefined && values[insteadOfOperand] === true
  if (isReplaced && operand !== undefined) throw new UsageError(`give ${expected} or --${insteadOfOperand}, not both`)
  if (expected !== undefined && operand === undefined && !isReplaced) {
    const or = insteadOfOperand === undefined ? '' : ` or --${insteadOfOperand}`
    throw new UsageError(`${name} needs ${expected}${or}`)
  }
  const { config: files = [], help: _, version: __, port, ...others } = values
  const named = files.length > 1 ? { files } : { file: files[0] }
  return { name, ...named, ...others, operand, port: port === undefined ? undefined : portOf(port) }
}

function helpFor(name: string | undefined): Command {
  return { name: 'help', text: name !== undefined && isCommand(name) && name !== 'help' ? helpOf(name) : helpText }
}

function portOf(text: string): number {
  if (/^\d{1,5}$/.test(text) && Number(text) <= 65_535) return Number(text)
  throw new UsageError('--port needs a number from 0 to 65535')
}

function isCommand(name: string): name is CommandName {
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
