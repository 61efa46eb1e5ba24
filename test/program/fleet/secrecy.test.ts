/**
 * The attack: somebody reads everything in the store, sees every command, or reads its log and its file. Nothing there
 * contains a token, a secret or an org id, in any spelling. Or somebody writes into the store: the proxy ignores that.
 */

import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { Canaries, randomSecret } from '../../support/canaries.ts'
import { eventually } from '../../support/changes.ts'
import { lacks } from '../../support/programs.ts'
import { request } from '../../support/raw-client.ts'
import { startService } from '../../support/service.ts'
import type { ProxyUnderTest } from '../../support/start-proxy.ts'
import { RedisServer } from '../../units/fleet/redis-server.ts'
import { Endpoint, passed, Replica } from '../../units/fleet/replicas.ts'
import { FleetUnderTest, untilState } from './fleet.ts'

const SETTINGS = { 'fleet.timeout': '2s' }
/** The rule of `docs/fleet.md`. */
const RULE = 'resetchannels -@all +eval +get +set +del +pttl +strlen +time ~oap:*'

class Monitor implements AsyncDisposable {
  readonly #child: ChildProcess
  #output = ''

  constructor(server: RedisServer) {
    this.#child = spawn('redis-cli', ['-p', String(server.port), 'monitor'], { stdio: ['ignore', 'pipe', 'ignore'] })
    this.#child.stdout?.setEncoding('latin1').on('data', (text: string) => {
      this.#output += text
    })
  }

  get output(): string {
    return this.#output
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const exited = once(this.#child, 'exit')
    this.#child.kill('SIGKILL')
    await exited
  }
}

describe.skipIf(lacks('redis-server'))('somebody who reads the store', () => {
  test('learns no token, no secret and no org', async () => {
    await using service = await startService({
      mint: (mint) => (mint.org === 'refusedorg4711' ? { status: 403, content: '' } : mint.issue()),
    })
    await using server = await RedisServer.start()
    await using fleet = await FleetUnderTest.start(2, service, server, SETTINGS)
    await using monitor = new Monitor(server)
    await untilState(fleet, 'available')
    await eventually(() => monitor.output.includes('OK') || undefined, 'the monitor')
    for (const org of ['acmecanary0815', 'globexcanary0816', 'refusedorg4711']) await fleet.askAll(org)
    service.tokens.revoke('acmecanary0815')
    await fleet.askAll('acmecanary0815')
    const [first] = fleet.replicas
    await request(first!.adminPort, 'POST /tokens/purge?org=globexcanary0816 HTTP/1.1\r\nHost: localhost\r\n\r\n')
    await request(first!.adminPort, 'POST /tokens/purge?org=all HTTP/1.1\r\nHost: localhost\r\n\r\n')
    for (const org of ['globexcanary0816', 'acmecanary0815']) await fleet.askAll(org)

    const canaries = new Canaries()
      .add('App secret', service.tokens.appSecret)
      .add('API key', service.tokens.apiKey)
      .add('token', service.tokens.marker)
      .add('an org', 'acmecanary0815')
      .add('another org', 'globexcanary0816')
      .add('a refused org', 'refusedorg4711')
      .add('App id', service.tokens.appId)
    const keys = (await server.cli('--scan')).split('\n').filter((key) => key !== '')
    expect(keys.length).toBeGreaterThan(1)
    const dumps = await Promise.all(keys.map((key) => server.cli('--no-raw', 'dump', key)))
    await server.cli('save')
    const places: readonly (readonly [string, string | Buffer])[] = [
      ['--scan', keys.join('\n')],
      ['DUMP', dumps.join('\n')],
      ['MONITOR', monitor.output],
      ['the log', await server.log()],
      ['the file', await readFile(join(server.folder, 'dump.rdb'))],
    ]
    for (const [place, bytes] of places) {
      expect(bytes.length, place).toBeGreaterThan(50)
      expect(canaries.search(bytes), place).toEqual([])
    }
    // -1: the key never expires. -2: it has expired meanwhile.
    for (const key of keys) expect(await server.cli('pttl', key), `${key} expires`).not.toBe('-1')
  })
})

