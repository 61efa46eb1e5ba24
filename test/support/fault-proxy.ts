/** A TCP proxy that does to a connection what networks do: delays, slices, throttles, stalls, cuts, resets. Seeded. */

import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net'
import { resetNow } from './reset-now.ts'
import type { Random } from './seed.ts'

/** Seen from the client of this proxy: `up` is what it sends. */
export type Direction = 'up' | 'down'

export interface Fault {
  readonly direction: Direction
  /** Strikes when so many bytes have gone on in that direction; 0 is before the first. */
  readonly afterBytes: number
  /** `cut` closes both sides with FIN, `half-close` ends only this direction, `stall` passes nothing more on. */
  readonly kind: 'reset' | 'cut' | 'half-close' | 'stall'
}

export interface Conditions {
  /** Of each piece. */
  readonly latencyMs?: number
  readonly bytesPerSecond?: number
  /** Pieces of one to so many bytes. */
  readonly sliceBytes?: number
  readonly fault?: Fault
}

export type FaultSchedule = (connectionIndex: number, random: Random) => Conditions

const DEFAULT_SLICE_BYTES = 64 * 1024

export class FaultProxy implements AsyncDisposable {
  /** Read for every new connection. */
  schedule: FaultSchedule
  readonly #server: Server
  readonly #random: Random
  readonly #sockets = new Set<Socket>()
  #connections = 0

  constructor(target: { readonly host: string; readonly port: number }, random: Random, schedule: FaultSchedule) {
    this.schedule = schedule
    this.#random = random
    this.#server = createServer({ allowHalfOpen: true }, (client) => {
      const server = connect({ ...target, allowHalfOpen: true })
      const conditions = this.schedule(this.#connections++, random)
      this.#join(client, server, conditions)
    })
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port
  }

  /** Connections that were ever accepted. */
  get connections(): number {
    return this.#connections
  }

  async listen(): Promise<void> {
    this.#server.listen(0, '127.0.0.1')
    await once(this.#server, 'listening')
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const closed = once(this.#server, 'close')
    this.#server.close()
    for (const socket of this.#sockets) socket.destroy()
    await closed
  }

  #join(client: Socket, server: Socket, conditions: Conditions): void {
    const pair = [client, server]
    for (const socket of pair) {
      this.#sockets.add(socket)
      socket.setNoDelay(true)
      socket.on('close', () => this.#sockets.delete(socket))
      // What breaks one side breaks the other: an abort crosses.
      socket.on('error', () => pair.forEach(resetNow))
    }
    // Not before: a reset would throw away what waits for the connection.
    server.once('connect', () => {
      void this.#pump('up', client, server, conditions)
      void this.#pump('down', server, client, conditions)
    })
  }

  async #pump(direction: Direction, from: Socket, to: Socket, conditions: Conditions): Promise<void> {
    const fault = conditions.fault?.direction === direction ? conditions.fault : undefined
    let leftBytes = fault?.afterBytes ?? Number.POSITIVE_INFINITY
    if (leftBytes === 0 && fault !== undefined) await strike(fault, from, to)
    try {
      // The iterator would close the whole socket at the end of one half.
      for await (const chunk of from.iterator({ destroyOnReturn: false })) {
        for (const slice of this.#slices(chunk, conditions)) {
          if (leftBytes === 0) continue // struck: what still comes is read and lost
          const passed = slice.subarray(0, leftBytes)
          await pause(delayMs(passed, conditions))
          await write(to, passed)
          leftBytes -= passed.length
          if (leftBytes === 0 && fault !== undefined) await strike(fault, from, to)
        }
      }
      to.end()
    } catch {
      resetNow(from)
      resetNow(to)
    }
  }

  *#slices(chunk: Buffer, { sliceBytes = DEFAULT_SLICE_BYTES }: Conditions): Generator<Buffer> {
    for (let at = 0; at < chunk.length; ) {
      const length = sliceBytes === DEFAULT_SLICE_BYTES ? sliceBytes : this.#random.integer(1, sliceBytes)
      yield chunk.subarray(at, at + length)
      at += length
    }
  }
}

async function strike(fault: Fault, from: Socket, to: Socket): Promise<void> {
  switch (fault.kind) {
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
      from.pause()
      await once(from, 'close')
  }
}

/** Resolves when the kernel has the bytes: a reset behind them must not overtake them. */
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
  schedule: FaultSchedule = () => ({}),
): Promise<FaultProxy> {
  const proxy = new FaultProxy({ host: '127.0.0.1', port: targetPort }, random, schedule)
  await proxy.listen()
  return proxy
}
