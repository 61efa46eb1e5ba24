/** A configuration being loaded: what the sources give, read by the declaration, and the problems and warnings so far. */

import { dirname, isAbsolute, resolve } from 'node:path'
import { z } from 'zod'
import { Secret } from '../secret.ts'
import { isUrl, PATH, ReadFile } from './files.ts'
import { describeProblem, MAX_PROBLEMS, type Problem, quoted, WRONG } from './problem.ts'
import { innermost, outsideName, type Setting, type SettingKey, settingsByKey, unknownName } from './settings.ts'
import { type Environment, isMapping, type SettingsFile } from './settings-file.ts'
import { readEnvironment } from './sources.ts'

/** A setting as it was written. */
export interface Given {
  /** Masked if it is the secret; empty without a value. */
  readonly text: string
  /** `FILE:LINE:COLUMN`, the name of a variable, `default` or `not set`. */
  readonly source: string
  /** Of the files that it names. */
  readonly digests: string
}

/** Never quoted in a message: each could hold a secret in the wrong place. */
const NEVER_QUOTED = /^(?:appId|appSecret|baseUrl|callers|fleet\.store|minter\.url|(?:origin|tokens)\.secretHeaders)$/

/** Their files have a watcher of their own, so no reload depends on them, unless it was refused because of them. */
const WATCHED_ELSEWHERE: readonly string[] = ['appSecretFile', 'tokens.assertionFile']

/** What secrets seldom have, and copies of them often. */
const ODDITIES = [
  [/^\ufeff/, 'begins with a byte order mark (U+FEFF)'],
  [/^(?:".*"|'.*')$/s, 'stands in quotes'],
  // Base64 has `=` at its end alone.
  [/^(?:export +)?[a-z_]\w{1,60}=[^=]/i, 'begins with a name and "="'],
  // A private key ends with the end of a line.
  [/^[^\S\ufeff]|[^\S\n]$/, 'has a blank at its end'],
] as const

export class Draft {
  readonly problems: Problem[] = []
  readonly warnings: string[] = []
  readonly given = new Map<SettingKey, Given>()
  /** The files that a reload depends on. */
  readonly files = new Set<string>()
  /** By the part of the settings that names the file. */
  readonly readFiles = new Map<string, ReadFile<unknown>>()
  readonly #file: SettingsFile | undefined
  readonly #variables: ReadonlyMap<string, string | readonly string[]>
  /** Where relative paths in the file begin. */
  readonly #folder: string
  readonly #kept: Draft['readFiles']

  /** `kept` are not read again. */
  constructor(
    file: SettingsFile | undefined,
    env: Environment,
    folder: string | undefined,
    kept: Draft['readFiles'] = new Map(),
  ) {
    this.#file = file
    this.#variables = readEnvironment(env)
    this.#folder = folder ?? dirname(file?.path ?? '')
    this.#kept = kept
    if (file === undefined) return
    this.files.add(resolve(file.path))
    if (file.problem !== undefined) this.problems.push(file.problem)
  }

