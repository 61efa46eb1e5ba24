/** The declaration as a flat list: one entry per key, with its name in the environment. */

import { distance } from 'fastest-levenshtein'
import { z } from 'zod'
import { type DeclaredSettings, declaration } from './schema.ts'

type Leaf<Shape> = {
  [Name in keyof Shape & string]: Shape[Name] extends z.ZodObject<infer Inner> ? `${Name}.${Leaf<Inner>}` : Name
}[keyof Shape & string]

/** `appId`, `listen.address`, … */
export type SettingKey = Leaf<typeof declaration.shape>

type At<T, Key> = Key extends `${infer Group}.${infer Rest}` ? At<T[Group & keyof T], Rest> : T[Key & keyof T]

/** Parsed values by key. A key with a wrong value is missing. */
export type SettingValues = { [Key in SettingKey]?: At<DeclaredSettings, Key> }

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
export const settings: readonly Setting[] = settingsIn(declaration, undefined)

function settingsIn({ shape }: z.ZodObject, group: string | undefined): Setting[] {
  return Object.entries(shape).flatMap(([name, schema]) => {
    const path = group === undefined ? name : `${group}.${name}`
    return schema instanceof z.ZodObject ? settingsIn(schema, path) : [describe(path, group, name, schema as z.ZodType)]
  })
}

function describe(path: string, group: string | undefined, name: string, schema: z.ZodType): Setting {
  // The one place that asserts the type of a key: the key is read from the object that the type is derived from.
  const key = path as SettingKey
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
  return `OAP_${key.replace(/[A-Z]/g, '_$&').replaceAll('.', '_').toUpperCase()}`
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

export function isMapping(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** Settings of earlier versions, and what took their place. */
const REMOVED: ReadonlyMap<string, string> = new Map([
  ['tokens.minLifetime', 'the proxy uses a token until the service rejects it, and learns from that alone'],
  ['tokens.maxLifetime', 'the proxy uses a token until the service rejects it, and learns from that alone'],
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
  const limit = Math.max(1, Math.floor(name.length / 3))
  // A name of a wrong length cannot be near. Measuring a long one would take long.
  const candidates = known.filter((candidate) => Math.abs(candidate.length - name.length) <= limit)
  const measured = candidates.map(
    (candidate) => [distance(name.toLowerCase(), candidate.toLowerCase()), candidate] as const,
  )
  const [best, meant] = measured.toSorted(([one], [other]) => one - other)[0] ?? [limit + 1, undefined]
  return best <= limit ? meant : undefined
}
