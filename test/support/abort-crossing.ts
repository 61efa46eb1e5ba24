/**
 * Measures how long an abort takes to reach the other side, compared with the same abort at the same instant over as many
 * relays without a proxy. What holds up this process holds up both; how long the proxy's waited for a processor, the kernel knows.
 */

import { readFileSync } from 'node:fs'
import { get } from './case-table.ts'
import { type FaultProxy, startFaultProxy } from './fault-proxy.ts'
import { type Origin, startOrigin } from './origin.ts'
import type { OriginConnection, OriginScript } from './origin-connection.ts'
import { scaled } from './pace.ts'
import { RawClient } from './raw-client.ts'
import type { Random } from './seed.ts'

/** The side that leaves, and the moment. */
const KINDS = ['client-waits', 'client-reads', 'origin-writes'] as const
type Kind = (typeof KINDS)[number]

/** Time limit for the request to reach the origin, and its answer the client. The network may lose either. */
const BEGUN_WITHIN_MS = 1_500
const CROSSED_WITHIN_MS = scaled(3_000)

const STATUS_LINE = 'HTTP/1.1 200 OK'

/** Holds every request whose target this names, and begins to answer where somebody is to read. */
export const holdRequest: OriginScript = (seen, connection) => {
  if (!seen.target.endsWith('client-waits')) connection.write(`${STATUS_LINE}\r\nContent-Length: 1000\r\n\r\nbegun`)
  return undefined
}

interface Held {
  readonly client: RawClient
  readonly origin: Origin
  readonly connection: OriginConnection
}

export class AbortCrossing implements AsyncDisposable {
  readonly #origin: Origin
  readonly #relays: readonly [FaultProxy, FaultProxy]

  readonly #proxyPid: number

  private constructor(proxyPid: number, origin: Origin, relays: readonly [FaultProxy, FaultProxy]) {
    this.#proxyPid = proxyPid
    this.#origin = origin
    this.#relays = relays
  }

  static async start(proxyPid: number, random: Random): Promise<AbortCrossing> {
    const origin = await startOrigin(holdRequest)
    const second = await startFaultProxy(origin.port, random)
    return new AbortCrossing(proxyPid, origin, [await startFaultProxy(second.port, random), second])
  }

  /**
   * The delay behind its twin in ms, without waits for a processor. Undefined if the network broke the request before its
   * abort.
   */
  async measure(port: number, origin: Origin, prefix: string, number: number): Promise<number | undefined> {
    const kind = KINDS[number % KINDS.length] ?? 'client-waits'
    const target = `${prefix}/${number}/${kind}`
    await using twinClient = await RawClient.connect(this.#relays[0].port)
    await using client = await RawClient.connect(port, { deadlineMs: BEGUN_WITHIN_MS })
    const twin = await hold(twinClient, this.#origin, target, kind)
    const held = await hold(client, origin, target, kind)
    if (held === undefined || twin === undefined || hasEnded(held)) return undefined
    const isReset = number % 2 === 0
    const waitedBefore = waitedMs(this.#proxyPid)
    const [crossedMs, twinMs] = await Promise.all([held, twin].map((each) => abort(each, kind, isReset)))
    const waited = waitedMs(this.#proxyPid) - waitedBefore
    return Math.max(0, (crossedMs ?? Number.NaN) - (twinMs ?? Number.NaN) - waited)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const each of [...this.#relays, this.#origin]) await each[Symbol.asyncDispose]()
  }
}

/** Time for which the first thread, which does the work, was ready but not running. proc(5), `schedstat`. */
function waitedMs(pid: number): number {
  const [, nanoseconds] = readFileSync(`/proc/${pid}/task/${pid}/schedstat`, 'utf8').split(' ')
  return Number(nanoseconds) / 1e6
}

async function hold(client: RawClient, origin: Origin, target: string, kind: Kind): Promise<Held | undefined> {
  client.send(get(target, 'acme'))
  const find = () => origin.requests.find((seen) => seen.target === target)
  try {
    await origin.waitFor(() => find() !== undefined || client.end !== undefined, target, BEGUN_WITHIN_MS)
    const connection = find()?.connection
    if (connection === undefined) return undefined
    const begun = kind === 'client-waits' || String(await client.bytes(STATUS_LINE.length)) === STATUS_LINE
    return begun ? { client, origin, connection } : undefined
  } catch {
    return undefined
  }
}

function hasEnded({ client, connection }: Held): boolean {
  return client.end !== undefined || connection.peerEnd !== undefined || connection.isClosed
}

async function abort({ client, origin, connection }: Held, kind: Kind, isReset: boolean): Promise<number> {
  const startedAt = performance.now()
  if (kind === 'origin-writes') {
    if (isReset) connection.reset()
    else connection.end()
    await client.untilClosed()
  } else {
    if (isReset) client.reset()
    else client.socket.destroy()
    await origin.waitFor(() => connection.peerEnd !== undefined, 'the end of what was aborted', CROSSED_WITHIN_MS)
  }
  return performance.now() - startedAt
}
