/** The packed tarball, as a user gets it: unpacked into `node_modules`, without other packages. */

import { execFile } from 'node:child_process'
import { existsSync } from 'node:fs'
import { mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { dirname, join as joinUrl } from 'node:path/posix'
import { promisify } from 'node:util'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { projectPath } from '../support/project-files.ts'
import { linkTargets, shippedDocuments } from './documents.ts'

const run = promisify(execFile)
let folder: string
let installed: string

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'oap-tarball-'))
  installed = join(folder, 'node_modules/org-access-proxy')
  await mkdir(installed, { recursive: true })
  const args = ['pack', '--ignore-scripts', '--offline', '--silent', '--pack-destination', folder]
  const { stdout } = await run('npm', args, { cwd: projectPath('.') })
  await run('tar', ['-xzf', join(folder, stdout.trim()), '-C', installed, '--strip-components=1'])
  await writeFile(join(folder, 'package.json'), '{"type":"module"}')
})

afterAll(() => rm(folder, { recursive: true, force: true }))

const PROGRAM = `
import { type Fault, type Sandbox, startSandbox } from 'org-access-proxy/sandbox'
import { type Proxy, startProxy } from 'org-access-proxy/testing'

const fault: Fault = { kind: 'status', status: 503, count: 1 }
const sandbox: Sandbox = await startSandbox({ requestFaults: [fault] })
const proxy: Proxy = await startProxy(sandbox, { config: { tokens: { lifetime: '1m' } } })
const call = () => fetch(proxy.url + '/v2/example/endpoint', { headers: { 'x-org-id': 'acme' } })
console.log((await call()).status, (await call()).status, sandbox.stats().totals.mints)
await proxy.close()
await sandbox.close()
`

test('startProxy and startSandbox run, and have types', async () => {
  await writeFile(join(folder, 'test.ts'), PROGRAM)
  await mkdir(join(folder, 'node_modules/@types'))
  for (const name of ['@types/node', 'undici-types']) {
    await symlink(projectPath(`node_modules/${name}`), join(folder, 'node_modules', name))
  }
  const options = [
    '--strict',
    '--module',
    'nodenext',
    '--target',
    'es2023',
    '--lib',
    'es2023,esnext.disposable',
    '--types',
    'node',
  ]
  await run(projectPath('node_modules/.bin/tsc'), [...options, '--outDir', '.', 'test.ts'], { cwd: folder })
  const { stdout } = await run(process.execPath, ['test.js'], { cwd: folder })
  expect(stdout).toBe('503 200 1\n')
})

test('the program runs', async () => {
  const { stdout } = await run(process.execPath, [join(installed, 'dist/main.js'), '--version'])
  expect(stdout).toMatch(/^\d+\.\d+\.\d+ \(revision \w+, Node [\d.]+\)\n$/)
})

test('its documents link only to files in it', () => {
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
