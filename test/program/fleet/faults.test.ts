/**
 * The store is not required: whatever happens to it, requests are served, and it is used again when it has recovered. Each
 * fault happens to a real Redis.
 */

import { createServer, type Socket } from 'node:net'
import { createServer as createTlsServer, type TLSSocket } from 'node:tls'
import { describe, expect, test } from 'vitest'
import { CA_FILE, certificate, certificateFiles } from '../../support/certificates.ts'
import { eventually } from '../../support/changes.ts'
import { listening } from '../../support/listening.ts'
import { scaled, scaledSetting } from '../../support/pace.ts'
import { lacks } from '../../support/programs.ts'
import { resolving } from '../../support/resolving.ts'
import { type Service, startService } from '../../support/service.ts'
import type { ProxyUnderTest } from '../../support/start-proxy.ts'
import { RedisServer } from '../../units/fleet/redis-server.ts'
import { ask, FleetUnderTest, untilState } from './fleet.ts'

/** Long enough that a replica without CPU time does not count a good store as lost. */
const TIMEOUT = scaledSetting(100)
/** The promise of 5 s is for a quiet machine. */
const RECOVERY_MS = 10_000

interface Fault {
  readonly begin: (server: RedisServer) => unknown
  readonly end: (server: RedisServer) => unknown
  /** Part of the reason that is logged. */
  readonly reason?: string
  /** Some faults end before a replica notices them. */
  readonly isNoticed?: boolean
}

const FAULTS: Readonly<Record<string, Fault>> = {
  'killed and started again': { begin: (server) => server.kill(), end: (server) => server.restart() },
  'stopped with SIGSTOP': { begin: (server) => server.signal('SIGSTOP'), end: (server) => server.signal('SIGCONT') },
  'too slow for any client': {
    begin: (server) => server.cli('client', 'pause', '60000', 'all'),
    end: (server) => server.restart(),
  },
  full: {
    begin: (server) => server.cli('config', 'set', 'maxmemory', '1'),
    end: (server) => server.cli('config', 'set', 'maxmemory', '0'),
    reason: 'it is full (OOM)',
  },
  'demoted to a replica': {
    begin: (server) => server.cli('replicaof', '127.0.0.1', '1'),
    end: (server) => server.cli('replicaof', 'no', 'one'),
    reason: 'it is a replica or read-only (READONLY)',
  },
  'asking for another password': {
    begin: async (server) => {
      await server.cli('config', 'set', 'requirepass', 'changed')
      await server.cli('-a', 'changed', 'client', 'kill', 'type', 'normal')
    },
    end: (server) => server.cli('-a', 'changed', 'config', 'set', 'requirepass', ''),
  },
  'without the right to run scripts': {
    begin: (server) => server.cli('acl', 'setuser', 'default', '-@scripting'),
    end: (server) => server.cli('acl', 'setuser', 'default', '+@scripting'),
    reason: 'its ACL does not permit what the proxy needs: see docs/fleet.md (NOPERM)',
  },
  flushed: { begin: (server) => server.cli('flushall'), end: () => undefined, isNoticed: false },
  'without its scripts': { begin: (server) => server.cli('script', 'flush'), end: () => undefined, isNoticed: false },
}

describe.skipIf(lacks('redis-server'))('a store that is', () => {
  test.each(Object.entries(FAULTS))('%s', async (_, { begin, end, isNoticed = true, reason = '' }) => {
    await using service = await startService()
    await using server = await RedisServer.start()
    await using fleet = await FleetUnderTest.start(2, service, server, { 'fleet.timeout': TIMEOUT })
    await untilState(fleet, 'available')
    expect(await fleet.askAll('before')).toEqual([200, 200])

    await begin(server)
    // Cached, cold, and cold again: nothing fails, before and after the replicas notice the fault.
    for (const org of ['before', 'during-1', 'during-2', 'during-3', 'during-4']) {
      expect(await fleet.askAll(org), org).toEqual([200, 200])
    }
    if (isNoticed) await untilState(fleet, 'lost')
    service.tokens.revoke()
    expect(await fleet.askAll('during-1'), 'after a revocation').toEqual([200, 200])

    await end(server)
    await untilState(fleet, 'available', RECOVERY_MS)
    await eventually(
      async () => {
        const org = `after-${Math.round(performance.now())}`
        expect(await fleet.askAll(org)).toEqual([200, 200])
        return service.tokens.mintsOf(org).length === 1 || undefined
      },
      'the fleet to share again',
      RECOVERY_MS,
    )
    for (const { logs } of fleet.replicas) {
      const lost = logs.filter(({ msg }) => msg?.startsWith('fleet store lost'))
      const back = logs.filter(({ msg }) => msg === 'fleet store available')
      const told = isNoticed ? [{ reason: expect.stringContaining(reason) }] : []
      expect(lost, 'one line when it is lost').toMatchObject(told)
      expect(back.length, 'one when it is there').toBe(lost.length + 1)
    }
  })

  test('stopped: a request that waits for a mint loses one `fleet.timeout`, and others lose nothing', async () => {
    await using service = await startService()
    await using server = await RedisServer.start()
    const timeoutMs = Math.min(Math.round(scaled(500)), 5_000) // the greatest that is allowed
    // A mint waits for the store and then for the endpoint, within the time of a mint.
    const settings = { 'fleet.timeout': `${timeoutMs}ms`, 'tokens.mintTimeout': '60s' }
    await using fleet = await FleetUnderTest.start(1, service, server, settings)
    await untilState(fleet, 'available')
    const [replica] = fleet.replicas
    const askFor = async (org: string) => {
      const startedAt = performance.now()
      expect(await ask(replica!, org)).toBe(200)
      return performance.now() - startedAt
    }
    await askFor('cached')
    server.signal('SIGSTOP')
    const [hitMs, ...missesMs] = await Promise.all(['cached', 'cold-1', 'cold-2'].map(askFor))
    expect(hitMs).toBeLessThan(timeoutMs / 2)
    for (const missMs of missesMs) {
      expect(missMs).toBeGreaterThanOrEqual(timeoutMs - 1)
      expect(missMs).toBeLessThan(timeoutMs * 1.75)
    }
  })

  test('up from the start, but with an expired certificate', async () => {
    await using service = await startService()
    const tls = certificateFiles('expired')
    await using server = await RedisServer.start({ tls })
    await expectServedWithout(server, service, { 'fleet.caFile': CA_FILE }, 'CERT_HAS_EXPIRED')
  })

  test('up, over TLS, with a good certificate', async () => {
    await using service = await startService()
    const tls = certificateFiles('localhost')
    await using server = await RedisServer.start({ tls })
    const store = { url: `rediss://localhost:${server.port}` }
    const settings = { 'fleet.caFile': CA_FILE, 'fleet.timeout': '2s' }
    await using fleet = await FleetUnderTest.start(2, service, store, settings)
    await untilState(fleet, 'available')
    expect(await fleet.askAll('acme')).toEqual([200, 200])
    expect(service.tokens.mintsOf('acme')).toHaveLength(1)
  })
})

