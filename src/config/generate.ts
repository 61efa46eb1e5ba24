/** `npm run generate`: writes the files and tables that are rendered from the declaration of the settings. */

import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { renderReference, renderSchema, withSettingsTable } from './render.ts'

const root = new URL('../../', import.meta.url)

writeFileSync(new URL('config/schema.json', root), renderSchema())
writeFileSync(new URL('config/reference.yaml', root), renderReference())

for (const name of ['README.md', 'docs/configuration.md']) {
  const document = new URL(name, root)
  if (!existsSync(document)) continue
  const renewed = withSettingsTable(readFileSync(document, 'utf8'))
  if (renewed !== undefined) writeFileSync(document, renewed)
}
