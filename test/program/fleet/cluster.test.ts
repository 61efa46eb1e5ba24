/** A fleet with a real cluster of three nodes. */

import { describe, expect, test } from 'vitest'
import { CA_FILE, certificateFiles } from '../../support/certificates.ts'
import { eventually } from '../../support/changes.ts'
import { freePort } from '../../support/listening.ts'
import { lacks } from '../../support/programs.ts'
import { resolving } from '../../support/resolving.ts'
import { startService } from '../../support/service.ts'
import { type RedisOptions, RedisServer } from '../../units/fleet/redis-server.ts'
import { Endpoint, Replica } from '../../units/fleet/replicas.ts'
import { ask, FleetUnderTest, untilState } from './fleet.ts'

const SLOTS = 16_384

/** Three masters, without replicas. */
class RedisCluster implements AsyncDisposable {
  readonly nodes: readonly RedisServer[]

  private constructor(nodes: readonly RedisServer[]) {
    this.nodes = nodes
  }

  static async start(tls?: RedisOptions['tls']): Promise<RedisCluster> {
    const nodes: RedisServer[] = []
    const cluster = new RedisCluster(nodes)
    try {
      for (let i = 0; i < 3; i += 1) nodes.push(await startNode(tls))
      await cluster.#meet()
    } catch (error) {
      await cluster[Symbol.asyncDispose]()
      throw error
    }
    return cluster
  }

  /** The URL of one node, which leads to the others. */
  get url(): string {
    return this.nodes[0]?.url ?? ''
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.nodes.map((node) => node[Symbol.asyncDispose]()))
  }

  async #meet(): Promise<void> {
    const [first, ...others] = this.nodes
    for (const [i, node] of this.nodes.entries()) {
      const from = Math.floor((SLOTS * i) / this.nodes.length)
      const to = Math.floor((SLOTS * (i + 1)) / this.nodes.length) - 1
      await node.cli('cluster', 'addslotsrange', String(from), String(to))
    }
    for (const node of others) await first?.cli('cluster', 'meet', '127.0.0.1', String(node.port), await busPort(node))
    for (const node of this.nodes) {
      await eventually(
        async () => (await node.cli('cluster', 'info')).includes('cluster_state:ok') || undefined,
        'the cluster to be complete',
        20_000,
      )
    }
  }
}

/** The port of the bus is usually ten thousand higher, which may be taken, or not a valid port. */
async function startNode(tls: RedisOptions['tls']): Promise<RedisServer> {
  const settings = { enabled: 'yes', 'node-timeout': '2000', port: String(await freePort()) }
  return await RedisServer.start({
    ...(tls && { tls }),
    args: [
      ...Object.entries(settings).flatMap(([name, value]) => [`--cluster-${name}`, value]),
      ...(tls ? ['--tls-cluster', 'yes', '--tls-ca-cert-file', CA_FILE] : []),
    ],
  })
}

async function busPort(node: RedisServer): Promise<string> {
  return (await node.cli('config', 'get', 'cluster-port')).split('\n').at(-1) ?? ''
}

const CLUSTER = { 'fleet.cluster': 'true', 'fleet.timeout': '2s' }

test.skipIf(lacks('redis-server'))(
  'orgs are spread over all nodes, each operation uses one slot, and a lost node affects only its own orgs',
  async () => {
    await using service = await startService()
    await using cluster = await RedisCluster.start()
    await using fleet = await FleetUnderTest.start(3, service, cluster, CLUSTER)
    await untilState(fleet, 'available')
    // The names of the keys are random. With this many, a node hardly ever has none.
    const orgs = Array.from({ length: 30 }, (_, i) => `org-${i}`)
    for (const org of orgs) {
      expect(await fleet.askAll(org)).toEqual([200, 200, 200])
      expect(service.tokens.mintsOf(org), org).toHaveLength(1)
    }
    for (const node of cluster.nodes) expect(Number(await node.cli('dbsize')), 'keys in each node').toBeGreaterThan(0)

    await cluster.nodes[2]?.kill()
    for (let i = 0; i < 12; i += 1) expect(await fleet.askAll(`late-${i}`)).toEqual([200, 200, 200])
  },
)

