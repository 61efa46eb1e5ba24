/** Starting, and refusing to start, as a person or a supervisor sees it. */

import { spawn } from 'node:child_process'
import { chmod, readdir, readFile, stat } from 'node:fs/promises'
import { createServer } from 'node:net'
import { constants } from 'node:os'
import { fileURLToPath } from 'node:url'
import { afterAll, describe, expect, test } from 'vitest'
import { get } from '../../support/case-table.ts'
import { Gate } from '../../support/changes.ts'
import { makeFolder } from '../../support/folder.ts'
import { listening } from '../../support/listening.ts'
import { request } from '../../support/raw-client.ts'
import { startService } from '../../support/service.ts'
import { serviceForFile } from '../../support/service-for-file.ts'
import { environmentFor, MAIN, SpawnedProxy, spawnProxy } from '../../support/spawn-proxy.ts'

const served = serviceForFile()
const taken = await listening(createServer())
afterAll(() => taken[Symbol.asyncDispose]())

test('serves, and logs its addresses, the service, the source of the secret, and who may read it', async () => {
  await chmod(served.env.OAP_APP_SECRET_FILE, 0o644)
  await using proxy = spawnProxy({ env: served.env })
  const ready = JSON.parse(await proxy.waitForLine(/"msg":"ready"/))
  expect(ready).toMatchObject({ baseUrl: `${served.service.baseUrl}/`, adminAddress: 'off' })
  expect(ready.secret).toMatch(/^from \//)
  await proxy.waitForLine(/"level":"warn".*appSecretFile/)
  await chmod(served.env.OAP_APP_SECRET_FILE, 0o600)
  const port = Number(ready.address.split(':').pop())
  expect((await request(port, get('/v2/x', 'acme'))).status).toBe(200)
})

test('with tokens.warm, it is ready as soon as each org was tried once, with whatever outcome, and not before', async () => {
  const warm = ['acme', 'globex', 'unlinked', 'initech']
  const gates = new Map(warm.map((org) => [org, new Gate(60_000)]))
  await using service = await startService({
    mint: async (mint) => {
      await gates.get(mint.org)?.pass()
      return mint.org === 'unlinked' ? { status: 404 } : mint.issue()
    },
  })
  await using env = await environmentFor(service)
  const socket = `${env.OAP_APP_SECRET_FILE}.sock`
  const settings = { OAP_TOKENS_WARM: warm.join(), OAP_TOKENS_MINT_TIMEOUT: '1m', OAP_ADMIN_ADDRESS: `unix:${socket}` }
  await using proxy = spawnProxy({ env: { ...env, ...settings } })
  const health = async (path: string) => {
    const { status, content } = await request(socket, get(path, 'acme'))
    return `${status} ${content}`
  }
  await Promise.all([...gates.values()].map((gate) => gate.untilWaiting(1)))
  expect([await health('/livez'), await health('/readyz')]).toEqual(['200 ok\n', '503 not ready: warm\n'])

  for (const org of ['acme', 'globex', 'unlinked']) gates.get(org)?.open()
  // The refusal is logged after it was handled, and the other two were answered before.
  await proxy.waitForLine(/"msg":"mint failed".*"orgId":"unlinked"|"orgId":"unlinked".*"msg":"mint failed"/)
  expect(await health('/readyz')).toBe('503 not ready: warm\n')
  expect(proxy.output).not.toContain('"msg":"ready"')

  gates.get('initech')?.open()
  const { port } = await proxy.ready()
  expect(await health('/readyz')).toBe('200 ok\n')
  for (const org of ['acme', 'globex', 'initech']) expect((await request(port, get('/v2/x', org))).status).toBe(200)
  expect(service.tokens.mints.map(({ org }) => org).sort()).toEqual(warm.toSorted())
})

test('warm orgs and a wrong secret: the proxy runs but is not ready, and its log says why', async () => {
  await using refusing = await startService({ mint: () => ({ status: 401, content: '{}' }) })
  await using settings = await environmentFor(refusing)
  await using proxy = spawnProxy({
    env: { ...settings, OAP_TOKENS_WARM: 'acme,globex', OAP_ADMIN_ADDRESS: 'localhost:0' },
  })
  const line = JSON.parse(await proxy.waitForLine(/"msg":"listening, but not ready"/))
  expect(line.level).toBe('error')
  expect(line.failed).toEqual([expect.stringMatching(/^credentials: .*appId.*App secret/)])
  const adminPort = Number(line.adminAddress.split(':').pop())
  const [live, ready] = await Promise.all(
    ['/livez', '/readyz?verbose'].map((path) => request(adminPort, get(path, 'acme'))),
  )
  expect([live?.status, ready?.status]).toEqual([200, 503])
  expect(ready?.content.toString()).toContain('[+]warm ok: 2 Orgs in tokens.warm\n')
})

test('warns of options of Node that show its memory, and of a version without security fixes', async () => {
  const [major = 0] = process.versions.node.split('.').map(Number)
  await using proxy = spawnProxy({ env: served.env, nodeArgs: ['--heapsnapshot-signal=SIGUSR2'] })
  await proxy.ready()
  const warnings = proxy.logs.flatMap(({ level, msg }) => (level === 'warn' ? [msg] : []))
  const isOld = major < 22 || major === 23 || major === 25
  expect(warnings).toEqual([
    ...(isOld ? [`Node ${major} gets no security fixes any more: use Node 24 or 26`] : []),
    expect.stringMatching(/^--heapsnapshot-signal lets others read/),
  ])
})

test('a token endpoint that is down does not keep the proxy from starting', async () => {
  const down = { OAP_BASE_URL: 'http://127.0.0.1:1', OAP_TOKENS_WARM: 'acme', OAP_TOKENS_MINT_TIMEOUT: '1s' }
  await using proxy = spawnProxy({ env: { ...served.env, ...down } })
  await proxy.ready()
})

/** As the kernel answers where IPv6 is off. */
const NO_IPV6 = `process.binding('tcp_wrap').TCP.prototype.bind6 = () => ${-constants.errno.EAFNOSUPPORT}`

test('on a machine without IPv6, it listens on 0.0.0.0 in place of [::]', async () => {
  const nodeArgs = ['--import', `data:text/javascript,${encodeURIComponent(NO_IPV6)}`]
  const env = { ...served.env, OAP_ADMIN_ADDRESS: '[::]:0' }
  await using proxy = spawnProxy({ env, nodeArgs })
  const { adminPort } = await proxy.ready()
  expect(proxy.logs).toContainEqual(expect.objectContaining({ msg: 'ready', adminAddress: `0.0.0.0:${adminPort}` }))
  const admin = { ...served.env, OAP_ADMIN_ADDRESS: `[::]:${adminPort}` }
  await using asking = spawnProxy({ args: ['healthcheck'], env: admin })
  expect(await asking.exited).toEqual({ code: 0, signal: null })
})

describe('what keeps it from starting is told in one line each', () => {
  test('a refused configuration: every problem, and exit 78', async () => {
    await using proxy = spawnProxy({ env: { OAP_LISTEN_MAX_IN_FLIGHT: 'many', OAP_ORIGIN_CONNECT_TIMEOUT: '5' } })
    expect(await proxy.exited).toEqual({ code: 78, signal: null })
    const keys = proxy.stderr.map((line) => line.split(' ')[0])
    expect(keys).toEqual(expect.arrayContaining(['appId', 'baseUrl', 'listen.maxInFlight', 'origin.connectTimeout']))
    expect(keys.some((key) => key?.startsWith('appSecret'))).toBe(true)
    expect(proxy.stdout).toEqual([])
  })

  /** What an old Node says about itself, and one of the functions that it lacks. */
  const asNode = (version: string) => {
    const code = `Object.defineProperty(process, 'versions', { value: { ...process.versions, node: '${version}' } })
      delete process.getBuiltinModule`
    return ['--import', `data:text/javascript,${encodeURIComponent(code)}`]
  }

  test.each<[string, Parameters<typeof spawnProxy>[0], number, RegExp]>([
    [
      'an unreadable secret',
      { env: { OAP_APP_SECRET_FILE: '/nowhere/x' } },
      78,
      /^appSecretFile .*OAP_APP_SECRET_FILE/,
    ],
    [
      'a folder that is missing',
      { env: { OAP_LISTEN_ADDRESS: 'unix:/nowhere/oap.sock' } },
      1,
      /^org-access-proxy: listen \/nowhere\/oap.sock: its folder does not exist, or this user may not write to it$/,
    ],
    [
      'a taken port',
      { env: { OAP_LISTEN_ADDRESS: `127.0.0.1:${taken.port}` } },
      1,
      /^org-access-proxy: listen EADDRINUSE: address already in use [\d.:]+: stop the program that listens there, or choose another address$/,
    ],
    ['a wrong call', { args: ['--nonsense'] }, 1, /--nonsense/],
    ...['18.20.8', '20.18.0', '21.0.0', '22.2.0'].map(
      (version) =>
        [
          `Node ${version}`,
          { nodeArgs: asNode(version), args: ['serve'] },
          1,
          /^org-access-proxy needs Node 20.18.1 or newer, or 22.3.0 or newer, and this is Node \d+\.\d+\.\d+$/,
        ] as [string, Parameters<typeof spawnProxy>[0], number, RegExp],
    ),
  ])('%s', async (_, { env, ...options } = {}, code, line) => {
    await using proxy = spawnProxy({ ...options, env: { ...served.env, ...env } })
    expect(await proxy.exited).toEqual({ code, signal: null })
    expect(proxy.stderr).toEqual([expect.stringMatching(line)])
  })
})

test('too few descriptors are one line with the remedy', async () => {
  // Node 24 starts with 22 at least, and then has enough to load the program: the admin listener is one too many.
  const few = Number(process.versions.node.split('.')[0]) < 24 ? 19 : 22
  const started = ['-c', `ulimit -n ${few}; exec "$0" "$@"`, process.execPath, MAIN]
  const env = { PATH: process.env['PATH'] ?? '', ...served.env, OAP_ADMIN_ADDRESS: '127.0.0.1:0' }
  await using proxy = new SpawnedProxy(spawn('sh', started, { env, stdio: ['ignore', 'pipe', 'pipe'] }))
  expect((await proxy.exited).code).toBe(1)
  expect(proxy.stderr).toEqual([
    expect.stringMatching(/^org-access-proxy: (listen )?EMFILE: .*: raise the limit of open files \(/),
  ])
})

test('check ends without a word if its reader goes, as `head` does', async () => {
  const started = [
    '-c',
    '("$0" "$@"; echo "exit $?" >&2) | true; wait',
    process.execPath,
    MAIN,
    'check',
    '--mint',
    'acme',
  ]
  const env = { PATH: process.env['PATH'] ?? '', ...served.env }
  await using shell = new SpawnedProxy(spawn('sh', started, { env, stdio: ['ignore', 'pipe', 'pipe'] }))
  await shell.exited
  expect(shell.stderr).toEqual(['exit 1'])
})

test('--help and --version', async () => {
  await using help = spawnProxy({ args: ['--help'] })
  expect((await help.exited).code).toBe(0)
  expect(help.stdout.length).toBeLessThanOrEqual(40)
  await using version = spawnProxy({ args: ['--version'] })
  expect((await version.exited).code).toBe(0)
  expect(version.stdout[0]).toMatch(/^\d+\.\d+\.\d+ \(revision (?:[0-9a-f]{12}|unknown), Node [\d.]+\)$/)
})

describe('a small command loads what it needs and no more', () => {
  test.each([
    ['--version', ''],
    ['help', ''],
    ['healthcheck', ''],
    ['status', ''],
    ['healthcheck', 'listen: { address: localhost:1 }'],
  ])('%s, with the file %j', async (command, text) => {
    await using folder = await makeFolder()
    const file = text === '' ? {} : { OAP_CONFIG: await folder.write('proxy.yaml', text) }
    // Where nobody listens.
    const env = { OAP_ADMIN_ADDRESS: text === '' ? `unix:${folder.at('none.sock')}` : '', ...file }
    await using program = spawnProxy({ args: [command], env: { ...env, NODE_V8_COVERAGE: folder.at('loaded') } })
    await program.exited
    const [report = ''] = await readdir(folder.at('loaded'))
    const { result }: { result: { url: string }[] } = JSON.parse(await readFile(folder.at(`loaded/${report}`), 'utf8'))
    const loaded = result.flatMap(({ url }) => (url.startsWith('file:') ? [fileURLToPath(url)] : []))
    const sizes = await Promise.all(loaded.map(async (path) => (await stat(path)).size))
    expect(loaded.length).toBeLessThanOrEqual(5)
    expect(sizes.reduce((sum, size) => sum + size)).toBeLessThan(40_000)
  })
})