test('the TLS client sends the name of the store, without a dot at its end, and no IP address', async () => {
  resolving('localhost.', '127.0.0.1')
  const names: (string | false)[] = []
  const server = createTlsServer(certificate('localhost'), (socket) => {
    names.push((socket as TLSSocket & { servername: string | false }).servername)
    socket.on('error', () => undefined).destroy()
  })
  await using listener = await listening(server)
  await using service = await startService()
  for (const [host, name] of [
    ['localhost', 'localhost'],
    ['localhost.', 'localhost'],
    ['127.0.0.1', false],
  ] as const) {
    const store = { url: `rediss://${host}:${listener.port}` }
    await using fleet = await FleetUnderTest.start(1, service, store, { 'fleet.caFile': CA_FILE })
    await untilLost(fleet.replicas[0]!)
    expect(new Set(names.splice(0))).toEqual(new Set([name]))
  }
})

/** A server that is no store. */
async function startServer(misbehave: (socket: Socket) => void) {
  const seen = { connections: 0 }
  const server = createServer((socket) => {
    seen.connections += 1
    misbehave(socket)
  })
  const listener = await listening(server)
  return Object.assign(listener, { url: `redis://127.0.0.1:${listener.port}`, seen })
}

describe('a store that is no store', () => {
  test.each<[string, (socket: Socket) => void]>([
    ['says nothing', () => undefined],
    [
      'says garbage',
      (socket) => socket.write(Buffer.from('HTTP/1.1 400 Bad Request\r\n\r\n$-9\r\n*x\r\n\0\xff'.repeat(50), 'latin1')),
    ],
    ['hangs up', (socket) => socket.destroy()],
    ['loads its data', (socket) => socket.on('data', () => socket.write('-LOADING Redis is loading\r\n'))],
    ['answers with other types', (socket) => socket.on('data', () => socket.write('*2\r\n$5\r\ntoken\r\n:1\r\n'))],
  ])('%s', async (_, misbehave) => {
    await using service = await startService()
    await using server = await startServer(misbehave)
    await expectServedWithout(server, service)
  })

  test('answers OK to everything, and never counts as a store that is back', async () => {
    await using service = await startService()
    await using server = await startServer((socket) => socket.on('data', () => socket.write('+OK\r\n')))
    await using fleet = await FleetUnderTest.start(1, service, server)
    await eventually(() => server.seen.connections >= 4 || undefined, 'three probes after the first')
    const lines = fleet.replicas[0]?.logs.filter(({ msg }) => msg?.startsWith('fleet store'))
    expect(lines).toEqual([expect.objectContaining({ reason: 'an answer that makes no sense' })])
  })

  test.each(['false', 'true'])('nobody listens, with fleet.cluster: %s', async (cluster) => {
    await using service = await startService()
    await expectServedWithout({ url: 'redis://127.0.0.1:1' }, service, { 'fleet.cluster': cluster }, 'ECONNREFUSED')
  })
})

/** Serves from the start, and goes on serving when the store counts as lost. */
async function expectServedWithout(
  store: { readonly url: string },
  service: Service,
  settings: Record<string, string> = {},
  reason: unknown = expect.not.stringContaining('undefined'),
): Promise<void> {
  await using fleet = await FleetUnderTest.start(1, service, store, settings)
  const [replica] = fleet.replicas
  for (const org of ['a', 'b', 'c', 'd', 'e']) expect(await ask(replica!, org)).toBe(200)
  await untilLost(replica!)
  expect(await ask(replica!, 'f')).toBe(200)
  expect(replica!.logs.find(({ msg }) => msg?.startsWith('fleet store lost'))).toMatchObject({ reason })
}

/** A store that was never there counts as not available from the start, so the metric does not tell its loss. */
async function untilLost(replica: ProxyUnderTest): Promise<void> {
  await eventually(() => replica.logs.some(({ msg }) => msg?.startsWith('fleet store lost')) || undefined, 'its loss')
}