describe.skipIf(lacks('redis-server'))('nodes that announce IP addresses, with a certificate for a name alone', () => {
  const tls = certificateFiles('other-host')
  const SECURE = { ...CLUSTER, 'fleet.caFile': CA_FILE }

  test('are verified by fleet.serverName, or else by the host of fleet.store', async () => {
    resolving('other.example', '127.0.0.1')
    await using service = await startService()
    await using cluster = await RedisCluster.start(tls)
    const named = { url: `rediss://other.example:${cluster.nodes[0]!.port}` }
    for (const [i, [store, settings]] of [
      [cluster, { ...SECURE, 'fleet.serverName': 'other.example' }] as const,
      [named, SECURE] as const,
    ].entries()) {
      await using fleet = await FleetUnderTest.start(2, service, store, settings)
      await untilState(fleet, 'available')
      const orgs = Array.from({ length: 10 }, (_, n) => `org-${i}-${n}`)
      for (const org of orgs) {
        expect(await fleet.askAll(org)).toEqual([200, 200])
        expect(service.tokens.mintsOf(org), org).toHaveLength(1)
      }
    }
    for (const node of cluster.nodes) expect(Number(await node.cli('dbsize')), 'keys in each node').toBeGreaterThan(0)
  })

  test.each([
    [{}, '127.0.0.1'],
    [{ 'fleet.serverName': 'cache.example.internal' }, 'cache.example.internal'],
  ])('are refused with %j, and the reason has what was expected and what was found', async (settings, expected) => {
    await using service = await startService()
    await using node = await RedisServer.start({ tls })
    for (const cluster of ['false', 'true']) {
      const all = { ...SECURE, ...settings, 'fleet.cluster': cluster }
      await using fleet = await FleetUnderTest.start(1, service, node, all)
      const [replica] = fleet.replicas
      await replica!.until(() => replica!.logs.some(({ msg }) => msg?.startsWith('fleet store lost')), 'its loss')
      const reason = `its certificate is not for ${expected} but for DNS:other.example: correct fleet.serverName or the certificate (ERR_TLS_CERT_ALTNAME_INVALID)`
      expect(replica!.logs.find(({ msg }) => msg?.startsWith('fleet store lost'))).toMatchObject({ reason })
      expect(await ask(replica!, 'acme')).toBe(200)
    }
  })
})

test.skipIf(lacks('redis-server'))('moved slots cost no operation, and a failure renews the connection', async () => {
  await using cluster = await RedisCluster.start()
  const [from, to] = cluster.nodes
  const endpoint = new Endpoint()
  await using replicas = await Replica.start(2, from!.port, endpoint, { cluster: true, timeoutMs: 2_000 })
  const slots = /^(\d+)-(\d+)$/.exec((await from!.cli('cluster', 'nodes')).match(/myself.* (\S+)$/m)?.[1] ?? '') ?? []
  const range = slots.slice(1)
  for (const node of [from!, to!]) await node.cli('cluster', 'delslotsrange', ...range)
  await to!.cli('cluster', 'addslotsrange', ...range)
  await to!.cli('cluster', 'bumpepoch')
  const areMoved = async () => (await from!.cli('cluster', 'info')).includes('cluster_slots_assigned:16384')
  await eventually(async () => (await areMoved()) || undefined, 'the move')
  const orgs = Array.from({ length: 12 }, (_, i) => `org-${i}`)
  for (const org of orgs) await Promise.all(replicas.map((replica) => replica.mint(org)))
  expect(endpoint.calls).toHaveLength(orgs.length)
  expect(replicas.flatMap(({ told }) => told.asked).filter((asked) => /error|timeout/.test(asked))).toEqual([])

  // A failure renews the connection, and the store was not lost.
  for (const node of cluster.nodes) node.signal('SIGSTOP')
  await replicas[0]!.mint('late')
  for (const node of cluster.nodes) node.signal('SIGCONT')
  const { told } = replicas[0]!
  const probes = () => told.asked.filter((asked) => asked === 'probe ok').length
  await eventually(() => probes() === 2 || undefined, 'another connection')
  expect(told).toMatchObject({ lost: [], back: ['back'] })
})
