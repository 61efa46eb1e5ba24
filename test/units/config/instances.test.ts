/** Several files for one process. */

import { writeFile } from 'node:fs/promises'
import { expect, test } from 'vitest'
import { loadInstances } from '../../../src/config/instances.ts'
import { ConfigRefused } from '../../../src/config/problem.ts'
import { folderForFile } from '../../support/folder.ts'

const folder = await folderForFile()
const secret = await folder.write('secret', 'a-secret')
const GOOD = `{ appId: a, appSecretFile: ${secret}, baseUrl: 'https://api.example.com' }`

/** A file whose `listen` and `admin` listen at these addresses. */
async function fileAt(name: string, listen: string, admin = 'localhost:0') {
  const text = `${GOOD.slice(0, -1)}, listen: { address: '${listen}', allowRemote: true }, admin: { address: '${admin}' } }`
  return folder.write(name, text)
}

async function linesOf(files: readonly string[], env = {}) {
  const refused = await loadInstances(files, { env }).catch((error: unknown) => error)
  if (!(refused instanceof ConfigRefused)) throw new Error('not refused', { cause: refused })
  return refused.lines.map((line) => line.replaceAll(`${folder.path}/`, ''))
}

test('each has the name of its file without the ending, and its own source', async () => {
  const files = [await fileAt('github.yaml', 'localhost:0'), await fileAt('entra.prod.yaml', 'localhost:0')]
  const loaded = await loadInstances(files, { env: { HOME: '/', OAP_TOKENS_MAX_ORGS: '' } })
  expect(loaded.map(({ name, source }) => [name, source.file])).toEqual([
    ['github', files[0]],
    ['entra.prod', files[1]],
  ])
  expect(loaded.map(({ loaded }) => loaded.config.instances)).toEqual([2, 2])
})

test('a single one has no name, and takes its settings from the environment, too', async () => {
  const [only] = await loadInstances([], { file: await folder.write('one.yaml', GOOD), env: { OAP_APP_ID: 'mine' } })
  expect([only?.name, only?.loaded.config.appId, only?.loaded.config.instances]).toEqual([undefined, 'mine', 1])
})

test('all problems of all files are told together, those between files as well, and no secret', async () => {
  const [good, same, twin] = [
    await fileAt('a.yaml', 'localhost:8081'),
    await fileAt('b.yaml', '127.0.0.1:8081'),
    await fileAt('a.yml', 'localhost:8082'),
  ]
  const bad = await folder.write('bad.yaml', 'bogus: 1\nbaseUrl: 1')
  const env = { OAP_APP_SECRET: 'hunter2', OAP_TOKENS_MAX_ORGS: '3' }
  const lines = await linesOf([good, bad, same, twin], env)
  expect(lines).toEqual([
    'OAP_APP_SECRET (environment): would be the secret of every file: set appSecretFile in each',
    'OAP_TOKENS_MAX_ORGS (environment): would hold for every file: write it into each',
    '--config (a.yml): has the name of a.yaml, and each line of the log has that name: rename one',
    expect.stringMatching(/^bogus \(bad.yaml:1:8\): /),
    expect.stringMatching(/^baseUrl \(bad.yaml:2:10\): /),
    'appId (not set in bad.yaml): is required: set it in the config file',
    'appSecretFile (not set in bad.yaml): is required: name the file that holds the App secret',
    expect.stringMatching(
      /^listen.address \(b.yaml:1:\d+\): is where listen.address of a.yaml listens: give each file/,
    ),
  ])
})

test.each([
  ['localhost:8081', 'localhost:8081', true],
  ['localhost:8081', 'localhost:8082', false],
  ['localhost:0', 'localhost:0', false],
  ['localhost:8081', '[::1]:8081', true],
  ['127.0.0.1:8081', '[::1]:8081', false],
  ['127.0.0.2:8081', '0.0.0.0:8081', true],
  ['[::]:8081', '127.0.0.1:8081', true],
  ['localhost:8081', '[::]:8081', true],
  ['[::1]:8081', '0.0.0.0:8081', false],
  ['0.0.0.0:8081', '[::]:8081', true],
  ['unix:/tmp/a', 'unix:/tmp/a', true],
  ['unix:/tmp/a', 'unix:/tmp/b', false],
  ['unix:/tmp/a', 'localhost:8081', false],
])('%s and %s are the same address: %s', async (one, other, isSame) => {
  const files = [await fileAt('one.yaml', one), await fileAt('other.yaml', 'localhost:0', other)]
  const found = await loadInstances(files, { env: {} }).catch((error: unknown) => error)
  expect(found instanceof ConfigRefused).toBe(isSame)
})

test('two files without addresses have those of the default', async () => {
  const files = [await folder.write('one.yaml', GOOD), await folder.write('other.yaml', GOOD)]
  const given = 'give each file addresses of its own'
  expect(await linesOf(files)).toEqual([
    `listen.address (default in other.yaml): is where listen.address of one.yaml listens: ${given}`,
    `admin.address (default in other.yaml): is where admin.address of one.yaml listens: ${given}`,
  ])
})

test('the sockets of callers count', async () => {
  const socket = folder.at('caller.sock')
  const withCaller = async (name: string) => {
    const file = await fileAt(name, 'localhost:0')
    const text = `${GOOD.slice(0, -1)}, listen: { address: 'localhost:0' }, admin: { address: 'off' }, callers: [{ name: a, socket: '${socket}' }] }`
    await writeFile(file, text)
    return file
  }
  const [line = '', ...more] = await linesOf([await withCaller('one.yaml'), await withCaller('other.yaml')])
  expect(line).toMatch(/^callers\[0\]\.socket \(other\.yaml:.*is where callers\[0\]\.socket of one\.yaml listens/)
  expect(more).toEqual([])
})
