/** A configuration in the making: what was given for each key, what it came to, and what is wrong so far. */

import { dirname, resolve } from 'node:path'
import { type Environment, readEnvironment } from './environment.ts'
import type { Given } from './given.ts'
import type { Problem, Source } from './problem.ts'
import type { Remark } from './relations.ts'
import { type Setting, type SettingKey, type SettingValues, settings } from './settings.ts'
import { readSettingsFile } from './settings-file.ts'

/** Never repeated in a message: each could hold a secret that was put in the wrong place. */
const NEVER_QUOTED: ReadonlySet<SettingKey> = new Set(['appId', 'appSecret', 'baseUrl'])

const PATHS: ReadonlySet<SettingKey> = new Set(['appSecretFile', 'listen.callerKeyFile', 'origin.caFile'])

export class Draft {
  readonly values: SettingValues
  readonly problems: Problem[]
  /** False where the file could not be understood, so that nothing can be said to be missing. */
  readonly #isComplete: boolean
  readonly #given: ReadonlyMap<SettingKey, Given>

  private constructor(given: ReadonlyMap<SettingKey, Given>, problems: readonly Problem[], isComplete: boolean) {
    this.#given = given
    this.#isComplete = isComplete
    this.problems = [...problems]
    this.values = Object.fromEntries(settings.map((setting) => [setting.key, this.#parse(setting)])) as SettingValues
  }

  /** Environment over file; the defaults come in where each setting is parsed. */
  static async read(file: string | undefined, env: Environment): Promise<Draft> {
    const fromEnvironment = readEnvironment(env)
    if (file === undefined) return new Draft(fromEnvironment, [], true)
    const fromFile = await readSettingsFile(file)
    return new Draft(new Map([...fromFile.values, ...fromEnvironment]), fromFile.problems, fromFile.isUnderstood)
  }

  sourceOf(setting: Setting): Source {
    return this.#given.get(setting.key)?.source ?? { kind: setting.fallback === undefined ? 'unset' : 'default' }
  }

  /** As it was given, or the default. */
  writtenOf(setting: Setting): unknown {
    return this.#given.has(setting.key) ? this.#given.get(setting.key)?.value : setting.fallback
  }

  report(remark: Remark): void {
    this.problems.push(this.locate(remark))
  }

  /** The remark with where the value came from that it is about. */
  locate({ key, message }: Remark): Problem {
    return { key, source: this.#given.get(key)?.source ?? { kind: 'default' }, message }
  }

  /** For a key that must be given; silent where something else is already said about it. */
  reportMissing(key: SettingKey, message: string): void {
    if (!this.#isComplete || this.hasProblemWith(key)) return
    this.problems.push({ key, source: { kind: 'unset' }, message })
  }

  hasProblemWith(key: SettingKey): boolean {
    return this.problems.some((problem) => problem.key === key)
  }

  #parse(setting: Setting): unknown {
    const given = this.#given.get(setting.key)
    if (given === undefined && setting.isRequired) {
      this.reportMissing(setting.key, `is required: set it in the config file, or as ${setting.variable}`)
      return undefined
    }
    const result = setting.schema.safeParse(given?.value)
    if (result.success) return PATHS.has(setting.key) ? resolvedAt(given?.source, result.data) : result.data
    const complaints = result.error.issues.map(({ path, message }) =>
      NEVER_QUOTED.has(setting.key) ? message : `${quote(valueAt(given?.value, path[0]))}${message}`,
    )
    for (const message of new Set(complaints)) this.report({ key: setting.key, message })
    return undefined
  }
}

/** Relative to where it was written: in a file that file's folder, else the working directory. */
function resolvedAt(source: Source | undefined, path: unknown): unknown {
  if (typeof path !== 'string') return path
  return source?.kind === 'file' ? resolve(dirname(source.path), path) : resolve(path)
}

function valueAt(value: unknown, index: PropertyKey | undefined): unknown {
  return Array.isArray(value) && typeof index === 'number' ? value[index] : value
}

function quote(value: unknown): string {
  switch (typeof value) {
    case 'string':
      return `${JSON.stringify(value.length > 60 ? `${value.slice(0, 60)}…` : value)} `
    case 'number':
    case 'boolean':
      return `${value} `
    default:
      return ''
  }
}
