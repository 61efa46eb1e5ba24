/** Starting, and refusing to start, as a person or a supervisor sees it. */

import { spawn, spawnSync } from 'node:child_process'
import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { get } from '../support/case-table.ts'
import { request } from '../support/raw-client.ts'
import { startService } from '../support/service.ts'
import { environmentFor, MAIN, SpawnedProxy, spawnProxy } from '../support/spawn-proxy.ts'
import { serviceForFile } from '../support/service-for-file.ts'

const served = serviceForFile()

test('serves, and logs the clients that may connect, the service and the source of the secret', async () => {
  await using proxy = spawnProxy({ env: served.env })
  const ready = JSON.parse(await proxy.waitForLine(/"msg":"ready"/))
  expect(ready).toMatchObject({ callers: 'this host only', baseUrl: `${served.service.baseUrl}/`, adminAddress: 'off' })
  expect(ready.secret).toMatch(/^from \//)
  const port = Number(ready.address.split(':').pop())
  expect((await request(port, get('/v2/x', 'acme'))).status).toBe(200)
})

test('warm orgs and a wrong secret: the proxy runs but is not ready, and its log says why', async () => {
  await using refusing = await startService({ mint: () => ({ status: 401, content: '{}' }) })
  await using settings = await environmentFor(refusing)
  await using proxy = spawnProxy({
    env: { ...settings, OAP_TOKENS_WARM: 'acme,globex', OAP_ADMIN_ADDRESS: 'localhost:0' },
  })
  const line = JSON.parse(await proxy.waitForLine(/"msg":"listening, but not ready"/))
  expect(line.level).toBe('error')
  expect(line.failed).toEqual([expect.stringMatching(/^credentials: .*appId.*appSecretFile/)])
  const adminPort = Number(line.adminAddress.split(':').pop())
  const [live, ready] = await Promise.all(
    ['/livez', '/readyz?verbose'].map((path) => request(adminPort, `GET ${path} HTTP/1.1\r\nHost: localhost\r\n\r\n`)),
  )
  expect([live?.status, ready?.status]).toEqual([200, 503])
  expect(ready?.content.toString()).toContain('[+]warm ok: tried to get tokens for the 2 Orgs of tokens.warm\n')
})

describe('a refused configuration', () => {
  test('prints every problem, one line each, and exits 78', async () => {
    await using proxy = spawnProxy({ env: { OAP_LISTEN_MAX_IN_FLIGHT: 'many', OAP_ORIGIN_CONNECT_TIMEOUT: '5' } })
    expect(await proxy.exited).toEqual({ code: 78, signal: null })
    const keys = proxy.stderr.map((line) => line.split(' ')[0])
    expect(keys).toEqual(expect.arrayContaining(['appId', 'baseUrl', 'listen.maxInFlight', 'origin.connectTimeout']))
    expect(keys.some((key) => key?.startsWith('appSecret'))).toBe(true)
    expect(proxy.stdout).toEqual([])
  })

  test('names an unreadable secret file in one line', async () => {
    await using proxy = spawnProxy({ env: { ...served.env, OAP_APP_SECRET_FILE: '/nowhere/secret' } })
    expect(await proxy.exited).toEqual({ code: 78, signal: null })
    expect(proxy.stderr).toHaveLength(1)
    expect(proxy.stderr[0]).toMatch(/^appSecretFile .*OAP_APP_SECRET_FILE/)
  })
})

test('a taken port is one clear line and exit 1', async () => {
  const taken = createServer()
  await new Promise<void>((resolve) => taken.listen(0, '127.0.0.1', resolve))
  const address = taken.address()
  const port = typeof address === 'object' ? address?.port : undefined
  try {
    await using proxy = spawnProxy({ env: { ...served.env, OAP_LISTEN_ADDRESS: `127.0.0.1:${port}` } })
    expect(await proxy.exited).toEqual({ code: 1, signal: null })
    expect(proxy.stderr).toEqual([
      `org-access-proxy: 127.0.0.1:${port} is in use: stop the program that listens there, or choose another address`,
    ])
  } finally {
    await new Promise((resolve) => taken.close(resolve))
  }
})

test('a socket in a folder that does not exist is one line with the path and the remedy, and exit 1', async () => {
  await using proxy = spawnProxy({ env: { ...served.env, OAP_LISTEN_ADDRESS: 'unix:/nowhere/oap.sock' } })
  expect(await proxy.exited).toEqual({ code: 1, signal: null })
  expect(proxy.stderr).toEqual([
    'org-access-proxy: /nowhere/oap.sock cannot be made: choose a folder that exists and that this user may write to',
  ])
})

describe('too few file descriptors', () => {
  const { PATH } = process.env
  const NEEDED = 64
  const withLimit = (limit: number, ...program: string[]) => {
    const args = ['-c', `ulimit -n ${limit} && exec "$0" "$@"`, process.execPath, ...program]
    return new SpawnedProxy(spawn('sh', args, { env: { PATH, ...served.env } }))
  }

  /** With fewer, Node itself cannot even load an empty program. */
  async function leastForNode(): Promise<number> {
    const folder = await mkdtemp(join(tmpdir(), 'oap-empty-'))
    try {
      const empty = join(folder, 'empty.mjs')
      await writeFile(empty, '')
      for (let limit = 16; limit < NEEDED; limit++) {
        await using node = withLimit(limit, empty)
        if ((await node.exited).code === 0) return limit
      }
      throw new Error(`Node needs more than ${NEEDED} descriptors`)
    } finally {
      await rm(folder, { recursive: true })
    }
  }

  test('are one clear line and exit 1', async () => {
    const least = await leastForNode()
    // Just above what Node needs, each limit lets another module fail to load.
    const limits = [...Array.from({ length: 8 }, (_, i) => least + i), 40, NEEDED - 1]
    for (const limit of limits) {
      await using proxy = withLimit(limit, MAIN)
      expect({ limit, ...(await proxy.exited) }).toEqual({ limit, code: 1, signal: null })
      expect(proxy.stderr).toEqual([
        'org-access-proxy: too few file descriptors to start: raise the limit (ulimit -n) to 256 or more',
      ])
    }
  })

  test('64 are enough to serve a cold org', async () => {
    await using proxy = withLimit(NEEDED, MAIN)
    const { port } = await proxy.ready()
    expect((await request(port, get('/v2/x', 'cold'))).status).toBe(200)
  })
})

test('a token endpoint that is down does not keep the proxy from starting', async () => {
  await using proxy = spawnProxy({
    env: { ...served.env, OAP_BASE_URL: 'http://127.0.0.1:1', OAP_TOKENS_WARM: 'acme' },
  })
  await proxy.ready()
})

describe('a unix socket', () => {
  test('replaces a stale one, and refuses anything else at its path', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'oap-socket-'))
    const path = join(folder, 'proxy.sock')
    const unix = { ...served.env, OAP_LISTEN_ADDRESS: `unix:${path}` }
    try {
      await using first = spawnProxy({ env: unix })
      await first.ready()
      expect((await request(path, get('/v2/x', 'acme'))).status).toBe(200)
      await using second = spawnProxy({ env: unix })
      expect((await second.exited).code).toBe(1)
      expect(second.stderr[0]).toContain('in use')
      first.signal('SIGKILL')
      await first.exited
      await using third = spawnProxy({ env: unix })
      await third.ready()
      expect((await request(path, get('/v2/x', 'acme'))).status).toBe(200)
      third.signal('SIGTERM')
      await third.exited
      await writeFile(path, 'a file')
      await using fourth = spawnProxy({ env: unix })
      expect((await fourth.exited).code).toBe(1)
      expect(fourth.stderr[0]).toMatch(/ exists and is not a socket: choose another path, or remove it$/)
    } finally {
      await rm(folder, { recursive: true })
    }
  })
})

