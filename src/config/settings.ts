/** The declaration as a flat list: one entry per key, with its name in the environment. */

import { z } from 'zod'
import { type DeclaredSettings, declaration } from './schema.ts'

type Shape = typeof declaration.shape
type Group = { [K in keyof Shape]: Shape[K] extends z.ZodObject ? K : never }[keyof Shape]

/** `appId`, `listen.address`, … */
export type SettingKey =
  | Exclude<keyof Shape, Group>
  | { [G in Group]: `${G}.${Extract<keyof Shape[G]['shape'], string>}` }[Group]

/** The parsed value of a key. */
type SettingValue<K extends SettingKey> = K extends `${infer G extends Group}.${infer Name}`
  ? DeclaredSettings[G][Name & keyof DeclaredSettings[G]]
  : DeclaredSettings[K & keyof DeclaredSettings]

/** Parsed values by key. A key with a wrong value is missing. */
export type SettingValues = { [K in SettingKey]?: SettingValue<K> }

/** The form of a value in an environment variable. A list of mappings has no such form. */
export type Notation = 'text' | 'number' | 'flag' | 'text list' | 'number list' | 'mappings'

export interface Setting {
  readonly key: SettingKey
  /** Undefined for a setting outside every group. */
  readonly group: string | undefined
  readonly name: string
  /** Its environment variable; undefined for a setting that only a file can hold. */
  readonly variable: string | undefined
  readonly description: string
  readonly notation: Notation
  readonly isRequired: boolean
  /** The default as a file would hold it; undefined if there is none. */
  readonly defaultValue: unknown
  readonly schema: z.ZodType
}

/** In the order of the declaration. */
export const settings: readonly Setting[] = Object.entries(declaration.shape).flatMap(([name, schema]) =>
  schema instanceof z.ZodObject
    ? Object.entries(schema.shape).map(([inner, innerSchema]) => describe(name, inner, innerSchema))
    : [describe(undefined, name, schema)],
)

function describe(group: string | undefined, name: string, schema: z.ZodType): Setting {
  // The one place that asserts the type of a key: the key is read from the object that the type is derived from.
  const key = (group === undefined ? name : `${group}.${name}`) as SettingKey
  const notation = notationOf(schema)
  return {
    key,
    group,
    name,
    variable: notation === 'mappings' ? undefined : variableOf(key),
    description: schema.description ?? '',
    notation,
    isRequired: !(schema instanceof z.ZodPrefault || schema instanceof z.ZodOptional),
    defaultValue: schema instanceof z.ZodPrefault ? schema.def.defaultValue : undefined,
    schema,
  }
}

function variableOf(key: string): string {
  return `OAP_${key.replace(/[A-Z]/g, '_$&').replace('.', '_').toUpperCase()}`
}

function notationOf(schema: z.core.$ZodType): Notation {
  if (schema instanceof z.ZodPrefault || schema instanceof z.ZodOptional) return notationOf(schema.def.innerType)
  if (schema instanceof z.ZodPipe) return notationOf(schema.def.in)
  if (schema instanceof z.ZodArray) {
    const item = notationOf(schema.def.element)
    return item === 'mappings' ? item : item === 'number' ? 'number list' : 'text list'
  }
  if (schema instanceof z.ZodObject) return 'mappings'
  if (schema instanceof z.ZodNumber) return 'number'
  if (schema instanceof z.ZodBoolean) return 'flag'
  return 'text'
}

/** The names of everything inside a list of mappings. */
export function namesIn(schema: z.core.$ZodType): string[] {
  if (schema instanceof z.ZodPrefault || schema instanceof z.ZodOptional) return namesIn(schema.def.innerType)
  if (schema instanceof z.ZodArray) return namesIn(schema.def.element)
  if (!(schema instanceof z.ZodObject)) return []
  return Object.entries(schema.shape).flatMap(([name, inner]) => [name, ...namesIn(inner)])
}

/** Settings of earlier versions, and what took their place. */
const REMOVED: ReadonlyMap<string, string> = new Map([
  ['listen.origins', 'the proxy refuses web pages, so let the server of the page send the requests'],
])

/** For a key or a variable. */
export function removalOf(name: string): string | undefined {
  const found = [...REMOVED].find(([key]) => key === name || variableOf(key) === name)
  return found === undefined ? undefined : `is no longer a setting: remove it; ${found[1]}`
}

/** For a name that is not among `known`. */
export function unknownName(name: string, known: readonly string[]): string {
  const removal = removalOf(name)
  if (removal !== undefined) return removal
  const meant = nearest(name, known)
  return meant === undefined ? 'is not a setting: remove it' : `is not a setting: did you mean ${meant}?`
}

/** Returns the known name that a misspelt one was probably meant to be; undefined if none is near. */
export function nearest(name: string, known: readonly string[]): string | undefined {
  const lower = name.toLowerCase()
  const limit = Math.max(1, Math.floor(name.length / 3))
  let best: string | undefined
  let bestDistance = limit + 1
  for (const candidate of known) {
    if (Math.abs(candidate.length - name.length) >= bestDistance) continue
    const distance = editDistance(lower, candidate.toLowerCase())
    if (distance < bestDistance) [best, bestDistance] = [candidate, distance]
  }
  return best
}

/** Levenshtein distance, computed one row at a time. */
function editDistance(left: string, right: string): number {
  let row = Array.from({ length: right.length + 1 }, (_, index) => index)
  for (let i = 0; i < left.length; i++) {
    const next = [i + 1]
    for (let j = 0; j < right.length; j++) {
      const substituted = at(row, j) + (left[i] === right[j] ? 0 : 1)
      next.push(Math.min(substituted, at(row, j + 1) + 1, at(next, j) + 1))
    }
    row = next
  }
  return at(row, right.length)
}

function at(row: readonly number[], index: number): number {
  return row[index] ?? Number.POSITIVE_INFINITY
}
