/** A configuration being loaded: the given values, the parsed values, the files, and the problems and warnings so far. */

import { dirname, resolve } from 'node:path'
import type { z } from 'zod'
import { type FileContent, FileUnreadable, readRegularFile } from '../watched-file.ts'
import {
  describeProblem,
  type Given,
  type NamedFile,
  type Path,
  type Place,
  type Problem,
  type Remark,
  type Source,
} from './problem.ts'
import { namesIn, type Setting, type SettingKey, type SettingValues, settings, unknownName } from './settings.ts'
import { Unsuitable } from './types.ts'

/** These values are never quoted in a message: each could be a secret in the wrong place. */
const NEVER_QUOTED: ReadonlySet<SettingKey> = new Set(['appId', 'appSecret', 'baseUrl', 'fleet.store'])

export class Draft {
  readonly values: SettingValues
  readonly problems: Problem[]
  readonly warnings: string[] = []
  /** The files that a reload depends on. */
  readonly files = new Map<string, NamedFile>()
  readonly #given: ReadonlyMap<SettingKey, Given>
  /** False if the config file could not be parsed. No setting can then be called missing. */
  readonly #isComplete: boolean
  readonly #folder: string | undefined

  /** `folder`: where relative paths in the file begin, if not in the file's own folder. */
  constructor(
    given: ReadonlyMap<SettingKey, Given>,
    problems: readonly Problem[],
    isComplete: boolean,
    folder: string | undefined,
  ) {
    this.#given = given
    this.#isComplete = isComplete
    this.#folder = folder
    this.problems = [...problems]
    this.values = Object.fromEntries(settings.map((setting) => [setting.key, this.#parse(setting)])) as SettingValues
  }

  sourceOf({ key, defaultValue }: Setting): Source {
    return this.#given.get(key)?.source ?? { kind: defaultValue === undefined ? 'unset' : 'default' }
  }

  /** As it was written, whether or not it is right. Undefined if it was not given. */
  givenValue(key: SettingKey): unknown {
    return this.#given.get(key)?.value
  }

  report(remark: Remark): void {
    this.problems.push(this.#locate(remark))
  }

  warn(remark: Remark): void {
    this.warnings.push(describeProblem(this.#locate(remark)))
  }

  /** Reports a required setting that is missing, unless its value is already a problem. */
  reportMissing(key: SettingKey, message: string): void {
    if (!this.#isComplete || this.hasProblemWith(key)) return
    this.problems.push({ key, source: { kind: 'unset' }, message })
  }

  hasProblemWith(key: SettingKey): boolean {
    return this.problems.some((problem) => problem.key === key)
  }

  /** Runs `read`. If it finds something unsuitable, that is reported, and the result is undefined. */
  async attempt<T>(place: Place, read: () => T | Promise<T>): Promise<T | undefined> {
    try {
      return await read()
    } catch (error) {
      if (!(error instanceof Unsuitable) && !(error instanceof FileUnreadable)) throw error
      this.report({ ...place, message: error.message })
      return undefined
    }
  }

  /** Reads a file that a reload depends on. @throws {FileUnreadable} */
  async read({ key }: Place, path: string, maxBytes?: number): Promise<FileContent> {
    const keys = new Set(this.files.get(path)?.keys).add(key)
    this.files.set(path, { bytes: undefined, keys })
    const content = await readRegularFile(path, maxBytes)
    this.files.set(path, { bytes: content.bytes, keys })
    return content
  }

  /** Resolves a path against the place it was written: the folder of the file, or else the working directory. */
  resolvePath(key: SettingKey, path: string): string {
    const source = this.#given.get(key)?.source
    return source?.kind === 'file' ? resolve(this.#folder ?? dirname(source.path), path) : resolve(path)
  }

  #locate({ key, path = [], message }: Remark): Problem {
    const given = this.#given.get(key)
    const source = given?.placeOf?.(path) ?? given?.source ?? { kind: 'default' }
    return { key: key + textOf(path), source, message }
  }

  #parse(setting: Setting): unknown {
    const { key } = setting
    const given = this.#given.get(key)
    const { success, data, error } = setting.schema.safeParse(given?.value)
    if (success) return key.endsWith('File') && typeof data === 'string' ? this.resolvePath(key, data) : data
    if (given === undefined) return undefined // required and missing
    const remarks = error.issues.flatMap((issue) => remarksOn(setting, given.value, issue))
    // Several checks of one value may find the same.
    const distinct = new Map(remarks.map((remark) => [`${textOf(remark.path)} ${remark.message}`, remark]))
    for (const remark of distinct.values()) this.report(remark)
    return undefined
  }
}

function textOf(path: Path = []): string {
  return path.map((step) => (typeof step === 'number' ? `[${step}]` : `.${step}`)).join('')
}

function remarksOn({ key, notation, schema }: Setting, value: unknown, issue: z.core.$ZodIssue): Remark[] {
  const { message } = issue
  const path = issue.path.map((step) => (typeof step === 'number' ? step : String(step)))
  if (notation !== 'mappings') {
    const quoted = NEVER_QUOTED.has(key) ? '' : quote(valueAt(value, path[0]))
    return [{ key, message: `${quoted}${message}` }]
  }
  if (issue.code !== 'unrecognized_keys') return [{ key, path, message }]
  return issue.keys.map((name) => ({ key, path: [...path, name], message: unknownName(name, namesIn(schema)) }))
}

function valueAt(value: unknown, index: string | number | undefined): unknown {
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
