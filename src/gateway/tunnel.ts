/** A WebSocket behind its 101: joins the client's connection with one to the service. */

import type { Socket } from 'node:net'
import * as clock from '../clock.ts'
import type { Client } from '../listener/request-handler.ts'
import { keepReading, resetConnection } from '../node-internals.ts'
import { named, type PartWarnings, type Status } from '../part.ts'
import {
  type GatewayObserver,
  type RequestRecord,
  type TunnelEnd,
  type TunnelRecord,
  tunnelRecordOf,
} from './request-record.ts'

/** When one side has ended, the other has so long to send or take something, or to end. Each piece that moves gives it as long again. */
const END_MS = 10_000
/** Between two looks at a tunnel of which one side has ended, or takes less than the other sends. */
const LOOK_MS = 1_000
/** A tunnel of which one side has ended for longer has a warning. */
const LEAVING_MS = 2_000

/** A side of a tunnel, and the bytes that have come from it already. */
interface Opened {
  readonly socket: Socket
  /** The TCP socket beneath it. */
  readonly carrier: Socket
  readonly firstBytes: Buffer | undefined
}

interface TunnelKeeper {
  readonly observer: GatewayObserver
  readonly tunnels: Tunnels
  /** Bytes wait for so long for a side that takes nothing. */
  readonly idleTimeoutMs: number
}

/** Those that are open. */
export class Tunnels extends Set<Tunnel> {
  warnings(now: number): PartWarnings {
    const left = [...this].filter(({ leftAt = now }) => now - leftAt > LEAVING_MS)
    if (left.length === 0) return {}
    const told = left.map(
      ({ record: { orgId = 'the App', path, requestId } }) => `${path} for ${orgId} (request ${requestId})`,
    )
    return {
      tunnels_left: `One side of these WebSockets has ended, and the other has not: ${named(told)}. Correct the side that is left: it must end, too, when the other closes.`,
    }
  }

  /** The proxy ends. Resolves when each has its line. */
  async close(): Promise<void> {
    await Promise.all([...this].map((tunnel) => tunnel.close()))
  }

  status(): Partial<Status> {
    return { tunnels: this.size, orgsOfTunnels: [...this].flatMap(({ record }) => record.orgId ?? []) }
  }
}

/**
 * Copies bytes both ways. A side that ends ends the other side (RFC 6455 §7.1.1), and a side that breaks breaks it. Both sockets
 * allow that one side ends before the other. When both have ended, a line tells it.
 */
export class Tunnel {
  readonly #keeper: TunnelKeeper
  readonly record: TunnelRecord
  readonly #connection: Client
  readonly #client: Side
  readonly #service: Side
  readonly #startedAt = clock.now()
  #endedBy: TunnelEnd['endedBy'] | undefined
  /** One side has ended: monotonic milliseconds. */
  leftAt: number | undefined
  #reason: TunnelEnd['reason'] = 'closed'
  #isOver = false
  #over: () => void = () => undefined
  /** Running time: the last bytes came, or were taken, since one side has ended. */
  #movedAt = 0
  /** Set while one side has ended, or bytes wait for one. */
  #looking: clock.Timer | undefined

  /** `client`: from `connection`. */
  constructor(keeper: TunnelKeeper, record: RequestRecord, connection: Client, client: Opened, service: Opened) {
    this.#keeper = keeper
    this.record = tunnelRecordOf(record)
    this.#connection = connection
    this.#client = new Side(this, client, () => connection.reset())
    this.#service = new Side(this, service, () => resetConnection(service.socket, service.carrier))
    keeper.tunnels.add(this)
    this.#client.copyTo(this.#service)
    this.#service.copyTo(this.#client)
  }

  moved(): void {
    if (this.leftAt !== undefined) this.#movedAt = clock.runningTime()
  }

