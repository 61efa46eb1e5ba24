/** The index of the tests' helpers is that of their first sentences. `npm run generate` runs this test so that it writes it. */

import { expect, test } from 'vitest'
import { projectFilesBelow, readProjectFile } from '../../support/project-files.ts'

test('the index of test/support', async () => {
  const rows = projectFilesBelow('test/support', '.ts').map((path) => {
    const [, first] = /^\/\*\*\s+(?:\* )?([\s\S]*?\.)(?:\s|$)/.exec(readProjectFile(path)) ?? []
    expect(first, `the first sentence of ${path}`).toBeDefined()
    const sentence = first?.replaceAll(/\s+\* /g, ' ')
    return `| \`${path.slice('test/support/'.length)}\` | ${sentence} |`
  })
  const index = ['# Helpers of the tests', '', '| file | what it is |', '|---|---|', ...rows, ''].join('\n')
  await expect(index).toMatchFileSnapshot('../../support/README.md')
})
