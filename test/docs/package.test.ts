/** The package: its files, its dependencies, and that its documents agree. */

import { spawnSync } from 'node:child_process'
import { isBuiltin } from 'node:module'
import { describe, expect, test } from 'vitest'
import { projectFilesBelow, projectPath, readManifest, readProjectFile } from '../support/project-files.ts'
import { documentAt, tablesBelow } from './documents.ts'

interface LockedPackage {
  readonly dev?: boolean
  readonly hasInstallScript?: boolean
}

const manifest = readManifest()
const lock: { readonly packages: Readonly<Record<string, LockedPackage>> } = JSON.parse(
  readProjectFile('package-lock.json'),
)

describe('npm pack', () => {
  const files = listPackage()

  test('contains the program, the exports and the documents', () => {
    expect(files).toEqual(
      expect.arrayContaining([
        'package.json',
        'README.md',
        'LICENSE',
        'CHANGELOG.md',
        'SECURITY.md',
        'dist/main.js',
        'dist/sandbox/sandbox.js',
        'dist/sandbox/sandbox.d.ts',
        'dist/third-party-licenses.txt',
        'config/reference.yaml',
        'config/schema.json',
        'docs/operations.md',
      ]),
    )
  })

  test('imports only its own files and modules of Node', () => {
    const imported = files
      .filter((path) => path.endsWith('.js'))
      .flatMap((path) => [...readProjectFile(path).matchAll(/^(?:import|export) .*from "([^"]+)";$/gm)])
      .map(([, name = '']) => name)
    expect(imported.some((name) => name.startsWith('../chunks/'))).toBe(true)
    expect(imported.filter((name) => !name.startsWith('.') && !isBuiltin(name))).toEqual([])
  })

  test('contains nothing else', () => {
    const expected = [
      /^(package\.json|LICENSE|Dockerfile|docker-compose\.yml|(README|CHANGELOG|CONTRIBUTING|SECURITY)\.md)$/,
      /^(deploy|examples)\/[\w./-]+$/,
      /^bench\/README\.md$/,
      /^dist\/[\w./-]+\.js$/,
      /^dist\/(third-party-licenses\.txt|sbom\.cdx\.json)$/,
      /^dist\/sandbox\/\w+\.d\.ts$/,
      /^config\/(reference\.yaml|schema\.json|sandbox\.yaml|sandbox\.secret)$/,
      /^docs\/[\w/-]+\.(md|png|svg)$/,
    ]
    expect(files.filter((path) => !expected.some((pattern) => pattern.test(path)))).toEqual([])
  })
})

describe('the packages that the program is built on', () => {
  const used = packagesIn('src')

  test('are bundled, with their licences, and are in the bill of materials', () => {
    const licenses = readProjectFile('dist/third-party-licenses.txt')
    const { components }: { components: { purl: string }[] } = JSON.parse(readProjectFile('dist/sbom.cdx.json'))
    const purls = components.map(({ purl }) => purl)
    expect(used).toEqual(expect.arrayContaining(['http-proxy', 'lru-cache', 'pino', 'undici', 'zod']))
    for (const name of used) {
      const { name: builtName, version }: { name: string; version: string } = JSON.parse(
        readProjectFile(`node_modules/${name}/package.json`),
      )
      expect(licenses).toMatch(new RegExp(`^${builtName} ${version.replaceAll('.', '\\.')}$`, 'm'))
      expect(purls).toContain(`pkg:npm/${builtName.replace('@', '%40')}@${version}`)
    }
  })

  test('are not installed a second time beside the bundle', () => {
    expect(manifest).not.toHaveProperty('dependencies')
    expect(Object.keys(manifest.devDependencies)).toEqual(expect.arrayContaining(used))
  })

  test('have a row with their purpose', () => {
    const rows = tablesBelow(documentAt('docs/architecture.md'), '## What it is built on')
    const named = rows.flatMap(([cell = '']) => [...cell.matchAll(/\[([@\w/-]+)\]/g)].map(([, name]) => name))
    expect(named.toSorted()).toEqual(used)
  })
})

test('no installed package runs a script', () => {
  const running = Object.entries(lock.packages).filter(([, { hasInstallScript }]) => hasInstallScript === true)
  expect(running.map(([path]) => path)).toEqual([])
})

test('the changelog has this version first', () => {
  const [, version] = /^## (\d+\.\d+\.\d+)\b/m.exec(documentAt('CHANGELOG.md').text) ?? []
  expect(version).toBe(manifest.version)
})

test('the README and the package ask for the same Node', () => {
  expect(documentAt('README.md').prose).toContain(`Node ${manifest.engines.node.replace('>=', '')} or newer`)
})

/** The packages that the files of a folder import, sorted. */
function packagesIn(folder: string): string[] {
  const imports = projectFilesBelow(folder, '.ts').flatMap((path) => [
    ...readProjectFile(path).matchAll(/(?:from |import\()'((?:@[\w-]+\/)?[\w-]+)[\w./-]*'/g),
  ])
  const names = new Set(imports.map(([, name = '']) => name).filter((name) => !isBuiltin(name)))
  return [...names].filter((name) => name in manifest.devDependencies).sort()
}

/** The paths in the tarball. Builds and fetches nothing. */
function listPackage(): string[] {
  const args = ['pack', '--dry-run', '--json', '--ignore-scripts', '--offline']
  const { stdout } = spawnSync('npm', args, { cwd: projectPath('.'), encoding: 'utf8' })
  const [packed]: { files: { path: string }[] }[] = JSON.parse(stdout)
  return packed?.files.map(({ path }) => path) ?? []
}
