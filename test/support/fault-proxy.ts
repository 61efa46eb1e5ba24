/** A TCP proxy with the faults of networks: delays, slices, throttling, stalls, cuts and resets. Seeded. */

import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net'
import { type Conditions, type Direction, type Fault, type FaultSchedule, goodNetwork } from './bad-network.ts'
import { resetNow } from './reset-now.ts'
import type { Random } from './seed.ts'

interface Target {
  readonly host: string
  readonly port: number
}

export class FaultProxy implements AsyncDisposable {
  /** Read for every new connection. */
  schedule: FaultSchedule
  readonly #server: Server
  readonly #random: Random
  readonly #target: Target
  /** With the first lines of their connections. */
  readonly #sockets = new Map<Socket, string>()
  readonly #conditions = new Map<number, Conditions>()
  readonly #healed = deferred()
  #connections = 0
  #strikes = 0
  #isHealed = false

  constructor(target: Target, random: Random, schedule: FaultSchedule) {
    this.schedule = schedule
    this.#target = target
    this.#random = random
    this.#server = createServer({ allowHalfOpen: true }, (client) => this.#accept(client, this.#connections++))
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port
  }

  /** All connections that were accepted. */
  get connections(): number {
    return this.#connections
  }

  /** Faults that have happened. */
  get strikes(): number {
    return this.#strikes
  }

  /** The first line of the latest connection from this port. Undefined until it has sent one. */
  conditionsOf(clientPort: number | undefined): Conditions | undefined {
    return clientPort === undefined ? undefined : this.#conditions.get(clientPort)
  }

  /** Ends all faults. Clients that left a stalled connection are noticed now. Lost bytes stay lost. */
  heal(): void {
    this.#isHealed = true
    this.schedule = goodNetwork
    this.#healed.resolve()
  }

  /** Resets the open connections whose first line matches. */
  drop(isDropped: (firstLine: string) => boolean): void {
    for (const [socket, firstLine] of this.#sockets) if (isDropped(firstLine)) resetNow(socket)
  }

  async listen(): Promise<void> {
    this.#server.listen(0, '127.0.0.1')
    await once(this.#server, 'listening')
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
      if (client.remotePort !== undefined) this.#conditions.set(client.remotePort, conditions)
      const server = connect({ ...this.#target, allowHalfOpen: true })
      this.#sockets.set(client, firstLine)
      this.#hold(server, firstLine)
      this.#join(client, server, conditions, random)
    })
  }

  #hold(socket: Socket, firstLine: string): void {
    this.#sockets.set(socket, firstLine)
    socket.setNoDelay(true)
    socket.on('close', () => this.#sockets.delete(socket))
    socket.on('error', () => undefined) // only the close after it counts
  }

  #join(client: Socket, server: Socket, conditions: Conditions, random: Random): void {
    const pair = [client, server]
    // A break of one side breaks the other: an abort crosses.
    for (const socket of pair) socket.on('error', () => pair.forEach(resetNow))
    // Not earlier: a reset would drop bytes that wait for the connection.
    server.once('connect', () => {
      void this.#pump('up', client, server, conditions, random)
      void this.#pump('down', server, client, conditions, random)
    })
  }

  async #pump(direction: Direction, from: Socket, to: Socket, conditions: Conditions, random: Random): Promise<void> {
    const fault = conditions.fault?.direction === direction ? conditions.fault : undefined
    let leftBytes = fault?.afterBytes ?? Number.POSITIVE_INFINITY
    let isStruck = false
    const strikeIf = async (isDue: boolean) => {
      if (!isDue || leftBytes > 0 || isStruck || fault === undefined || this.#isHealed) return
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
          const passed = this.#isHealed ? slice : slice.subarray(0, leftBytes)
          await pause(delayMs(passed, conditions))
          await write(to, passed)
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
    this.#strikes++
    switch (kind) {
      case 'reset':
        resetNow(from)
        resetNow(to)
        return
      case 'cut':
        from.end()
        to.end()
        return
      case 'half-close':
        to.end()
        return
      case 'stall':
        // Without a reader, not even the end of the connection is noticed.
        await Promise.race([this.#healed.promise, new Promise((resolve) => from.once('close', resolve))])
    }
  }
}

function* slices(chunk: Buffer, { sliceBytes }: Conditions, random: Random): Generator<Buffer> {
  for (let at = 0; at < chunk.length; ) {
    const length = sliceBytes === undefined ? chunk.length : random.integer(1, sliceBytes)
    yield chunk.subarray(at, at + length)
    at += length
  }
}

function deferred(): { readonly promise: Promise<void>; readonly resolve: () => void } {
  let resolve: () => void = () => undefined
  const promise = new Promise<void>((settle) => {
    resolve = settle
  })
  return { promise, resolve }
}

/** Resolves when the kernel has the bytes, so that a later reset does not overtake them. */
async function write(socket: Socket, bytes: Buffer): Promise<void> {
  if (socket.writable) await new Promise<void>((resolve) => socket.write(bytes, () => resolve()))
}

function delayMs(bytes: Buffer, { latencyMs = 0, bytesPerSecond = Number.POSITIVE_INFINITY }: Conditions): number {
  return latencyMs + (bytes.length / bytesPerSecond) * 1000
}

async function pause(forMs: number): Promise<void> {
  if (forMs > 0) await new Promise((resolve) => setTimeout(resolve, forMs))
}

export async function startFaultProxy(
  targetPort: number,
  random: Random,
  schedule: FaultSchedule = goodNetwork,
): Promise<FaultProxy> {
  const proxy = new FaultProxy({ host: '127.0.0.1', port: targetPort }, random, schedule)
  await proxy.listen()
  return proxy
}
