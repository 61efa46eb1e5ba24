/** The declaration as a flat list: one entry per key, with its name in the environment. */

import { distance } from 'fastest-levenshtein'
import { z } from 'zod'
import { declaration } from './schema.ts'

type Leaf<Shape> = {
  [Name in keyof Shape & string]: Shape[Name] extends z.ZodObject<infer Inner>
    ? `${Name}.${Leaf<Inner>}`
    : OutsideName<Name>
}[keyof Shape & string]

export type OutsideName<Name extends string> = Name extends `${infer Bare}${'Ms' | 'Bytes'}` ? Bare : Name

/** The name of a setting without its unit, as users write it. */
export function outsideName(name: string): string {
  return name.replace(/(?:Ms|Bytes)$/, '')
}

/** `appId`, `listen.address`, … */
export type SettingKey = Leaf<typeof declaration.shape>

export interface Setting {
  readonly key: SettingKey
  /** `listen`, `listen.tls`; undefined for a setting outside every group. */
  readonly group: string | undefined
  readonly variable: string
  readonly description: string
  /** Comma-separated in the environment. */
  readonly isList: boolean
  readonly isRequired: boolean
  /** A reload applies it. */
  readonly isReloadable: boolean
  /** The default as a file would hold it; undefined if there is none. */
  readonly defaultValue: unknown
}

/** In the order of the declaration. */
export const settings: readonly Setting[] = settingsIn(declaration, undefined)

export const settingsByKey: ReadonlyMap<string, Setting> = new Map(settings.map((setting) => [setting.key, setting]))

function settingsIn({ shape }: z.ZodObject, group: string | undefined): Setting[] {
  return Object.entries(shape).flatMap(([name, schema]) => {
    const path = group === undefined ? outsideName(name) : `${group}.${outsideName(name)}`
    if (schema instanceof z.ZodObject) return settingsIn(schema, path)
    const key = path as SettingKey // read from the object that the type is derived from
    const { description = '', ...meta } = (schema as z.ZodType).meta() ?? {}
    const isReloadable = meta['isReloadable'] === true
    const isList = innermost(schema) instanceof z.ZodArray && key !== 'callers'
    const hasDefault = schema instanceof z.ZodPrefault || schema instanceof z.ZodDefault
    const isRequired = !hasDefault && !(schema instanceof z.ZodOptional)
    const defaultValue = hasDefault ? schema.def.defaultValue : undefined
    const variable = variableOf(key)
    return [{ key, group, variable, description, isList, isRequired, isReloadable, defaultValue }]
  })
}

/**
 * The schema of a value as a source gives it. It asks for the type by name: so many uses of `instanceof`, which zod defines
 * anew, would start V8's optimizing compiler, and this costs 3 MiB.
 */
export function innermost(schema: z.core.$ZodType): z.core.$ZodType {
  const { def } = (schema as z.core.$ZodTypes)._zod
  if (def.type === 'prefault' || def.type === 'default' || def.type === 'optional') return innermost(def.innerType)
  return def.type === 'pipe' ? innermost(def.in) : schema
}

export function isReloadable(key: string): boolean {
  return settingsByKey.get(key)?.isReloadable === true
}

function variableOf(key: string): string {
  return `OAP_${key.replace(/[A-Z]/g, '_$&').replaceAll('.', '_').toUpperCase()}`
}

/** For a key or a variable that is not among `known`. `remedy` holds if none of them is near. */
export function unknownName(name: string, known: readonly string[], remedy: string): string {
  const meant = nearest(name, known)
  return `is not a setting: ${meant === undefined ? remedy : `did you mean ${meant}?`}`
}

/** Returns the known name that a misspelt one was probably meant to be; undefined if none is near. */
function nearest(name: string, known: readonly string[]): string | undefined {
  const distanceTo = (other: string) => distance(name.toLowerCase(), other.toLowerCase())
  const [meant = ''] = known.toSorted((one, other) => distanceTo(one) - distanceTo(other))
  return distanceTo(meant) <= Math.max(1, Math.floor(name.length / 3)) ? meant : undefined
}
