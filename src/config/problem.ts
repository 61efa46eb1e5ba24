/** What is wrong with a configuration, and where it came from: one line for each problem, all of them at once. */

export type Source =
  | { readonly kind: 'unset' }
  | { readonly kind: 'default' }
  | { readonly kind: 'file'; readonly path: string; readonly line?: number; readonly column?: number }
  | { readonly kind: 'environment'; readonly variable: string }

export interface Problem {
  /** A setting's key, an unknown one as it was written, or `config file` for the file as a whole. */
  readonly key: string
  readonly source: Source
  /** What is wrong and what would be right, as a predicate of the key. */
  readonly message: string
}

export class ConfigRefused extends Error {
  override readonly name = 'ConfigRefused'
  readonly problems: readonly Problem[]

  constructor(problems: readonly Problem[]) {
    super(problems.map(describeProblem).join('\n'))
    this.problems = problems
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
