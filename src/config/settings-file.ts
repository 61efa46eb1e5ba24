/**
 * The settings file: YAML (JSON is YAML). It gives text, lists and mappings of text; the declaration decides what is a number.
 * Small commands read it without the declaration.
 */

import { resolve } from 'node:path'
import type { Document, Node, YAMLMap } from 'yaml'
import { FileUnreadable, readRegularFile } from '../watched-file.ts'
import { type Problem, WHOLE_FILE } from './problem.ts'

export type Environment = Readonly<Record<string, string | undefined>>

/** Names the config file. The only `OAP_` variable that is not a setting. */
export const CONFIG_VARIABLE = 'OAP_CONFIG'

/** Which file, and which environment. */
export interface LoadOptions {
  /** As given on the command line. If undefined, `OAP_CONFIG` may name the file. */
  readonly file?: string | undefined
  readonly env: Environment
  /** Relative paths in the file begin here. If undefined: in the folder of the file. */
  readonly folder?: string | undefined
  /** In this process; 1 by default. */
  readonly instances?: number
  /** Refuses certificates that have ended; otherwise only where they would replace one that has not. */
  readonly refusesEnded?: boolean
}

export interface SettingsFile {
  readonly path: string
  /** Empty if there is a problem. */
  readonly content: Readonly<Record<string, unknown>>
  /** With the file as a whole. */
  readonly problem: Problem | undefined
  /** What can be read in spite of a problem. A proxy that began with a sound file goes on, and has to be found. */
  readonly legibleAt: (at: string) => unknown
  /** `FILE:LINE:COLUMN` of the value, or else of what contains it: an alias or a merge leads elsewhere. */
  readonly positionOf: (at: string) => string
}

/** Parsing takes about two seconds for a megabyte, and nothing else happens meanwhile. */
const MAX_FILE_BYTES = 512 * 1024

/** Never rejects because of the file: the result says what is wrong with it. */
async function readSettingsFile(path: string): Promise<SettingsFile> {
  let document: Document | undefined
  const legibleAt = (at: string): unknown => document?.getIn(at.split('.'))
  const failed = (message: string, source = resolve(path)): SettingsFile => {
    return { path, content: {}, problem: { at: WHOLE_FILE, source, message }, legibleAt, positionOf: () => path }
  }
  try {
    const { bytes } = await readRegularFile(path, MAX_FILE_BYTES)
    // Imported here, so that a start without a file does not load the parser.
    const yaml = await import('yaml')
    const { LineCounter, parseDocument } = yaml
    const lines = new LineCounter()
    const positionAt = (offset = 0) => {
      const { line, col } = lines.linePos(offset)
      return `${path}:${line}:${col}`
    }
    const parsed = parseDocument(bytes.toString('utf8'), {
      lineCounter: lines,
      schema: 'failsafe', // all is text, so `0660` stays what it is
      customTags: ['null'],
      merge: true,
      logLevel: 'error',
      prettyErrors: false,
      uniqueKeys: false, // the parser's own check takes twenty seconds for a large file that is none of ours
    })
    document = parsed
    // Only the first fault: the others are mostly consequences of it.
    const fault = parsed.errors[0] ?? parsed.warnings[0]
    if (fault !== undefined) {
      // Its message quotes the text, which may be a secret. Its code does not.
      const found = fault.code.toLowerCase().replaceAll('_', ' ')
      const remedy = 'indent with spaces, and quote values with special characters'
      return failed(`is not valid YAML here (${found}): ${remedy}`, positionAt(fault.pos[0]))
    }
    const twin = findTwin(yaml, parsed)
    if (twin !== undefined) return failed('gives this name twice: keep one', positionAt(twin.range?.[0]))
    keepJsonTypes(yaml, parsed)
    const content: unknown = parsed.toJS() ?? {}
    if (!isMapping(content)) return failed('is not a mapping: write lines of "key: value"', positionAt())
    const positionOf = (at: string) => {
      const steps = at.match(/[^.[\]]+/g) ?? []
      for (; steps.length > 0; steps.pop()) {
        const node = parsed.getIn(steps, true) as Node | undefined
        if (node?.range) return positionAt(node.range[0])
      }
      return positionAt()
    }
    return { path, content, problem: undefined, legibleAt, positionOf }
  } catch (error) {
    if (error instanceof FileUnreadable) return failed(error.message)
    // Thrown by `toJS`.
    if (error instanceof ReferenceError) return failed('has an alias ("*") without its anchor, or too many of them')
    if (error instanceof Error && error.message.startsWith('Merge sources')) {
      return failed('takes over ("<<") what is no mapping')
    }
    throw error
  }
}

/** Returns the first name that a mapping has twice. */
function findTwin(
  { visit, isScalar }: Pick<typeof import('yaml'), 'visit' | 'isScalar'>,
  document: Document,
): Node | undefined {
  let twin: Node | undefined
  visit(document, {
    Map(_, { items }) {
      const names = new Set<unknown>()
      // The set does not grow by a name that it has.
      const second = items.find(({ key }) => names.size === names.add(isScalar(key) ? key.value : key).size)
      twin ??= second?.key as Node | undefined
    },
  })
  return twin
}

/** The values of `tokens.json` are sent as JSON, where `5` is not `"5"`: a number stays one, and the declaration refuses it. */
function keepJsonTypes(
  { isAlias, isMap, isScalar, parse }: Pick<typeof import('yaml'), 'isAlias' | 'isMap' | 'isScalar' | 'parse'>,
  document: Document,
): void {
  const mapAt = (from: YAMLMap | undefined, name: string): YAMLMap | undefined => {
    const node = from?.get(name, true)
    const target = isAlias(node) ? node.resolve(document) : node
    return isMap(target) ? target : undefined
  }
  const { contents } = document
  const json = mapAt(mapAt(isMap(contents) ? contents : undefined, 'tokens'), 'json')
  for (const { value } of json?.items ?? []) {
    if (!isScalar(value) || value.type !== 'PLAIN') continue
    const typed: unknown = parse(value.source ?? '', { logLevel: 'silent' })
    if (typeof typed === 'number' || typeof typed === 'boolean') value.value = typed
  }
}

export function isMapping(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** Undefined if none is named. */
export async function openSettingsFile({ file, env }: LoadOptions): Promise<SettingsFile | undefined> {
  // Compose turns a variable that is not set into an empty one.
  const path = file ?? (env[CONFIG_VARIABLE] || undefined)
  return path === undefined ? undefined : await readSettingsFile(path)
}
