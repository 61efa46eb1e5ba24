/** Reads settings from a YAML file (JSON is YAML), each value with its line. Every fault of the file becomes a problem. */

import type { LineCounter, Pair, ParsedNode, YAMLError, YAMLMap } from 'yaml'
import { FileUnreadable, readRegularFile } from '../watched-file.ts'
import type { Given, Problem, Source } from './problem.ts'
import { type Setting, type SettingKey, settings, unknownName } from './settings.ts'

type Yaml = typeof import('yaml')
type ParsedPair = Pair<ParsedNode, ParsedNode | null>

interface SettingsFile {
  readonly values: ReadonlyMap<SettingKey, Given>
  readonly problems: readonly Problem[]
  /** False if the file could not be parsed. A setting that seems to be missing may then be in it. */
  readonly isUnderstood: boolean
  /** Undefined if the file could not be read. */
  readonly bytes: Buffer | undefined
}

const MAX_FILE_BYTES = 1_048_576

/**
 * The parser recurses. If V8 has to compile a regular expression when the stack is nearly full, it ends the process. A
 * configuration has four levels.
 */
const NESTED_TOO_DEEPLY = /(?:[-?:]\s+){64}|(?:[[{][^[\]{}]*){64}|^ {256}/m

const NO_VALUE = 'has no value: give it one, or remove the key'

/** The key of a problem with the file as a whole. */
export const WHOLE_FILE = 'config file'

/** The parser's own messages quote the text, which may be a secret. These do not. */
const EXPLANATIONS: Readonly<Record<string, string>> = {
  BAD_ALIAS: '"*" starts an alias: put the value in quotes',
  BAD_DQ_ESCAPE: '"\\" in double quotes starts an unknown escape: use single quotes',
  BAD_INDENT: 'the indentation does not match the lines before, or a bracket is not closed',
  BAD_SCALAR_START: 'a value cannot start with this character: put it in quotes',
  BLOCK_AS_IMPLICIT_KEY: '":" is not allowed here: put the value in quotes',
  MISSING_CHAR: 'a quote, bracket, comma or ":" is missing',
  MULTILINE_IMPLICIT_KEY: 'a key spans several lines: is ":" missing?',
  MULTIPLE_DOCS: 'a second document begins: keep one document',
  TAB_AS_INDENT: 'the line is indented with a tab: use spaces',
  TAG_RESOLVE_FAILED: '"!" starts an unknown tag: put the value in quotes',
}

const settingsByKey = new Map(settings.map((setting) => [setting.key as string, setting]))
const groups = new Set(settings.map((setting) => setting.group))
const knownNames = [...settingsByKey.keys(), ...groups].filter((name) => name !== undefined)

/** Does not reject if the file is wrong, unreadable or missing: the problems say so. */
export async function readSettingsFile(path: string): Promise<SettingsFile> {
  let bytes: Buffer
  try {
    bytes = (await readRegularFile(path, MAX_FILE_BYTES)).bytes
  } catch (error) {
    if (error instanceof FileUnreadable) return refuseWhole(path, error.message)
    throw error
  }
  let text: string
  try {
    text = new TextDecoder('utf-8', { fatal: true }).decode(bytes)
  } catch {
    return refuseWhole(path, 'is not UTF-8 text: save it as UTF-8', bytes)
  }
  if (NESTED_TOO_DEEPLY.test(text)) return refuseWhole(path, 'is nested too deeply: is it the right file?', bytes)
  // Imported here, so that a start without a file does not load the parser.
  return { ...new SettingsReader(await import('yaml'), path).read(text), bytes }
}

function refuseWhole(path: string, message: string, bytes?: Buffer): SettingsFile {
  const problem: Problem = { key: WHOLE_FILE, source: { kind: 'file', path }, message }
  return { values: new Map(), problems: [problem], isUnderstood: false, bytes }
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

  read(text: string): Omit<SettingsFile, 'bytes'> {
    const document = this.#yaml.parseDocument(text, {
      lineCounter: this.#lines,
      logLevel: 'error',
      prettyErrors: false,
      uniqueKeys: false,
    })
    // Reports only the first fault: the others are mostly consequences of it.
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
      this.#report(WHOLE_FILE, top, 'is not a mapping: write lines of "key: value"')
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
      this.#report(name, key, 'must not be in a file: use appSecretFile, or the variable OAP_APP_SECRET')
    } else if (this.#isSomething(value)) {
      this.#values.set(setting.key, this.#given(setting, value))
    } else {
      this.#report(name, key, NO_VALUE)
    }
  }

  #given(setting: Setting, node: ParsedNode): Given {
    const places = new Map<string, Source>()
    const value = setting.notation === 'mappings' ? this.#nested(node, setting.key, places) : this.#plain(node)
    return { value, source: this.#place(node), places }
  }

  /** The pairs of a mapping by name. If a name comes twice, the first pair counts, and the second is a problem. */
  #entries(map: YAMLMap.Parsed, prefix = ''): Map<string, ParsedPair> {
    const entries = new Map<string, ParsedPair>()
    for (const pair of map.items) {
      const name = this.#yaml.isScalar(pair.key) ? String(pair.key.value) : '?'
      if (entries.has(name)) this.#report(printable(prefix + name), pair.key, 'is given twice: keep one')
      else entries.set(name, pair)
    }
    return entries
  }

  /** Like `#plain`, but a mapping becomes an object. Adds the place of every node to `places`, by its path (`callers[0].name`). */
  #nested(node: ParsedNode | null, path: string, places: Map<string, Source>): unknown {
    if (node === null) return undefined
    places.set(path, this.#place(node))
    if (this.#yaml.isSeq(node)) return node.items.map((item, i) => this.#nested(item, `${path}[${i}]`, places))
    if (!this.#yaml.isMap(node)) return this.#plain(node)
    const entries = [...this.#entries(node, `${path}.`)]
    return Object.fromEntries(
      entries.map(([name, { key, value }]) => {
        const inner = `${path}.${name}`
        const parsed = this.#nested(value, inner, places)
        if (value === null || parsed === null) this.#report(printable(inner), key, NO_VALUE)
        places.set(inner, this.#place(key))
        return [name, parsed]
      }),
    )
  }

  /** An alias or a mapping becomes `{}`, which no setting accepts. Resolving aliases could fill the memory (CWE-776). */
  #plain(node: ParsedNode): unknown {
    if (this.#yaml.isSeq(node)) return node.items.map((item) => this.#plain(item))
    if (!this.#yaml.isScalar(node)) return {}
    // YAML 1.2 reads the file mode `0660` as the number 660.
    return typeof node.value === 'number' && /^0[\do]/.test(node.source) ? node.source : node.value
  }

  #isSomething(node: ParsedNode | null): node is ParsedNode {
    return node !== null && !(this.#yaml.isScalar(node) && node.value === null)
  }

  #reportSyntax(fault: YAMLError): void {
    const message = `is not valid YAML here: ${EXPLANATIONS[fault.code] ?? 'this is not allowed here'}`
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
  // A known name is unknown here only if it was written with its dot: `listen.address: …`.
  const [group, inner] = name.split('.')
  if (settingsByKey.has(name)) return `is written on one line: write "${group}:", and "${inner}: …" indented below it`
  return unknownName(name, knownNames)
}

/** A key as one word on one line, even if it contains blanks or line breaks. */
function printable(name: string): string {
  return /^[\w.$[\]-]{1,64}$/.test(name) ? name : JSON.stringify(name.slice(0, 64))
}
