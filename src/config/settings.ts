/** The declaration as a flat list: one entry for each key, with its name in the environment. */

import { z } from 'zod'
import { type DeclaredSettings, declaration } from './schema.ts'

type Shape = typeof declaration.shape
type Group = { [K in keyof Shape]: Shape[K] extends z.ZodObject ? K : never }[keyof Shape]

/** `appId`, `listen.address`, … */
export type SettingKey =
  | Exclude<keyof Shape, Group>
  | { [G in Group]: `${G}.${Extract<keyof Shape[G]['shape'], string>}` }[Group]

/** What a key holds once it is parsed. */
export type SettingValue<K extends SettingKey> = K extends `${infer G extends Group}.${infer Name}`
  ? DeclaredSettings[G][Name & keyof DeclaredSettings[G]]
  : DeclaredSettings[K & keyof DeclaredSettings]

/** Parsed values by key; a key whose value was wrong is missing. */
export type SettingValues = { [K in SettingKey]?: SettingValue<K> }

/** How a value is written where there is only text. */
export type Notation = 'text' | 'number' | 'flag' | 'text list' | 'number list'

export interface Setting {
  readonly key: SettingKey
  /** Undefined for a setting that stands outside every group. */
  readonly group: string | undefined
  readonly name: string
  /** Its environment variable. */
  readonly variable: string
  readonly description: string
  readonly notation: Notation
  readonly isRequired: boolean
  /** As a file would hold it; undefined where there is none. */
  readonly fallback: unknown
  readonly schema: z.ZodType
}

/** In the order of the declaration. */
export const settings: readonly Setting[] = Object.entries(declaration.shape).flatMap(([name, schema]) =>
  schema instanceof z.ZodObject
    ? Object.entries(schema.shape).map(([inner, innerSchema]) => describe(name, inner, innerSchema))
    : [describe(undefined, name, schema)],
)

/** Where two settings are one: whoever gives the secret in the environment needs no file. */
export const SECRET_KEYS: readonly SettingKey[] = ['appSecretFile', 'appSecret']

function describe(group: string | undefined, name: string, schema: z.ZodType): Setting {
  // The one place where a key's type is asserted: it is read off the very object that the type is made of.
  const key = (group === undefined ? name : `${group}.${name}`) as SettingKey
  return {
    key,
    group,
    name,
    variable: `OAP_${key.replace(/[A-Z]/g, '_$&').replace('.', '_').toUpperCase()}`,
    description: schema.description ?? '',
    notation: notationOf(schema),
    isRequired: !(schema instanceof z.ZodPrefault || schema instanceof z.ZodOptional),
    fallback: schema instanceof z.ZodPrefault ? schema.def.defaultValue : undefined,
    schema,
  }
}

function notationOf(schema: z.core.$ZodType): Notation {
  if (schema instanceof z.ZodPrefault || schema instanceof z.ZodOptional) return notationOf(schema.def.innerType)
  if (schema instanceof z.ZodPipe) return notationOf(schema.def.in)
  if (schema instanceof z.ZodArray) return notationOf(schema.def.element) === 'number' ? 'number list' : 'text list'
  if (schema instanceof z.ZodNumber) return 'number'
  if (schema instanceof z.ZodBoolean) return 'flag'
  return 'text'
}
