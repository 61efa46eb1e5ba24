/** The files that the Dockerfile copies are what a build needs: no more is in the builder. */

import { spawnSync } from 'node:child_process'
import { cpSync, symlinkSync } from 'node:fs'
import { expect, test } from 'vitest'
import { makeFolder } from '../support/folder.ts'
import { projectPath, readManifest, readProjectFile } from '../support/project-files.ts'

test('the builder builds the program from exactly the files that it copies', async () => {
  await using folder = await makeFolder()
  const { at } = folder
  const [, build = ''] = readProjectFile('Dockerfile').split(/^FROM /m)
  const sources = [...build.matchAll(/^COPY (.*) \S+$/gm)].flatMap(([, paths = '']) => paths.split(' '))
  for (const source of sources) cpSync(projectPath(source), at(source), { recursive: true })
  // In place of `npm ci`: the same packages.
  symlinkSync(projectPath('node_modules'), at('node_modules'))
  const { status, stderr } = spawnSync('npm', ['run', '-s', 'build'], { cwd: folder.path, encoding: 'utf8' })
  expect(status, stderr).toBe(0)
  // What the last stage copies, and nothing else, is a program that runs.
  cpSync(at('dist'), at('image/dist'), { recursive: true })
  cpSync(projectPath('package.json'), at('image/package.json'))
  const { stdout } = spawnSync(process.execPath, [at('image/dist/main.js'), '--version'], { encoding: 'utf8' })
  expect(stdout).toContain(readManifest().version)
})
