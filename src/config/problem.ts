/** A problem with the configuration: the setting, the source of its value, the fault, and the remedy. */

import type { SettingKey } from './settings.ts'

/** The source of a value. */
export type Source =
  | { readonly kind: 'unset' }
  | { readonly kind: 'default' }
  | { readonly kind: 'file'; readonly path: string; readonly line?: number; readonly column?: number }
  | { readonly kind: 'environment'; readonly variable: string }

/** A value as it was written, before it is checked. */
export interface Given {
  readonly value: unknown
  readonly source: Source
  /** In a file: the place of a part of the value. */
  readonly placeOf?: (path: Path) => Source
}

/** The files that a configuration was read from, by path. */
export type NamedFiles = ReadonlyMap<string, NamedFile>

export interface NamedFile {
  /** Undefined if the file could not be read. */
  readonly bytes: Buffer | undefined
  /** The settings that name it. The config file itself has none. */
  readonly keys: ReadonlySet<SettingKey>
}

export interface Problem {
  /** A setting's key, an unknown key as it was written, or `config file` for the file as a whole. */
  readonly key: string
  readonly source: Source
  /** A predicate of the key: the fault, then the remedy. */
  readonly message: string
}

/** Leads to a part of a value: `[0, 'jwt', 'issuer']`. */
export type Path = readonly (string | number)[]

/** A setting, or part of one. */
export interface Place {
  readonly key: SettingKey
  readonly path?: Path
}

/** A problem or a warning, before the source of the value is added. */
export interface Remark extends Place {
  readonly message: string
}

/** A file that is none of ours can have thousands. */
export const MAX_PROBLEMS = 20

export class ConfigRefused extends Error {
  override readonly name = 'ConfigRefused'
  readonly problems: readonly Problem[]
  /** A change of one of them may mend the problem. */
  readonly files: NamedFiles

  constructor(problems: readonly Problem[], files: NamedFiles = new Map()) {
    const lines = problems.slice(0, MAX_PROBLEMS).map(describeProblem)
    super(
      [...lines, ...(problems.length > MAX_PROBLEMS ? ['there are more problems: is it the right file?'] : [])].join(
        '\n',
      ),
    )
    this.problems = problems
    this.files = files
  }
}

export function describeProblem(problem: Problem): string {
  return `${problem.key} (${describeSource(problem.source)}): ${problem.message}`
}

export function describeSource(source: Source): string {
  switch (source.kind) {
    case 'unset':
      return 'not set'
    case 'default':
      return 'default'
    case 'file':
      return source.line === undefined ? source.path : `${source.path}:${source.line}:${source.column}`
    case 'environment':
      return source.variable
  }
}
