/**
 * The attack: somebody reads everything in the store, sees every command, or reads its log and its file. Nothing there
 * contains a token, a secret or an org id, in any spelling. Or somebody writes into the store: the proxy ignores that.
 */

import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { Canaries, randomSecret } from '../support/canaries.ts'
import { eventually } from '../support/changes.ts'
import { lacks } from '../support/programs.ts'
import { request } from '../support/raw-client.ts'
import { startService } from '../support/service.ts'
import { ask, FleetUnderTest, metric, untilState } from './fleet.ts'
import { RedisServer } from './redis-server.ts'

const SETTINGS = { 'fleet.timeout': '2s' }
/** The rule of `docs/fleet.md`. */
const RULE =
  'resetchannels -@all +eval +evalsha +get +set +del +pttl +pexpire +time +llen +lindex +lpop +rpush +xadd +xrange +xrevrange ~oap:*'

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
    await fleet.askAll('globexcanary0816')

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
      expect(bytes.length, place).toBeGreaterThan(100)
      expect(canaries.search(bytes), place).toEqual([])
    }
    // -1: the key never expires. -2: it has expired meanwhile.
    for (const key of keys) expect(await server.cli('pttl', key), `${key} expires`).not.toBe('-1')
  })
})

describe.skipIf(lacks('redis-server'))('somebody who writes into the store', () => {
  test.each<[string, (server: RedisServer, key: string) => Promise<unknown>]>([
    [
      'changes a value',
      async (server, key) => server.cli('set', key, flipped(await server.cli('get', key)), 'keepttl'),
    ],
    [
      'cuts a value',
      async (server, key) => server.cli('set', key, (await server.cli('get', key)).slice(0, 60), 'keepttl'),
    ],
    ['writes garbage', (server, key) => server.cli('set', key, 'garbage', 'px', '60000')],
    [
      'writes another type',
      async (server, key) => {
        await server.cli('del', key)
        await server.cli('rpush', key, 'a', 'b')
      },
    ],
    ['takes the expiry away', (server, key) => server.cli('persist', key)],
    ['makes it live longer', (server, key) => server.cli('pexpire', key, '99999999999')],
    [
      'holds the lease for ever',
      async (server, key) => {
        await server.cli('del', key)
        await server.cli('set', key.replace(/:t$/, ':l'), 'stranger')
      },
    ],
    [
      'makes the lease another type',
      async (server, key) => {
        await server.cli('del', key)
        await server.cli('sadd', key.replace(/:t$/, ':l'), 'stranger')
      },
    ],
    [
      'leaves a note',
      async (server, key) => {
        await server.cli('del', key)
        await server.cli('set', key.replace(/:t$/, ':l'), '!refused 403', 'px', '60000')
      },
    ],
  ])('%s: the org is served, with its own token', async (_, tamper) => {
    await using service = await startService()
    await using server = await RedisServer.start()
    await using fleet = await FleetUnderTest.start(2, service, server, SETTINGS)
    await untilState(fleet, 'available')
    const [one, two] = fleet.replicas
    expect(await ask(one!, 'acme')).toBe(200)
    const [key = ''] = await eventually(async () => {
      const keys = (await server.cli('--scan', '--pattern', '*:t')).split('\n').filter((found) => found !== '')
      return keys.length === 1 ? keys : undefined
    }, 'the token in the store')
    await tamper(server, key)
    expect(await ask(two!, 'acme')).toBe(200)
    expect(service.tokens.mintsOf('acme')).toHaveLength(2)
    expect(service.requests.map((seen) => service.orgOf(seen))).toEqual(['acme', 'acme'])
  })

  test('swaps the tokens of two orgs: both count as absent and are counted', async () => {
    await using service = await startService()
    await using server = await RedisServer.start()
    await using fleet = await FleetUnderTest.start(2, service, server, SETTINGS)
    await untilState(fleet, 'available')
    const [one, two] = fleet.replicas
    await ask(one!, 'acme')
    await ask(one!, 'globex')
    const [a = '', b = ''] = await eventually(async () => {
      const keys = (await server.cli('--scan', '--pattern', '*:t')).split('\n').filter((found) => found !== '')
      return keys.length === 2 ? keys : undefined
    }, 'both tokens')
    const [inA, inB] = [await server.cli('get', a), await server.cli('get', b)]
    await server.cli('set', a, inB, 'keepttl')
    await server.cli('set', b, inA, 'keepttl')
    expect([await ask(two!, 'acme'), await ask(two!, 'globex')]).toEqual([200, 200])
    expect(service.requests.map((seen) => service.orgOf(seen))).toEqual(['acme', 'globex', 'acme', 'globex'])
    expect(await metric(two!, 'oap_fleet_requests_total{operation="open",outcome="unusable"}')).toBe(2)
  })
})

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

    await server.cli('acl', 'setuser', 'oap', `>${after}`)
    await writeFile(file, `${after}\n`)
    await Promise.all(fleet.replicas.map(({ app }) => app.reload()))
    await server.cli('acl', 'setuser', 'oap', `<${before}`)
    await eventually(async () => {
      const users = await server.cli('client', 'list', 'type', 'normal')
      return users.split('user=oap').length - 1 === 2 || undefined
    }, 'the new connections in place of the old ones')
    await server.cli('client', 'kill', 'user', 'oap')
    await untilState(fleet, 'available')
    expect(await fleet.askAll('globex')).toEqual([200, 200])
    expect(fleet.replicas.flatMap(({ logs }) => logs).filter(({ reason }) => String(reason).includes('PASS'))).toEqual(
      [],
    )
  })
})

function flipped(value: string): string {
  return `${value.slice(0, 80)}${value[80] === 'A' ? 'B' : 'A'}${value.slice(81)}`
}
