/** Several proxies in this process, with one store and one service. */

import { get } from '../../support/case-table.ts'
import { request } from '../../support/raw-client.ts'
import type { Service } from '../../support/service.ts'
import { type ProxySettings, type ProxyUnderTest, startProxy } from '../../support/start-proxy.ts'
import type { RedisServer } from '../../units/fleet/redis-server.ts'

export class FleetUnderTest implements AsyncDisposable {
  readonly replicas: ProxyUnderTest[] = []

  static async start(
    count: number,
    service: Service,
    store: Pick<RedisServer, 'url'>,
    settings: ProxySettings = {},
  ): Promise<FleetUnderTest> {
    const fleet = new FleetUnderTest()
    const all = { 'fleet.store': store.url, 'admin.address': 'localhost:0', ...settings }
    for (let i = 0; i < count; i += 1) fleet.replicas.push(await startProxy(service, all))
    return fleet
  }

  /** Sends one request for the org through each replica at the same moment, and returns the statuses. */
  async askAll(org: string): Promise<number[]> {
    return await Promise.all(this.replicas.map((replica) => ask(replica, org)))
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.replicas.map((replica) => replica[Symbol.asyncDispose]()))
  }
}

export async function ask(replica: { readonly port: number }, org: string): Promise<number> {
  return (await request(replica.port, get('/v2/x', org, 'Connection: close'))).status
}

/** Resolves when each replica has reached the store, or has lost it. */
export async function untilState(
  fleet: Pick<FleetUnderTest, 'replicas'>,
  state: 'available' | 'lost',
  deadlineMs?: number,
): Promise<void> {
  const isThere = (replica: ProxyUnderTest) =>
    replica.logs.findLast(({ msg }) => msg?.startsWith('fleet store '))?.msg?.startsWith(`fleet store ${state}`) ===
    true
  for (const replica of fleet.replicas)
    await replica.until(() => isThere(replica), `a store that is ${state}`, deadlineMs)
}
