/** The type of a configuration file. Users get it spelt out: the build replaces the declaration of this file. */

import type { z } from 'zod'
import type { declaration } from '../config/schema.ts'
import type { OutsideName } from '../config/settings.ts'

/** A setting that the file leaves out may come from the environment. The secret never stands in a file. */
export type ConfigFile = Omit<Outside<z.input<typeof declaration>>, 'appSecret'>

type Outside<Value> = Value extends readonly (infer Item)[]
  ? readonly Outside<Item>[]
  : Value extends object
    ? { readonly [Name in keyof Value & string as OutsideName<Name>]?: Outside<Value[Name]> }
    : Value
