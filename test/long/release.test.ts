/** `npm run release:check` finds what must not be released, all at once. */

import { spawnSync } from 'node:child_process'
import { cpSync, rmSync } from 'node:fs'
import { chmod, writeFile } from 'node:fs/promises'
import { expect, test } from 'vitest'
import { makeFolder } from '../support/folder.ts'
import { projectPath, readManifest, readProjectFile } from '../support/project-files.ts'

const { files, version } = readManifest()

test('a release of the wrong version, with a package and a licence missing, is refused', async () => {
  await using folder = await makeFolder()
  const { at, path: cwd } = folder
  for (const file of [...files, 'package.json', 'package-lock.json', 'README.md', 'LICENSE', '.ci']) {
    cpSync(projectPath(file), at(file), { recursive: true })
  }
  const change = (path: string, from: string | RegExp, to: string) =>
    writeFile(at(path), readProjectFile(path).replace(from, to))
  await change('CHANGELOG.md', /^## .*$/m, '## 0.0.9')
  await change('deploy/kubernetes/base/kustomization.yaml', version, '0.0.9')
  await change('dist/third-party-licenses.txt', /^zod \d/m, 'gone')
  await change('dist/sbom.cdx.json', /"id": "ISC"/, '"id": "GPL-3.0"')
  await change('package.json', '"zod"', '"left-pad": "1.0.0",\n    "zod"')
  rmSync(at('SECURITY.md'))
  const git = (...args: string[]) =>
    spawnSync('git', ['-c', 'user.name=a', '-c', 'user.email=a@example.org', ...args], { cwd })
  git('init', '--quiet')
  git('commit', '--quiet', '--allow-empty', '--message', 'first')

  // No engine works, whatever this machine has: a build would fetch its base image.
  await using engines = await makeFolder()
  for (const name of ['docker', 'podman', 'buildah'])
    await chmod(await engines.write(name, '#!/bin/sh\nexit 1\n'), 0o700)
  const PATH = `${engines.path}:${process.env['PATH']}`
  const env = { ...process.env, PATH, GITHUB_REF_TYPE: 'tag', GITHUB_REF_NAME: 'v0.0.8' }
  const { status, stderr } = spawnSync(process.execPath, ['.ci/release.mjs'], { cwd, env, encoding: 'utf8' })
  expect(status).toBe(1)
  expect(stderr.trim().split('\n')).toEqual([
    `CHANGELOG.md: begins with 0.0.9, package.json says ${version}`,
    expect.stringMatching(/^CHANGELOG.md: 0.0.9 needs a date that is not after /),
    `deploy/kubernetes/base/kustomization.yaml: newTag is not ${version}`,
    `the tag is v0.0.8, not v${version}`,
    'the work tree has changes: commit them',
    expect.stringMatching(/^dist\/ is not of /),
    expect.stringMatching(/: licence GPL-3.0$/),
    expect.stringMatching(/^dist\/third-party-licenses.txt: no licence of zod /),
    'dist/sbom.cdx.json: left-pad is missing',
    'the package lacks SECURITY.md',
  ])
})
