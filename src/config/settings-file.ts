/** Settings in a YAML file (JSON is YAML): each value with its place, everything odd a problem, nothing a crash. */

import { readFile } from 'node:fs/promises'
import type { LineCounter, Pair, ParsedNode, YAMLError, YAMLMap } from 'yaml'
import { explainUnreadable } from './file-access.ts'
import type { Given } from './given.ts'
import { nearest } from './nearest.ts'
import { isNestedTooDeeply } from './nesting.ts'
import type { Problem, Source } from './problem.ts'
import { type Setting, type SettingKey, settings } from './settings.ts'

type Yaml = typeof import('yaml')
type ParsedPair = Pair<ParsedNode, ParsedNode | null>

export interface SettingsFile {
  readonly values: ReadonlyMap<SettingKey, Given>
  readonly problems: readonly Problem[]
  /** False where the file could not be understood: what it does not give may well stand in it. */
  readonly isUnderstood: boolean
}

const MAX_FILE_BYTES = 1_048_576
/** Stands as the key of a problem with the file as a whole. */
export const WHOLE_FILE = 'config file'

/** The parser's own messages quote the text, which may be a secret; these do not. */
const EXPLANATIONS: Readonly<Record<string, string>> = {
  BAD_ALIAS: 'a "*" starts an alias: put the value in quotes',
  BAD_DQ_ESCAPE: 'a "\\" in double quotes starts no known escape: use single quotes',
  BAD_INDENT: 'the indentation does not fit the lines before, or a bracket is not closed',
  BAD_SCALAR_START: 'a value cannot start with this character: put it in quotes',
  BLOCK_AS_IMPLICIT_KEY: 'a ":" stands where no key can be: put the value in quotes',
  MISSING_CHAR: 'a quote, bracket, comma or ":" is missing',
  MULTILINE_IMPLICIT_KEY: 'a key runs over several lines: is a ":" missing?',
  MULTIPLE_DOCS: 'a second document begins: keep one',
  TAB_AS_INDENT: 'a tab indents: use blanks',
  TAG_RESOLVE_FAILED: 'a tag ("!…") is not known: put the value in quotes',
}

const settingsByKey = new Map(settings.map((setting) => [setting.key as string, setting]))
const groups = new Set(settings.map((setting) => setting.group))
const knownNames = [...settingsByKey.keys(), ...groups].filter((name) => name !== undefined)

/** Never rejects: whatever is wrong with the file is among the problems. */
export async function readSettingsFile(path: string): Promise<SettingsFile> {
  let bytes: Buffer
  try {
    bytes = await readFile(path)
  } catch (error) {
    return refuseWhole(path, explainUnreadable(error))
  }
  if (bytes.length > MAX_FILE_BYTES) return refuseWhole(path, 'is larger than 1 MiB: is it the right file?')
  let text: string
  try {
    text = new TextDecoder('utf-8', { fatal: true }).decode(bytes)
  } catch {
    return refuseWhole(path, 'is not UTF-8 text: save it as UTF-8')
  }
  if (isNestedTooDeeply(text)) return refuseWhole(path, 'is nested too deeply to be a configuration')
  // Loaded only here: a start without a file does not pay for it.
  return new SettingsReader(await import('yaml'), path).read(text)
}

function refuseWhole(path: string, message: string): SettingsFile {
  const problem: Problem = { key: WHOLE_FILE, source: { kind: 'file', path }, message }
  return { values: new Map(), problems: [problem], isUnderstood: false }
}

class SettingsReader {
  readonly #yaml: Yaml
  readonly #path: string
  readonly #lines: LineCounter
  readonly #values = new Map<SettingKey, Given>()
  readonly #problems: Problem[] = []

  constructor(yaml: Yaml, path: string) {
    this.#yaml = yaml
    this.#path = path
    this.#lines = new yaml.LineCounter()
  }

