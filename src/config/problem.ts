/** A problem with the configuration: the setting, the source of its value, the fault, and the remedy. */

export interface Problem {
  /** A setting or a part of one (`callers[0].name`), an unknown name, or `config file` for the file as a whole. */
  readonly at: string
  /** `FILE:LINE:COLUMN`, the name of a variable, `default` or `not set`. */
  readonly source: string
  /** A predicate: the fault, then the remedy. */
  readonly message: string
}

/** Thrown by the parser of one setting. The message is a predicate, and never repeats text that may be a secret. */
export class Unsuitable extends Error {}

/** All at once, because nobody wants to correct one after the other. @throws {Unsuitable} */
export function throwFaults(faults: readonly (readonly [isFault: boolean | undefined, message: string])[]): void {
  const told = faults.flatMap(([isFault, message]) => (isFault ? [message] : []))
  if (told.length > 0) throw new Unsuitable(told.join('; '))
}

/** A URL, a query, or a name and its value (`client_secret=…`, `X-Key: …`, JSON): in whatever setting, it may be a secret. */
const MAY_HOLD_SECRET = /:\/\/|[=?"]|: /

/** On one line, and not long; empty for text that may hold a secret. */
export function quoted(text: string): string {
  if (MAY_HOLD_SECRET.test(text)) return ''
  return JSON.stringify(text.length > 60 ? `${text.slice(0, 60)}…` : text)
}

/** The place of a problem with the config file as a whole. */
export const WHOLE_FILE = 'config file'

/** A file that is none of ours can have thousands. */
export const MAX_PROBLEMS = 20

export class ConfigRefused extends Error {
  readonly problems: readonly Problem[]
  /** One line each. */
  readonly lines: readonly string[]
  /** A change of one of them may mend the problem. */
  readonly files: ReadonlySet<string>

  /** `hints` are lines that may name the cause, such as a misspelt variable. */
  constructor(problems: readonly Problem[], files: ReadonlySet<string> = new Set(), hints: readonly string[] = []) {
    const lines = problems.slice(0, MAX_PROBLEMS).map(describeProblem)
    if (problems.length > MAX_PROBLEMS) lines.push('there are more problems: is it the right file?')
    lines.push(...hints)
    super(lines.join('\n'))
    this.problems = problems
    this.lines = lines
    this.files = files
  }
}

/** What kept each of several instances in one process from starting. */
export class InstancesFailed extends Error {
  readonly failures: readonly unknown[]

  constructor(failures: readonly unknown[]) {
    super(failures.join('\n'))
    this.failures = failures
  }
}

export function describeProblem({ at, source, message }: Problem): string {
  return `${at} (${source}): ${message}`
}

/** Stands for a value that was given, and refused. One that was not given is undefined. */
export const WRONG: unique symbol = Symbol('wrong')

/** Undefined if it was not given, or is wrong. */
export function sound<T>(value: T | typeof WRONG): T | undefined {
  return value === WRONG ? undefined : value
}
