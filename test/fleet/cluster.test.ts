/** A fleet with a real cluster of three nodes. */

import { expect, test } from 'vitest'
import { eventually } from '../support/changes.ts'
import { lacks } from '../support/programs.ts'
import { startService } from '../support/service.ts'
import { RedisCluster } from './cluster.ts'
import { FleetUnderTest, untilState } from './fleet.ts'
import { Endpoint, Replica } from './replicas.ts'

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

test.skipIf(lacks('redis-server'))('slots that move to another node cost no operation', async () => {
  await using cluster = await RedisCluster.start()
  const [from, to] = cluster.nodes
  const endpoint = new Endpoint()
  await using replicas = await Replica.start(2, from!.port, endpoint, { isCluster: true })
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
})
