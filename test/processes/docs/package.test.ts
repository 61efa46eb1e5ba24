/** The package, as a user gets it: unpacked into `node_modules`, without other packages. */

import { execFile } from 'node:child_process'
import { existsSync, mkdirSync, readFileSync } from 'node:fs'
import { symlink, writeFile } from 'node:fs/promises'
import { isBuiltin } from 'node:module'
import { homedir } from 'node:os'
import { join } from 'node:path'
import { dirname, join as joinUrl } from 'node:path/posix'
import { promisify } from 'node:util'
import { describe, expect, test } from 'vitest'
import { folderForFile } from '../../support/folder.ts'
import { projectFilesBelow, projectPath, readManifest, readProjectFile } from '../../support/project-files.ts'
import { documentAt, linkTargets, shippedDocuments, tablesBelow } from './documents.ts'

const run = promisify(execFile)
const manifest = readManifest()
const { at, path: folder } = await folderForFile()
const installed = at('node_modules/org-access-proxy')
mkdirSync(installed, { recursive: true })

await run(process.execPath, [projectPath('.ci/package.mjs'), at('staged')])
const args = ['pack', '--json', '--offline', '--pack-destination', folder]
const [packed]: { filename: string; files: { path: string }[] }[] = JSON.parse(
  (await run('npm', args, { cwd: at('staged') })).stdout,
)
await run('tar', ['-xzf', at(packed?.filename ?? ''), '-C', installed, '--strip-components=1'])
const files = packed?.files.map(({ path }) => path) ?? []

