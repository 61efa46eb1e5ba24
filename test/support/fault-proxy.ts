/** A TCP proxy with the faults of networks: delays, slices, throttling, stalls, cuts and resets. Seeded. */

import { once, setMaxListeners } from 'node:events'
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { resetNow } from './reset-now.ts'
import type { Random } from './seed.ts'

export interface Fault {
  /** Seen from the client of the fault proxy: it sends `up`. */
  readonly direction: 'up' | 'down'
  /** Happens after this many bytes in that direction; 0 is before the first. */
  readonly afterBytes: number
  /** Happens only if more bytes than these follow. */
  readonly isLate?: boolean
  /** `cut` closes both sides with FIN, `half-close` ends only this direction, `stall` passes nothing more on. */
  readonly kind: 'reset' | 'cut' | 'half-close' | 'stall'
}

export interface Conditions {
  /** Delay of each piece. */
  readonly latencyMs?: number
  readonly bytesPerSecond?: number
  /** Pieces of at most this many bytes. */
  readonly sliceBytes?: number
  readonly fault?: Fault
}

/**
 * `firstLine` is the first line from the client, which shows the purpose of the connection. `random` belongs to the
 * connection.
 */
export type FaultSchedule = (connectionIndex: number, random: Random, firstLine: string) => Conditions

export const goodNetwork: FaultSchedule = () => ({})

/** Some connections are slow or sliced, some break anywhere in so many bytes of one direction, some do both. */
export function badNetwork(given: { readonly faultShare: number; readonly withinBytes: number }): FaultSchedule {
  return (_, random): Conditions => ({
    ...(random.chance(0.3) ? { sliceBytes: random.integer(20, 200) } : {}),
    ...(random.chance(0.1) ? { latencyMs: random.integer(1, 5) } : {}),
    ...(random.chance(0.1) ? { bytesPerSecond: random.integer(50_000, 500_000) } : {}),
    ...(random.chance(given.faultShare)
      ? {
          fault: {
            direction: random.chance(0.5) ? 'up' : 'down',
            afterBytes: random.integer(0, given.withinBytes),
            kind: random.pick(['reset', 'cut', 'half-close', 'stall']),
          },
        }
      : {}),
  })
}

/** Decided by its first line. */
export function isMint(firstLine: string): boolean {
  return /^POST \/v2\/orgs\/[^/ ]+\/access /.test(firstLine)
}

/** Requests and mints go to the same address, but calls of the token endpoint have their own connections. */
export function byHop(hops: { readonly mints: FaultSchedule; readonly requests: FaultSchedule }): FaultSchedule {
  return (index, random, firstLine) => hops[isMint(firstLine) ? 'mints' : 'requests'](index, random, firstLine)
}

export class FaultProxy implements AsyncDisposable {
  /** Read for every new connection. */
  schedule: FaultSchedule = goodNetwork
  /** All connections that were accepted. */
  connections = 0
  /** Faults that have happened. */
  strikes = 0
  readonly #server: Server
  readonly #random: Random
  readonly #targetPort: number
  /** With the first lines of their connections. */
  readonly #sockets = new Map<Socket, string>()
  readonly #conditions = new Map<number, Conditions>()
  readonly #healed = new AbortController()

