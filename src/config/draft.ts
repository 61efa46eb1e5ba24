/** A configuration being loaded: the given values, the parsed values, and the problems so far. */

import { dirname, resolve } from 'node:path'
import type { z } from 'zod'
import type { Given, Problem, Remark, Source } from './problem.ts'
import { namesIn, type Setting, type SettingKey, type SettingValues, settings, unknownName } from './settings.ts'

/** These values are never quoted in a message: each could be a secret in the wrong place. */
const NEVER_QUOTED: ReadonlySet<SettingKey> = new Set(['appId', 'appSecret', 'baseUrl', 'fleet.store'])

export class Draft {
  /** The content of every file that was read so far; undefined for one that could not be read. */
  readonly files = new Map<string, Buffer | undefined>()
  readonly values: SettingValues
  readonly problems: Problem[]
  /** False if the file could not be parsed. No setting can then be called missing. */
  readonly #isComplete: boolean
  readonly #given: ReadonlyMap<SettingKey, Given>

  constructor(given: ReadonlyMap<SettingKey, Given>, problems: readonly Problem[], isComplete: boolean) {
    this.#given = given
    this.#isComplete = isComplete
    this.problems = [...problems]
    this.values = Object.fromEntries(settings.map((setting) => [setting.key, this.#parse(setting)])) as SettingValues
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

  /** Adds the source of the value that the remark is about. */
  locate({ key, part = '', message }: Remark): Problem {
    const given = this.#given.get(key)
    let place = given?.places?.get(key + part)
    // A part that is missing has no place of its own, but the mapping that it is missing from has one.
    for (let path = part; place === undefined && path !== ''; ) {
      path = path.slice(0, Math.max(path.lastIndexOf('.'), path.lastIndexOf('['), 0))
      place = given?.places?.get(key + path)
    }
    const source = place ?? given?.source ?? { kind: 'default' }
    return { key: key + part, source, message }
  }

  /** Reports a required setting that is missing, unless its value is already a problem. */
  reportMissing(key: SettingKey, message: string): void {
    if (!this.#isComplete || this.hasProblemWith(key)) return
    this.problems.push({ key, source: { kind: 'unset' }, message })
  }

  hasProblemWith(key: SettingKey): boolean {
    return this.problems.some((problem) => problem.key === key)
  }

  /** Resolves a path against the place it was written: the folder of the file, or else the working directory. */
  resolvePath(key: SettingKey, path: string): string {
    const source = this.#given.get(key)?.source
    return source?.kind === 'file' ? resolve(dirname(source.path), path) : resolve(path)
  }

  #parse(setting: Setting): unknown {
    const { key } = setting
    const given = this.#given.get(key)
    if (given === undefined && setting.isRequired) {
      this.reportMissing(key, `is required: set it in the config file, or as ${setting.variable}`)
      return undefined
    }
    const { success, data, error } = setting.schema.safeParse(given?.value)
    if (success) return key.endsWith('File') && typeof data === 'string' ? this.resolvePath(key, data) : data
    const told = new Set<string>()
    for (const remark of error.issues.flatMap((issue) => remarksOn(setting, given?.value, issue))) {
      const line = `${remark.part} ${remark.message}`
      if (!told.has(line)) this.report(remark)
      told.add(line)
    }
    return undefined
  }
}

function remarksOn({ key, notation, schema }: Setting, value: unknown, issue: z.core.$ZodIssue): Remark[] {
  const { path, message } = issue
  if (notation !== 'mappings') {
    const quoted = NEVER_QUOTED.has(key) ? '' : quote(valueAt(value, path[0]))
    return [{ key, message: `${quoted}${message}` }]
  }
  const part = path.map((step) => (typeof step === 'number' ? `[${step}]` : `.${String(step)}`)).join('')
  if (issue.code !== 'unrecognized_keys') return [{ key, part, message }]
  return issue.keys.map((name) => ({ key, part: `${part}.${name}`, message: unknownName(name, namesIn(schema)) }))
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
