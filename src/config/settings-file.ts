/** Reads settings from a YAML file (JSON is YAML), each value with its line. Every fault of the file becomes a problem. */

import type { Document, LineCounter, Node, Pair, YAMLError } from 'yaml'
import { FileUnreadable, readRegularFile } from '../watched-file.ts'
import { type Given, MAX_PROBLEMS, type Path, type Problem, type Source } from './problem.ts'
import { isMapping, type SettingKey, settings, unknownName } from './settings.ts'

type Yaml = typeof import('yaml')

interface SettingsFile {
  readonly values: ReadonlyMap<SettingKey, Given>
  readonly problems: readonly Problem[]
  /** False if the file could not be parsed. A setting that seems to be missing may then be in it. */
  readonly isUnderstood: boolean
  /** Undefined if the file could not be read. */
  readonly bytes: Buffer | undefined
}

/** Parsing takes about two seconds for a megabyte, and nothing else happens meanwhile. */
const MAX_FILE_BYTES = 512 * 1024

/** The parser recurses. If V8 has to compile a regular expression when the stack is nearly full, it ends the process. */
const NESTED_TOO_DEEPLY = /(?:[-?:]\s+){64}|(?:[[{][^[\]{}]*){64}|^ {256}/m

/** The key of a problem with the file as a whole. */
const WHOLE_FILE = 'config file'

const settingsByKey = new Map(settings.map((setting) => [setting.key as string, setting]))
const groups = new Set(settings.map((setting) => setting.group))
const knownNames = [...settingsByKey.keys(), ...groups].filter((name) => name !== undefined)

/** Does not reject if the file is wrong, unreadable or missing: the problems say so. */
export async function readSettingsFile(path: string): Promise<SettingsFile> {
  let bytes: Buffer | undefined
  try {
    bytes = (await readRegularFile(path, MAX_FILE_BYTES)).bytes
    const text = decode(bytes)
    if (NESTED_TOO_DEEPLY.test(text)) throw new FileUnreadable('is nested too deeply: is it the right file?')
    // Imported here, so that a start without a file does not load the parser.
    return { ...new SettingsReader(await import('yaml'), path).read(text), bytes }
  } catch (error) {
    if (!(error instanceof FileUnreadable)) throw error
    const problem: Problem = { key: WHOLE_FILE, source: { kind: 'file', path }, message: error.message }
    return { values: new Map(), problems: [problem], isUnderstood: false, bytes }
  }
}

/** @throws {FileUnreadable} */
function decode(bytes: Buffer): string {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes)
  } catch {
    throw new FileUnreadable('is not UTF-8 text: save it as UTF-8')
  }
}

/** @throws {FileUnreadable} */
function contentOf(document: Document): unknown {
  try {
    return document.toJS()
  } catch {
    throw new FileUnreadable('has an alias ("*") or a merge ("<<") without its mapping, or too many of them')
  }
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
      merge: true,
      prettyErrors: false,
      uniqueKeys: false, // the parser's own check takes a minute for a file of 1 MB
    })
    // Reports only the first fault: the others are mostly consequences of it.
    const fault = document.errors[0] ?? document.warnings[0]
    if (fault === undefined) this.#readTop(document)
    else this.#reportSyntax(fault)
    return { values: this.#values, problems: this.#problems, isUnderstood: fault === undefined }
  }

  #readTop(document: Document): void {
    this.#yaml.visit(document, {
      Map: (_, { items }, outer) => this.#refuseTwins(items, outer),
      Scalar: (_, node) => {
        // YAML 1.2 reads the file mode `0660` as the number 660.
        if (typeof node.value === 'number' && /^0[\do]/.test(node.source ?? '')) node.value = node.source
      },
    })
    const top: unknown = contentOf(document)
    if (isMapping(top)) this.#readGroup(document, top, [])
    else if (top !== null) this.#report(document, WHOLE_FILE, [], 'is not a mapping: write lines of "key: value"')
  }

  #readGroup(document: Document, group: Readonly<Record<string, unknown>>, path: readonly string[]): void {
    for (const [name, value] of Object.entries(group)) {
      // A file that is none of ours can have thousands of names, and each suggestion costs time.
      if (this.#problems.length > MAX_PROBLEMS) return
      const inner = [...path, name]
      const key = inner.join('.')
      // A dot in a name is no way into a group.
      const setting = name.includes('.') ? undefined : settingsByKey.get(key)
      if (groups.has(key)) {
        if (isMapping(value)) this.#readGroup(document, value, inner)
        else if (value !== null) this.#reportGroup(document, inner)
      } else if (setting === undefined) this.#report(document, printable(key), inner, unknownKey(key))
      else if (key === 'appSecret') {
        const message = 'must not be in a file: use appSecretFile, or the variable OAP_APP_SECRET'
        this.#report(document, key, inner, message)
      } else if (value === null) this.#report(document, key, inner, 'has no value: give it one, or remove the key')
      else {
        const placeOf = (part: Path) => this.#placeOf(document, [...inner, ...part], part.length === 0)
        this.#values.set(setting.key, { value, source: placeOf([]), placeOf })
      }
    }
  }

  #reportGroup(document: Document, path: readonly string[]): void {
    const message = 'is a group: write its settings below it, indented'
    this.#problems.push({ key: path.join('.'), source: this.#placeOf(document, path, true), message })
  }

  #refuseTwins(items: readonly Pair[], outer: readonly unknown[]): void {
    const { isPair, isScalar } = this.#yaml
    const names = new Set<string>()
    for (const { key } of items) {
      const name = isScalar(key) ? String(key.value) : '<<'
      if (names.has(name) && name !== '<<' && this.#problems.length <= MAX_PROBLEMS) {
        const groupNames = outer.flatMap((each) => (isPair(each) ? [String(each.key)] : []))
        const source = this.#placeAt(offsetOf(key) ?? 0)
        this.#problems.push({
          key: printable([...groupNames, name].join('.')),
          source,
          message: 'is given twice: keep one',
        })
      }
      names.add(name)
    }
  }

  #reportSyntax(fault: YAMLError): void {
    // Its message quotes the text, which may be a secret. Its code does not.
    const found = fault.code.toLowerCase().replaceAll('_', ' ')
    const message = `is not valid YAML here (${found}): indent with spaces, and quote values with special characters`
    this.#problems.push({ key: WHOLE_FILE, source: this.#placeAt(fault.pos[0]), message })
  }

  #report(document: Document, key: string, path: Path, message: string): void {
    this.#problems.push({ key, source: this.#placeOf(document, path), message })
  }

  /** The place of a key or an entry of a list, or else of what contains it: an alias or a merge leads elsewhere. */
  #placeOf(document: Document, path: Path, isOfValue = false): Source {
    let node: unknown = document.contents
    let offset = offsetOf(node)
    for (const step of path) {
      const { isMap, isScalar, isSeq } = this.#yaml
      const pair = isMap(node)
        ? node.items.find(({ key }) => isScalar(key) && String(key.value) === String(step))
        : undefined
      const found = isSeq(node) ? node.items[Number(step)] : pair?.key
      offset = offsetOf(found) ?? offset
      node = pair === undefined ? found : pair.value
    }
    if (isOfValue) offset = offsetOf(node) ?? offset
    return this.#placeAt(offset ?? 0)
  }

  #placeAt(offset: number): Source {
    const { line, col } = this.#lines.linePos(offset)
    return { kind: 'file', path: this.#path, line, column: col }
  }
}

function offsetOf(node: unknown): number | undefined {
  return (node as Node | null | undefined)?.range?.[0]
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
