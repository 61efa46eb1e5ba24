/** A cluster of three masters, without replicas, on this machine. */

import { eventually } from '../support/changes.ts'
import { freePort, RedisServer } from './redis-server.ts'

const SLOTS = 16_384

export class RedisCluster implements AsyncDisposable {
  readonly nodes: readonly RedisServer[]

  private constructor(nodes: readonly RedisServer[]) {
    this.nodes = nodes
  }

  static async start(): Promise<RedisCluster> {
    const nodes: RedisServer[] = []
    const cluster = new RedisCluster(nodes)
    try {
      for (let i = 0; i < 3; i += 1) nodes.push(await startNode())
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
async function startNode(): Promise<RedisServer> {
  const args = [
    '--cluster-enabled',
    'yes',
    '--cluster-node-timeout',
    '2000',
    '--cluster-port',
    String(await freePort()),
  ]
  return await RedisServer.start({ args })
}

async function busPort(node: RedisServer): Promise<string> {
  return (await node.cli('config', 'get', 'cluster-port')).split('\n').at(-1) ?? ''
}