  constructor(targetPort: number, random: Random) {
    this.#targetPort = targetPort
    this.#random = random
    setMaxListeners(0, this.#healed.signal)
    this.#server = createServer({ allowHalfOpen: true }, (client) => this.#accept(client, this.connections++))
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port
  }

  /** Those of the latest connection from this port. Undefined until it has sent a line. */
  conditionsOf(clientPort = 0): Conditions | undefined {
    return this.#conditions.get(clientPort)
  }

  /** Ends all faults. Clients that left a stalled connection are noticed now. Lost bytes stay lost. */
  heal(): void {
    this.schedule = goodNetwork
    this.#healed.abort()
  }

  /** Resets the open connections whose first line matches. */
  drop(isDropped: (firstLine: string) => boolean): void {
    for (const [socket, firstLine] of this.#sockets) if (isDropped(firstLine)) resetNow(socket)
  }

  async listen(): Promise<this> {
    this.#server.listen(0, '127.0.0.1')
    await once(this.#server, 'listening')
    return this
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const closed = once(this.#server, 'close')
    this.#server.close()
    for (const socket of this.#sockets.keys()) socket.destroy()
    await closed
  }

  /** Forwards nothing, and opens no connection, before the first line of the client. */
  #accept(client: Socket, index: number): void {
    this.#hold(client, '')
    client.once('readable', () => {
      const random = this.#random.numbered(index)
      const first: Buffer = client.read() ?? Buffer.alloc(0)
      client.unshift(first)
      const [firstLine = ''] = first.toString('latin1').split('\r\n', 1)
      const conditions = this.schedule(index, random, firstLine)
      this.#conditions.set(client.remotePort ?? 0, conditions)
      const server = connect({ host: '127.0.0.1', port: this.#targetPort, allowHalfOpen: true })
      this.#sockets.set(client, firstLine)
      this.#hold(server, firstLine)
      // A break of one side breaks the other: an abort crosses.
      for (const socket of [client, server]) socket.on('error', () => [client, server].forEach(resetNow))
      // Not earlier: a reset would drop bytes that wait for the connection.
      server.once('connect', () => {
        void this.#pump('up', client, server, conditions, random)
        void this.#pump('down', server, client, conditions, random)
      })
    })
  }

  #hold(socket: Socket, firstLine: string): void {
    this.#sockets.set(socket, firstLine)
    socket.setNoDelay(true)
    socket.on('close', () => this.#sockets.delete(socket))
    socket.on('error', () => undefined) // only the close after it counts
  }

  async #pump(
    direction: Fault['direction'],
    from: Socket,
    to: Socket,
    conditions: Conditions,
    random: Random,
  ): Promise<void> {
    const { latencyMs = 0, bytesPerSecond = Number.POSITIVE_INFINITY } = conditions
    const fault = conditions.fault?.direction === direction ? conditions.fault : undefined
    let leftBytes = fault?.afterBytes ?? Number.POSITIVE_INFINITY
    let isStruck = false
    const strikeIf = async (isDue: boolean) => {
      if (!isDue || leftBytes > 0 || isStruck || fault === undefined || this.#healed.signal.aborted) return
      isStruck = true
      await this.#strike(fault, from, to)
    }
    try {
      await strikeIf(fault?.isLate !== true)
      // The iterator would close the whole socket at the end of one half.
      for await (const chunk of from.iterator({ destroyOnReturn: false })) {
        for (const slice of slices(chunk, conditions, random)) {
          await strikeIf(true)
          if (isStruck) continue // reads and drops later bytes
          const passed = this.#healed.signal.aborted ? slice : slice.subarray(0, leftBytes)
          const delayMs = latencyMs + (passed.length / bytesPerSecond) * 1_000
          if (delayMs > 0) await sleep(delayMs)
          // Resolves when the kernel has the bytes, so that a later reset does not overtake them.
          if (to.writable) await new Promise<void>((resolve) => to.write(passed, () => resolve()))
          leftBytes -= Math.min(leftBytes, passed.length)
          await strikeIf(fault?.isLate !== true || passed.length < slice.length)
        }
      }
      to.end()
    } catch {
      resetNow(from)
      resetNow(to)
    }
  }

  async #strike({ kind }: Fault, from: Socket, to: Socket): Promise<void> {
    this.strikes++
    if (kind === 'half-close' || kind === 'cut') to.end()
    if (kind === 'cut') from.end()
    if (kind === 'reset') [from, to].forEach(resetNow)
    // Without a reader, not even the end of the connection is noticed.
    if (kind === 'stall') await once(from, 'close', { signal: this.#healed.signal }).catch(() => undefined)
  }
}

function* slices(chunk: Buffer, { sliceBytes }: Conditions, random: Random): Generator<Buffer> {
  for (let at = 0; at < chunk.length; ) {
    const length = sliceBytes === undefined ? chunk.length : random.integer(1, sliceBytes)
    yield chunk.subarray(at, at + length)
    at += length
  }
}

export function startFaultProxy(targetPort: number, random: Random): Promise<FaultProxy> {
  return new FaultProxy(targetPort, random).listen()
}
