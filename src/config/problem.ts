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
  /** For a list of mappings in a file: the place of each part, by its path (`callers[0].name`). */
  readonly places?: ReadonlyMap<string, Source>
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

/** A setting, or part of one. */
export interface Place {
  readonly key: SettingKey
  /** In a list of mappings: `[0].jwt.issuer`. */
  readonly part?: string
}

/** A problem or a warning, before the source of the value is added. */
export interface Remark extends Place {
  readonly message: string
}

/** Thrown by the parser of one setting. The message is a predicate, and never repeats text that may be a secret. */
export class Unsuitable extends Error {
  override readonly name = 'Unsuitable'
}

export class ConfigRefused extends Error {
  override readonly name = 'ConfigRefused'
  readonly problems: readonly Problem[]
  /** A change of one of them may mend the problem. */
  readonly files: NamedFiles

  constructor(problems: readonly Problem[], files: NamedFiles = new Map()) {
    super(problems.map(describeProblem).join('\n'))
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
