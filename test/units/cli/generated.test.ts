/** The completions and the man page match the declarations. `npm run generate` runs this test so that it writes them. */

import { execFile } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'
import { COMMAND_NAMES } from '../../../src/cli/commands.ts'
import { settings } from '../../../src/config/settings.ts'
import { lacks } from '../../support/programs.ts'
import { renderBash, renderManPage, renderZsh } from './rendered-commands.ts'

const run = promisify(execFile)
const BASH = '../../../share/bash-completion/completions/org-access-proxy'
const ZSH = '../../../share/zsh/site-functions/_org-access-proxy'
const MAN = '../../../share/man/man1/org-access-proxy.1'

test.each([
  [BASH, renderBash],
  [ZSH, renderZsh],
  [MAN, renderManPage],
])('%s is up to date', async (path, render) => {
  await expect(render()).toMatchFileSnapshot(path)
})

test.each([
  ['', COMMAND_NAMES],
  ['pro', ['probe']],
  ['probe --o', ['--org']],
  ['-c x.yaml stat', ['status']],
  ['check --m', ['--mint']],
  ['probe --org ', []],
  ['sandbox --', ['--port', '--like', '--help']],
])('bash completes "%s"', async (line, expected) => {
  const words = ['org-access-proxy', ...line.split(' ')]
  const script = `source "$1"; COMP_WORDS=("\${@:2}"); COMP_CWORD=$(( $# - 2 )); _org_access_proxy; printf '%s\\n' "\${COMPREPLY[@]}"`
  const file = fileURLToPath(new URL(BASH, import.meta.url))
  const { stdout } = await run('bash', ['-c', script, 'bash', file, ...words])
  const found = stdout.split('\n').filter((word) => word !== '')
  expect(found.filter((word) => line !== '' || !word.startsWith('-'))).toEqual(expected)
})

test.skipIf(lacks('zsh'))('zsh takes its completion for a program', async () => {
  await run('zsh', ['-n', fileURLToPath(new URL(ZSH, import.meta.url))])
})

test('the man page has every command and every setting', () => {
  const page = renderManPage().replaceAll('\\-', '-')
  for (const name of COMMAND_NAMES) expect(page).toContain(`\n\\fB${name}`)
  for (const { key } of settings) expect(page).toContain(`\\fB${key}`)
})