  read(text: string): SettingsFile {
    const document = this.#yaml.parseDocument(text, {
      lineCounter: this.#lines,
      logLevel: 'error',
      prettyErrors: false,
      uniqueKeys: false,
    })
    // Only the first one: those behind it are mostly its echoes.
    const fault = document.errors[0] ?? document.warnings[0]
    if (fault === undefined) this.#readTop(document.contents)
    else this.#reportSyntax(fault)
    return { values: this.#values, problems: this.#problems, isUnderstood: fault === undefined }
  }

  #readTop(top: ParsedNode | null): void {
    if (this.#yaml.isMap(top)) {
      for (const [name, pair] of this.#entries(top)) {
        if (groups.has(name)) this.#readGroup(name, pair)
        else this.#readSetting(name.includes('.') ? undefined : settingsByKey.get(name), name, pair)
      }
    } else if (this.#isSomething(top)) {
      this.#report(WHOLE_FILE, top, 'is not a mapping: write "key: value" lines')
    }
  }

  #readGroup(group: string, { value }: ParsedPair): void {
    if (this.#yaml.isMap(value)) {
      for (const [name, pair] of this.#entries(value, `${group}.`)) {
        this.#readSetting(settingsByKey.get(`${group}.${name}`), `${group}.${name}`, pair)
      }
    } else if (this.#isSomething(value)) {
      this.#report(group, value, 'is a group: write its settings below it, indented')
    }
  }

  #readSetting(setting: Setting | undefined, name: string, { key, value }: ParsedPair): void {
    if (setting === undefined) {
      this.#report(printable(name), key, unknownKey(name))
    } else if (setting.key === 'appSecret') {
      this.#report(name, key, `must not stand in a file: use appSecretFile, or ${setting.variable}`)
    } else if (this.#isSomething(value)) {
      this.#values.set(setting.key, { value: this.#plain(value), source: this.#place(value) })
    } else {
      this.#report(name, key, 'has no value: give it one, or remove the key')
    }
  }

  /** The pairs of a mapping under their names; a name that comes twice is a problem and counts once. */
  #entries(map: YAMLMap.Parsed, prefix = ''): Map<string, ParsedPair> {
    const entries = new Map<string, ParsedPair>()
    for (const pair of map.items) {
      const name = this.#yaml.isScalar(pair.key) ? String(pair.key.value) : '?'
      if (entries.has(name)) this.#report(printable(prefix + name), pair.key, 'is given a second time: keep one')
      else entries.set(name, pair)
    }
    return entries
  }

  /** Aliases and mappings come out as `{}`, which is right for no setting; an alias could be a bomb (CWE-776). */
  #plain(node: ParsedNode): unknown {
    if (this.#yaml.isSeq(node)) return node.items.map((item) => this.#plain(item))
    if (!this.#yaml.isScalar(node)) return {}
    // A file mode keeps its leading zero, which YAML 1.2 drops (`0660` is 660 there).
    return typeof node.value === 'number' && /^0[\do]/.test(node.source) ? node.source : node.value
  }

  #isSomething(node: ParsedNode | null): node is ParsedNode {
    return node !== null && !(this.#yaml.isScalar(node) && node.value === null)
  }

  #reportSyntax(fault: YAMLError): void {
    const message = `is not valid YAML here: ${EXPLANATIONS[fault.code] ?? 'something stands where it cannot'}`
    this.#problems.push({ key: WHOLE_FILE, source: this.#placeAt(fault.pos[0]), message })
  }

  #report(key: string, node: ParsedNode, message: string): void {
    this.#problems.push({ key, source: this.#place(node), message })
  }

  #place(node: ParsedNode): Source {
    return this.#placeAt(node.range[0])
  }

  #placeAt(offset: number): Source {
    const { line, col } = this.#lines.linePos(offset)
    return { kind: 'file', path: this.#path, line, column: col }
  }
}

function unknownKey(name: string): string {
  // A known name can only be one in a line of its own, `listen.address: …`.
  if (settingsByKey.has(name)) return `is written in one line: write ${name.replace('.', ':, and indented below it ')}:`
  const meant = nearest(name, knownNames)
  return meant === undefined ? 'is no setting: remove it' : `is no setting: did you mean ${meant}?`
}

/** A key as one word on one line, whatever stands in the file. */
function printable(name: string): string {
  return /^[\w.$-]{1,64}$/.test(name) ? name : JSON.stringify(name.slice(0, 64))
}