describe('check', () => {
  test('prints every setting with its source, the secret masked, and tries a mint', async () => {
    const before = served.service.tokens.mints.length
    await using check = spawnProxy({ args: ['check', '--mint', 'acme'], env: served.env })
    expect((await check.exited).code, check.output).toBe(0)
    expect(check.output).toContain('listen.maxInFlight')
    expect(check.output).toContain('OAP_BASE_URL')
    expect(served.service.tokens.mints).toHaveLength(before + 1)
    expect(check.output).not.toContain(served.service.tokens.appSecret)
    expect(check.output).not.toContain(served.service.tokens.marker)
  })
})

test('--help and --version', async () => {
  await using help = spawnProxy({ args: ['--help'] })
  expect((await help.exited).code).toBe(0)
  expect(help.stdout.length).toBeLessThanOrEqual(40)
  await using version = spawnProxy({ args: ['--version'] })
  expect((await version.exited).code).toBe(0)
  expect(version.stdout[0]).toMatch(/^\d+\.\d+\.\d+ \(revision (?:[0-9a-f]{12}|unknown), Node [\d.]+\)$/)
})

test('a wrong call is one line and exit 1', async () => {
  await using proxy = spawnProxy({ args: ['--nonsense'] })
  expect((await proxy.exited).code).toBe(1)
  expect(proxy.stderr).toHaveLength(1)
})

test('a secret file that others can read gets a warning', async () => {
  const { OAP_APP_SECRET_FILE: secretFile = '' } = served.env
  await chmod(secretFile, 0o644)
  await using proxy = spawnProxy({ env: served.env })
  await proxy.waitForLine(/"level":"warn".*appSecretFile/)
  await proxy.ready()
  await chmod(secretFile, 0o600)
})

test('an old version of Node gets one line and exit code 78', () => {
  // What Node 18 says about itself, and one of the functions that it lacks.
  const pretend = `Object.defineProperty(process, 'versions', { value: { ...process.versions, node: '18.20.8' } })
    delete process.getBuiltinModule`
  const args = ['--import', `data:text/javascript,${encodeURIComponent(pretend)}`, MAIN, 'serve']
  const { status, stderr, stdout } = spawnSync(process.execPath, args, { encoding: 'utf8' })
  expect([status, stdout, stderr]).toEqual([
    78,
    '',
    'org-access-proxy needs Node 20.18.1 or newer, and this is Node 18.20.8\n',
  ])
})