  readonly refuse = (at: string, message: string): void => {
    // A reload checks the new settings and the result, and both may have the same problem.
    const isKnown = this.problems.some((problem) => problem.at === at && problem.message === message)
    if (!isKnown) this.problems.push({ at, source: this.#sourceOf(at), message })
    const file = this.readFiles.get(at)
    if (file !== undefined) this.files.add(file.path)
  }

  readonly warn = (at: string, message: string): void => {
    this.warnings.push(describeProblem({ at, source: this.#sourceOf(at), message }))
  }

  #sourceOf(at: string): string {
    const setting = settingAt(at)
    if (setting !== undefined && this.#variables.has(setting.key)) return setting.variable
    const given = setting?.key === at ? this.given.get(setting.key) : undefined
    return given?.source ?? this.#file?.positionOf(at) ?? 'not set'
  }

  /**
   * What the sources give for the schema, undefined if they give nothing. A wrong part is refused, and `WRONG` in the result.
   * `inFile` is what the file has there.
   */
  async read(schema: z.core.$ZodType, inFile: unknown, at: string): Promise<unknown> {
    const setting = settingsByKey.get(at)
    const given = setting === undefined ? inFile : this.#valueOf(setting, inFile)
    if (given === WRONG) return WRONG
    const inner = innermost(schema)
    if (inner instanceof z.ZodObject && (inner === schema || given !== undefined)) {
      return this.#readMapping(inner, given ?? {}, at)
    }
    if (inner instanceof z.ZodRecord && innermost(inner.valueType) === PATH && isMapping(given)) {
      return this.#readFiles(inner, given, at)
    }
    const element = inner instanceof z.ZodArray ? inner.element : undefined
    const isReadOneByOne = element instanceof z.ZodObject || (element !== undefined && innermost(element) === PATH)
    if (!isReadOneByOne || !Array.isArray(given) || given.length === 0) {
      return this.#readValue(schema as z.ZodType, given, at)
    }
    const entries: unknown[] = []
    for (const entry of given) entries.push(await this.read(element, entry, `${at}[${entries.length}]`))
    return entries.includes(WRONG) ? WRONG : entries
  }

  /** The environment wins over the file. */
  #valueOf({ key, variable, defaultValue }: Setting, inFile: unknown): unknown {
    const isMisplaced = key === 'appSecret' && inFile !== undefined
    const ofFile = isMisplaced ? undefined : inFile
    const value = this.#variables.get(key) ?? ofFile
    const unset = defaultValue === undefined ? 'not set' : 'default'
    const position = ofFile === undefined ? unset : (this.#file?.positionOf(key) ?? unset)
    const source = this.#variables.has(key) ? variable : position
    this.given.set(key, { text: textOf(key, value ?? defaultValue), source, digests: '' })
    if (isMisplaced) {
      const message = 'must not be in a file: use appSecretFile, or the variable OAP_APP_SECRET'
      this.problems.push({ at: key, source: this.#file?.positionOf(key) ?? '', message })
    }
    return isMisplaced && value === undefined ? WRONG : value
  }

  async #readMapping({ shape }: z.ZodObject, given: unknown, at: string): Promise<object> {
    if (!isMapping(given)) this.refuse(at, 'is not a mapping: write names and values below it, indented')
    const values = isMapping(given) ? given : {}
    const prefix = at === '' ? '' : `${at}.`
    const known = Object.keys(shape).map(outsideName)
    for (const name of Object.keys(values)) if (!known.includes(name)) this.#refuseUnknown(prefix, name, known)
    const result: [string, unknown][] = []
    for (const [name, schema] of Object.entries(shape)) {
      const outside = outsideName(name)
      const value = await this.read(schema, values[outside], prefix + outside)
      if (value !== undefined) result.push([name, value])
    }
    return Object.fromEntries(result)
  }

  async #readFiles({ valueType }: z.ZodRecord, given: Readonly<Record<string, unknown>>, at: string): Promise<object> {
    const entries: [string, unknown][] = []
    for (const [name, path] of Object.entries(given)) {
      entries.push([name, await this.read(valueType, path, `${at}[${name}]`)])
    }
    return Object.fromEntries(entries)
  }

  #refuseUnknown(prefix: string, name: string, known: readonly string[]): void {
    // A file that is none of ours can have thousands of names, and each suggestion costs time.
    if (this.problems.length > MAX_PROBLEMS) return
    // One word on one line, even if the name contains blanks or line breaks.
    const key = prefix + (/^[\w.$-]{1,64}$/.test(name) ? name : quoted(name) || '(a name)')
    this.refuse(
      key,
      unknownName(
        key,
        known.map((other) => prefix + other),
        'correct or remove it',
      ),
    )
  }

  async #readValue(schema: z.ZodType, given: unknown, at: string): Promise<unknown> {
    const setting = settingAt(at)
    if (given === null || given === '') {
      this.refuse(at, 'has no value: give it one, or remove the name')
      return WRONG
    }
    if (given === undefined && setting?.key === at && setting.isRequired) return this.refuseMissing(setting)
    const isVariable = setting !== undefined && this.#variables.has(setting.key)
    const folder = isVariable ? '' : this.#folder
    const kept = this.#kept.get(at)
    const { data, error } =
      kept === undefined ? await schema.safeParseAsync(decode(schema, given, folder)) : { data: kept }
    if (data instanceof ReadFile) this.#note(data, at)
    if (data instanceof Secret) this.#warnOf(data, at)
    const isMembers = innermost(schema) instanceof z.ZodRecord
    for (const issue of error?.issues ?? []) this.#refuseValue(issue, given, at, folder, isMembers)
    return error === undefined ? data : WRONG
  }

  refuseMissing({ key, variable }: Pick<Setting, 'key' | 'variable'>): void {
    // It may be in the file that could not be read.
    if (this.#file?.problem !== undefined) return
    const where = this.#file === undefined ? 'a config file (--config FILE)' : 'the config file'
    this.refuse(key, `is required: set it in ${where}, or as ${variable}`)
  }

  #warnOf(secret: Secret, at: string): void {
    for (const [shape, does] of ODDITIES) {
      if (!shape.test(secret.reveal())) continue
      this.warn(at, `${does}, which counts as part of the secret: save it without that, unless the secret is so`)
    }
  }

  /** Takes note of a file that was read. */
  #note(file: ReadFile<unknown>, at: string): void {
    const { path, digest, content, isExposed } = file
    this.readFiles.set(at, file)
    if (content instanceof Secret) this.#warnOf(content, at)
    if (isExposed && content instanceof Secret) {
      this.warn(at, 'can be read by other users of this machine: chmod 600 prevents that')
    }
    if (WATCHED_ELSEWHERE.includes(at)) return
    this.files.add(path)
    const key = settingAt(at)?.key
    const given = key && this.given.get(key)
    if (given) this.given.set(key, { ...given, digests: given.digests + digest })
  }

  #refuseValue(issue: z.core.$ZodIssue, given: unknown, at: string, folder: string, isMembers: boolean): void {
    const [index] = issue.path
    const [part, value] = typeof index === 'number' ? [`${at}[${index}]`, (given as unknown[])[index]] : [at, given]
    const { path }: Readonly<Record<string, unknown>> = (issue.code === 'custom' && issue.params) || {}
    if (typeof path === 'string') {
      this.files.add(path)
      const isLost = issue.message.startsWith('does not exist') && !isAbsolute(String(given))
      this.refuse(at, issue.message + (isLost ? `; paths here begin in ${resolve(folder)}` : ''))
      return
    }
    const isQuoted = typeof value === 'string' && !NEVER_QUOTED.test(settingAt(at)?.key ?? at) && !isMembers
    this.refuse(part, `${isQuoted ? quoted(value) : ''} ${issue.message}`.trimStart())
  }
}

/** The setting that this is, or is a part of. */
function settingAt(at: string): Setting | undefined {
  return settingsByKey.get(at.replace(/\[.*/, ''))
}

/** The value that the schema takes for text of a source. Text that cannot be decoded stays: the schema says what is wrong. */
function decode(schema: z.core.$ZodType, given: unknown, folder: string): unknown {
  const inner = innermost(schema)
  if (inner instanceof z.ZodArray && Array.isArray(given))
    return given.map((item) => decode(inner.element, item, folder))
  if (typeof given !== 'string') return given
  if (inner instanceof z.ZodNumber) return /^\d+(\.\d+)?$/.test(given) ? Number(given) : given
  if (inner instanceof z.ZodBoolean) return given === 'true' || (given === 'false' ? false : given)
  return inner === PATH && !isUrl(given) ? resolve(folder, given) : given
}

function textOf(key: SettingKey, written: unknown): string {
  if (written === undefined) return ''
  if (key === 'appSecret') return '[redacted]'
  if (isMapping(written)) return JSON.stringify(written)
  if (!Array.isArray(written)) return String(written)
  if (written.length === 0) return '[]'
  return written.map((item) => (isMapping(item) ? JSON.stringify(item) : item)).join(key === 'callers' ? '; ' : ', ')
}
