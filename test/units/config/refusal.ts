/** The lines of a refused configuration. */

import { expect } from 'vitest'
import { type LoadedConfig, loadConfig } from '../../../src/config/load.ts'
import { ConfigRefused } from '../../../src/config/problem.ts'
import type { LoadOptions } from '../../../src/config/settings-file.ts'
import { makeFolder } from '../../support/folder.ts'

/** The smallest environment that is accepted. */
export const GOOD = {
  OAP_APP_ID: 'my-app',
  OAP_APP_SECRET: 'correct horse battery staple',
  OAP_BASE_URL: 'https://api.example.com',
}

export type Variables = Readonly<Record<string, string>>

export const loadWith = (variables: Variables) => loadConfig({ env: { ...GOOD, ...variables } })

export async function refusalOf(options: LoadOptions, running?: LoadedConfig): Promise<string[]> {
  const refused = await loadConfig(options, running).then(
    () => expect.fail('the configuration was accepted'),
    (error: unknown) => error,
  )
  if (!(refused instanceof ConfigRefused)) throw refused
  return [...refused.lines]
}

/** The smallest environment, with more variables. */
export const refusalWith = (variables: Variables) => refusalOf({ env: { ...GOOD, ...variables } })

/** Acts on a config file with this content, beside other files. */
export async function withFile<T>(
  content: string | Uint8Array,
  act: (file: string, at: (name: string) => string) => Promise<T>,
  files: Readonly<Record<string, string | Uint8Array>> = {},
): Promise<T> {
  await using folder = await makeFolder()
  for (const [name, text] of Object.entries(files)) await folder.write(name, text)
  return await act(await folder.write('proxy.yaml', content), folder.at)
}

/** What such a file is loaded as. */
export const loadFile = (content: string, files = {}, env: Variables = GOOD) =>
  withFile(content, (file) => loadConfig({ file, env }), files)

/** The problems with such a file, without its path. */
export const problemsOf = (content: string | Uint8Array, files = {}, env: Variables = GOOD) =>
  withFile(
    content,
    async (file, at) => {
      const lines = await refusalOf({ file, env })
      return lines.map((line) => line.replace(`${file}:`, '').replaceAll(file, 'the file').replaceAll(at(''), ''))
    },
    files,
  )