describe.skipIf(lacks('redis-server'))('somebody who writes into the store', () => {
  let server: RedisServer
  beforeAll(async () => {
    server = await RedisServer.start()
  })
  afterEach(() => server.cli('flushall'))
  afterAll(() => server[Symbol.asyncDispose]())

  // Each is a script, with the keys of the token and of the lease.
  test.each([
    ['changes a value', "redis.call('SETRANGE', KEYS[1], 80, string.rep('A', 16))"],
    ['cuts a value', "redis.call('SET', KEYS[1], string.sub(redis.call('GET', KEYS[1]), 1, 60), 'KEEPTTL')"],
    ['writes garbage', "redis.call('SET', KEYS[1], 'garbage', 'PX', 60000)"],
    ['changes the time', "redis.call('SETRANGE', KEYS[1], 22, '9999999999')"],
    ['writes another type', "redis.call('DEL', KEYS[1]) redis.call('RPUSH', KEYS[1], 'a', 'b')"],
    ['takes the expiry away', "redis.call('PERSIST', KEYS[1])"],
    ['makes it huge, with its own beginning', "redis.call('SETRANGE', KEYS[1], 60000000, 'x')"],
    [
      'makes it a huge stream entry',
      "redis.call('DEL', KEYS[1]) redis.call('XADD', KEYS[1], '*', 'p', string.rep('x', 60000000))",
    ],
    ['holds the lease for ever', "redis.call('DEL', KEYS[1]) redis.call('SET', KEYS[2], 'stranger')"],
    ['makes the lease another type', "redis.call('DEL', KEYS[1]) redis.call('SADD', KEYS[2], 'stranger')"],
    [
      'makes the lease huge',
      "redis.call('DEL', KEYS[1]) redis.call('SETRANGE', KEYS[2], 60000000, 'x') redis.call('PEXPIRE', KEYS[2], 60000)",
    ],
    [
      'holds the lease for a long time',
      "redis.call('DEL', KEYS[1]) redis.call('SET', KEYS[2], 'stranger', 'PX', 600000)",
    ],
  ])('%s: the org gets a token of its own, at once, and no replica reads much', async (_, script) => {
    const endpoint = new Endpoint()
    // A lease lasts for 30 s.
    await using replicas = await Replica.start(2, server.port, endpoint, { mintTimeoutMs: 60_000 })
    const [one, two] = replicas
    await one!.mint('acme')
    const key = await tokenKey(server)
    await server.cli('eval', script, '2', key, key.replace(/:t$/, ':l'))
    const before = Number(await server.info('stats', 'total_net_output_bytes'))
    const startedAt = performance.now()
    expect(await two!.text('acme')).toBe('acme.2')
    expect(performance.now() - startedAt).toBeLessThan(15_000)
    expect(Number(await server.info('stats', 'total_net_output_bytes')) - before).toBeLessThan(32 << 10)
    // What was written does not block the new token.
    await eventually(async () => (await one!.text('acme')) === 'acme.2' || undefined, 'the new token')
    expect(endpoint.calls).toHaveLength(2)
  })

  test('swaps the tokens of two orgs: both count as absent', async () => {
    await using replicas = await Replica.start(2, server.port, new Endpoint())
    const [one, two] = replicas
    await one!.mint('acme')
    const a = await tokenKey(server)
    await one!.mint('globex')
    const b = await tokenKey(server, a)
    const [inA, inB] = [await server.cli('get', a), await server.cli('get', b)]
    await server.cli('set', a, inB, 'keepttl')
    await server.cli('set', b, inA, 'keepttl')
    expect([await two!.text('acme'), await two!.text('globex')]).toEqual(['acme.3', 'globex.4'])
  })

  test('puts an old value back, with a new expiry: its age is what it was, and no successor gives way to it', async () => {
    await using replicas = await Replica.start(2, server.port, new Endpoint())
    const [one, two] = replicas
    const first = await one!.mint('acme')
    const key = await tokenKey(server)
    const old = await server.cli('get', key)
    await passed(400)
    const second = await one!.mint('acme', { replaces: first, reason: 'rejected' })
    await eventually(async () => (await server.cli('get', key)) !== old || undefined, 'the publication of the second')
    await server.cli('set', key, old, 'px', String(24 * 3_600_000))
    const replayed = await two!.mint('acme')
    expect(performance.now() - replayed.mintedAt, 'its age').toBeGreaterThanOrEqual(400)
    expect(await one!.text('acme', { replaces: second, reason: 'rejected' })).toBe('acme.3')
  })
})