  watch(): void {
    if (this.#looking !== undefined) return
    // What was taken before is no movement at the first look.
    for (const side of [this.#client, this.#service]) side.look(clock.runningTime())
    this.#looking = clock.every(LOOK_MS, () => this.#look(clock.runningTime()))
  }

  #look(now: number): void {
    const sides = [this.#client, this.#service]
    if (sides.some((side) => side.look(now))) this.moved()
    const slow = sides.filter(({ holdsBytes }) => holdsBytes)
    const stuck = slow.find(({ takenAt }) => now - takenAt >= this.#keeper.idleTimeoutMs)
    if (stuck !== undefined) this.#expired(stuck)
    else if (slow.length === 0 && this.leftAt === undefined) this.#stopLooking()
    else if (slow.length === 0 && now - this.#movedAt >= END_MS) this.#expired()
  }

  /** What waits for a side is dropped, behind a reset. */
  close(): Promise<void> {
    for (const side of [this.#client, this.#service]) {
      if (side.holdsBytes) side.reset()
      else side.socket.destroy()
    }
    return new Promise((resolve) => {
      this.#over = resolve
    })
  }

  #stopLooking(): void {
    this.#looking?.cancel()
    this.#looking = undefined
  }

  /** This side sends no more. */
  sideEnded(side: Side, reason: TunnelEnd['reason'] = 'closed'): void {
    if (this.#endedBy !== undefined) return
    const isOurs = this.#connection.isFinishing
    this.#endedBy = isOurs ? 'proxy' : side === this.#client ? 'client' : 'service'
    this.#reason = isOurs ? 'closed' : reason
    this.leftAt = clock.now()
    this.moved()
    this.watch()
  }

  sideClosed(side: Side): void {
    this.sideEnded(side, 'broken')
    if (this.#isOver || !this.#client.socket.destroyed || !this.#service.socket.destroyed) return
    this.#isOver = true
    this.#stopLooking()
    this.#keeper.tunnels.delete(this)
    this.#keeper.observer.tunnelEnded?.(this.record, {
      endedBy: this.#endedBy ?? 'proxy',
      reason: this.#reason,
      durationMs: clock.now() - this.#startedAt,
      bytesIn: this.#client.bytes,
      bytesOut: this.#service.bytes,
    })
    this.#over()
  }

  /** `stuck`: bytes for this side are dropped. Then neither may take the end for a clean one. */
  #expired(stuck?: Side): void {
    if (stuck !== undefined) this.sideEnded(stuck)
    this.#reason = 'timeout'
    for (const side of [this.#client, this.#service]) {
      if (stuck === undefined) side.socket.destroy()
      else side.reset()
    }
  }
}

class Side {
  readonly #tunnel: Tunnel
  readonly socket: Socket
  readonly #carrier: Socket
  readonly reset: () => void
  /** It has sent. */
  bytes = 0
  /**
   * It reads no more: a side may send its last frame, and close. What is left for it is dropped, and we read it to its end.
   */
  #takesNoMore = false
  /** Of the bytes for it, the system had taken so many at the last look. */
  #taken = 0
  /** Running time: a look saw that it takes something, or has nothing to take. */
  takenAt = 0

  constructor(tunnel: Tunnel, { socket, carrier, firstBytes }: Opened, reset: () => void) {
    this.#tunnel = tunnel
    this.reset = reset
    this.socket = socket
    this.#carrier = carrier
    if (firstBytes !== undefined && firstBytes.length > 0) socket.unshift(firstBytes) // before all others
  }

  copyTo(other: Side): void {
    const to = other.socket
    const { socket } = this
    const tunnel = this.#tunnel
    keepReading(socket, (done) => {
      this.#takesNoMore = true
      done()
      // Nobody takes what it has sent.
      if (socket.readableEnded || socket.isPaused()) socket.destroy()
    })
    socket.on('data', (bytes: Buffer) => {
      this.bytes += bytes.length
      tunnel.moved()
      // The proxy ends it. A write would destroy it, and with it what waits.
      if (to.writableEnded) return other.reset()
      if (!to.write(bytes)) socket.pause()
      if (other.holdsBytes) tunnel.watch()
    })
    to.on('drain', () => socket.resume())
    socket.once('end', () => {
      tunnel.sideEnded(this)
      if (this.#takesNoMore) socket.destroy()
      else to.end()
    })
    socket.once('close', () => {
      tunnel.sideClosed(this)
      // Behind an end, `to` still has to send what it holds.
      if (socket.readableEnded) to.destroySoon()
      else if (other.holdsBytes) other.reset()
      else to.destroy()
    })
    socket.resume()
  }

  get holdsBytes(): boolean {
    return this.socket.writableLength > 0
  }

  /** Returns true if it has taken something since the last look. */
  look(now: number): boolean {
    const { socket } = this
    const taken = socket.bytesWritten - socket.writableLength
    const hasTaken = taken !== this.#taken
    if (hasTaken || !this.holdsBytes) this.takenAt = now
    this.#taken = taken
    // While it is not read, a reset shows only when something is written, and TLS hides it.
    if (socket.isPaused() && !this.holdsBytes && !socket.writableEnded) this.#carrier.write('')
    return hasTaken
  }
}
