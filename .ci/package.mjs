/**
 * Stages the package that users install into an empty folder: `node .ci/package.mjs FOLDER`, after a build. `dist/` contains
 * the packages that the program runs on, so the staged manifest lists none of them: an installation would bring them a second
 * time. The manifest of the repository lists them, for `npm audit`, `npm sbom` and update bots.
 */

import { execFileSync } from 'node:child_process'
import { cpSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname, join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'

const [, , folder] = process.argv
if (folder === undefined) throw new Error('usage: node .ci/package.mjs FOLDER')
const root = fileURLToPath(new URL('..', import.meta.url))
const target = resolve(folder)

const listed = execFileSync('npm', ['pack', '--dry-run', '--json', '--ignore-scripts'], { cwd: root, encoding: 'utf8' })
const [{ files }] = JSON.parse(listed)
for (const { path } of files) {
  mkdirSync(dirname(join(target, path)), { recursive: true })
  cpSync(join(root, path), join(target, path))
}

const {
  dependencies: _,
  devDependencies: _dev,
  scripts: _scripts,
  ...manifest
} = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'))
writeFileSync(join(target, 'package.json'), `${JSON.stringify(manifest, null, 2)}\n`)