/** The key of the token in the store, when it is published. */
async function tokenKey(server: RedisServer, ...known: string[]): Promise<string> {
  return await eventually(async () => {
    const keys = (await server.cli('--scan', '--pattern', '*:t')).split('\n')
    return keys.find((key) => key !== '' && !known.includes(key))
  }, 'the token in the store')
}

describe.skipIf(lacks('redis-server'))('a user with the least rights', () => {
  test('is enough for the proxy, and its password can be rotated without a failed request', async () => {
    await using service = await startService({
      mint: (mint) => (mint.org === 'refused' ? { status: 403, content: '' } : mint.issue()),
    })
    await using server = await RedisServer.start()
    const [before, after] = [randomSecret().replace('é', 'e'), randomSecret().replace('é', 'e')]
    await server.cli('acl', 'setuser', 'oap', 'on', `>${before}`, ...RULE.split(' '))
    const file = join(server.folder, 'password')
    await writeFile(file, `${before}\n`, { mode: 0o600 })
    const settings = { ...SETTINGS, 'fleet.username': 'oap', 'fleet.passwordFile': file, 'tokens.lifetime': '10s' }
    await using fleet = await FleetUnderTest.start(2, service, server, settings)
    await untilState(fleet, 'available')
    for (const org of ['acme', 'refused', 'acme']) await fleet.askAll(org)
    service.tokens.revoke('acme')
    await fleet.askAll('acme')
    for (const org of ['acme', 'all']) {
      await request(fleet.replicas[0]!.adminPort, `POST /tokens/purge?org=${org} HTTP/1.1\r\nHost: localhost\r\n\r\n`)
    }
    expect(await server.cli('acl', 'log'), 'what was denied').toBe('')

    const connections = async () => {
      const lines = (await server.cli('client', 'list', 'type', 'normal')).split('\n')
      return lines.filter((line) => line.includes(' user=oap ')).map((line) => /^id=(\d+)/.exec(line)?.[1])
    }
    const former = await connections()
    expect(former).toHaveLength(2)
    await writeFile(file, `${after}\n`)
    const warnings = async (replica: ProxyUnderTest) => JSON.parse((await replica.askAdmin('/status')).content).warnings
    for (const replica of fleet.replicas) {
      await eventually(async () => (await warnings(replica)).length > 0 || undefined, 'the rejection of the new one')
      const text = expect.stringContaining('(WRONGPASS)')
      expect(await warnings(replica)).toMatchObject([{ code: 'fleet_password_rejected', text }])
    }
    expect(await connections(), 'while the new one is unknown').toEqual(former)
    await server.cli('acl', 'setuser', 'oap', `>${after}`, `<${before}`)
    for (let i = 0, latest = former; latest.length !== 2 || latest.some((id) => former.includes(id)); i += 1) {
      expect(await fleet.askAll(`meanwhile-${i}`)).toEqual([200, 200])
      expect(service.tokens.mintsOf(`meanwhile-${i}`)).toHaveLength(1)
      latest = await connections()
    }
    expect(await fleet.askAll('globex')).toEqual([200, 200])
    for (const replica of fleet.replicas) expect(await warnings(replica)).toEqual([])
    expect(fleet.replicas.flatMap(({ logs }) => logs).filter(({ reason }) => String(reason).includes('PASS'))).toEqual(
      [],
    )
  })
})