describe('its files', () => {
  test('are the program, the exports and the documents, and nothing of the tests', () => {
    const needed =
      'package.json README.md LICENSE CHANGELOG.md SECURITY.md dist/main.js dist/sandbox/sandbox.js dist/sandbox/sandbox.d.ts ' +
      'dist/third-party-licenses.txt config/reference.yaml config/schema.json docs/operations.md'
    expect(files).toEqual(expect.arrayContaining(needed.split(' ')))
    const expected = [
      /^(package\.json|LICENSE|Dockerfile|docker-compose\.yml|(README|CHANGELOG|CONTRIBUTING|SECURITY)\.md)$/,
      /^(deploy|examples)\/[\w./-]+$/,
      /^bench\/README\.md$/,
      /^share\/[\w./-]+$/,
      /^dist\/[\w./-]+\.js$/,
      /^dist\/(third-party-licenses\.txt|sbom\.cdx\.json)$/,
      /^dist\/sandbox\/[\w-]+\.d\.ts$/,
      /^config\/(reference\.yaml|schema\.json|sandbox\.yaml|sandbox\.secret)$/,
      /^docs\/[\w/-]+\.(md|png|svg)$/,
    ]
    expect(files.filter((path) => !expected.some((pattern) => pattern.test(path)))).toEqual([])
  })

  test('are ASCII where they are code: a single other character may double what a file takes in memory', () => {
    const code = files.filter((path) => path.endsWith('.js'))
    expect(code.length).toBeGreaterThan(10)
    expect(code.filter((path) => !/^[\0-\x7f]*$/.test(readFileSync(join(installed, path), 'utf8')))).toEqual([])
  })

  test('contain no secret, and nothing of the machine that built them', () => {
    const secrets = [
      /-----BEGIN [A-Z ]*PRIVATE KEY-----(?:\\n|\s)+[A-Za-z0-9+/]{20}/, // jose, which parses keys, contains only the header
      /\bBearer ey[\w-]{8,}/,
      /\b(?:ghp|npm|sk)_[A-Za-z0-9]{20,}/,
      /\/\/[^/\s:@]+:[^/\s:@]+@/,
      new RegExp(`${projectPath('.')}|${homedir()}/`),
    ]
    const findings = files.flatMap((path) => {
      const text = readFileSync(join(installed, path), 'utf8')
      return secrets.filter((pattern) => pattern.test(text)).map((pattern) => `${path}: ${pattern}`)
    })
    expect(findings).toEqual([])
  })

  test('import only each other and modules of Node', () => {
    const imported = files
      .filter((path) => path.endsWith('.js'))
      .flatMap((path) => [...readProjectFile(path).matchAll(/^(?:import|export) .*from "([^"]+)";$/gm)])
      .map(([, name = '']) => name)
    expect(imported.some((name) => name.startsWith('../chunks/'))).toBe(true)
    expect(imported.filter((name) => !name.startsWith('.') && !isBuiltin(name))).toEqual([])
  })

  test('link only to each other', () => {
    const broken = shippedDocuments
      .filter(({ path }) => existsSync(join(installed, path)))
      .flatMap((document) =>
        linkTargets(document)
          .filter((target) => !/^\w+:|^#/.test(target))
          .map((target) => joinUrl(dirname(document.path), target.replace(/#.*/, '')))
          .filter((target) => !existsSync(join(installed, target)))
          .map((target) => `${document.path}: ${target}`),
      )
    expect(broken).toEqual([])
  })
})

const PROGRAM = `
import { type Fault, type Sandbox, startSandbox } from 'org-access-proxy/sandbox'
import { type Proxy, startProxy } from 'org-access-proxy/testing'

const fault: Fault = { kind: 'status', status: 503, count: 1 }
const sandbox: Sandbox = await startSandbox({ requestFaults: [fault] })
const proxy: Proxy = await startProxy(sandbox, { config: { tokens: { lifetime: '1m' } } })
// @ts-expect-error: a misspelt setting does not compile
const settings: Parameters<typeof startProxy>[1] = { config: { tokens: { lifeTime: '1m' } } }
const call = () => fetch(proxy.url + '/v2/example/endpoint', { headers: { 'x-org-id': 'acme' } })
console.log((await call()).status, (await call()).status, sandbox.stats().totals.mints)
await proxy.close()
await sandbox.close()
`

test('startProxy and startSandbox run, and have types; the program runs', async () => {
  await writeFile(at('package.json'), '{"type":"module"}')
  await writeFile(at('test.ts'), PROGRAM)
  mkdirSync(at('node_modules/@types'))
  for (const name of ['@types/node', 'undici-types']) {
    await symlink(projectPath(`node_modules/${name}`), at(`node_modules/${name}`))
  }
  const options = '--strict --module nodenext --target es2023 --lib es2023,esnext.disposable --types node --outDir .'
  await run(projectPath('node_modules/.bin/tsc'), [...options.split(' '), 'test.ts'], { cwd: folder })
  expect((await run(process.execPath, ['test.js'], { cwd: folder })).stdout).toBe('503 200 1\n')
  const { stdout } = await run(process.execPath, [join(installed, 'dist/main.js'), '--version'])
  expect(stdout).toMatch(/^\d+\.\d+\.\d+ \(revision \w+, Node [\d.]+\)\n$/)
})

describe('the packages that the program is built on', () => {
  const used = packagesIn('src')

  test('are bundled, with their licences, and are in the bill of materials', () => {
    const licenses = readProjectFile('dist/third-party-licenses.txt')
    const { components }: { components: { purl: string }[] } = JSON.parse(readProjectFile('dist/sbom.cdx.json'))
    const purls = components.map(({ purl }) => purl)
    expect(used).toEqual(expect.arrayContaining(['lru-cache', 'pino', 'zod']))
    for (const path of used) {
      const { name, version } = JSON.parse(readProjectFile(`node_modules/${path}/package.json`))
      expect(licenses).toMatch(new RegExp(`^${name} ${version.replaceAll('.', '\\.')}$`, 'm'))
      expect(purls).toContain(`pkg:npm/${name.replace('@', '%40')}@${version}`)
    }
  })

  test('are not installed a second time beside the bundle, and no installed package runs a script', () => {
    const staged = JSON.parse(readFileSync(join(installed, 'package.json'), 'utf8'))
    for (const name of ['dependencies', 'devDependencies', 'scripts']) expect(staged).not.toHaveProperty(name)
    const lock: { packages: Record<string, { hasInstallScript?: boolean }> } = JSON.parse(
      readProjectFile('package-lock.json'),
    )
    expect(Object.entries(lock.packages).filter(([, { hasInstallScript }]) => hasInstallScript === true)).toEqual([])
  })

  test('are what `npm audit --omit=dev` looks at', () => {
    expect(Object.keys(manifest.dependencies).toSorted()).toEqual(used)
  })

  test('have a row with their purpose', () => {
    const rows = tablesBelow(documentAt('docs/architecture.md'), '## What it is built on')
    const named = rows.flatMap(([cell = '']) => [...cell.matchAll(/\[([@\w/-]+)\]/g)].map(([, name]) => name))
    expect(named.toSorted()).toEqual(used)
  })
})

test('the changelog has this version first, and the README asks for the same Node', () => {
  const [, version] = /^## (\d+\.\d+\.\d+)\b/m.exec(documentAt('CHANGELOG.md').text) ?? []
  expect(version).toBe(manifest.version)
  const oldest: readonly string[] = manifest.engines.node.match(/\d+\.\d+\.\d+/g) ?? []
  const versions = oldest.map((version) => `${version} or newer`)
  expect(documentAt('README.md').prose).toContain(`Node ${versions.join(', or ')}`)
})

/** The packages that the files of a folder import, sorted. */
function packagesIn(folder: string): string[] {
  const imports = projectFilesBelow(folder, '.ts').flatMap((path) => [
    ...readProjectFile(path).matchAll(/(?:from |import\()'((?:@[\w-]+\/)?[\w-]+)[\w./-]*'/g),
  ])
  const names = new Set(imports.map(([, name = '']) => name).filter((name) => !isBuiltin(name)))
  return [...names].filter((name) => name in manifest.dependencies || name in manifest.devDependencies).sort()
}
