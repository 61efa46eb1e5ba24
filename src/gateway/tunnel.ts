/** A WebSocket behind its 101: joins the client's connection with one to the service. */

import type { Socket } from 'node:net'
import * as clock from '../clock.ts'
import type { Client } from '../listener/request-handler.ts'
import { keepReading } from '../origin/request-writer.ts'
import {
  type GatewayObserver,
  type RequestRecord,
  type TunnelEnd,
  type TunnelRecord,
  tunnelRecordOf,
} from './request-record.ts'

/** When one side has ended, the other has so long to send something or to end. Each piece that moves gives it as long again. */
const END_MS = 10_000
/** Between two looks at a side that is not read, because the other takes nothing. */
const PROBE_MS = 1_000

/** A side of a tunnel, and the bytes that have come from it already. */
interface Opened {
  readonly socket: Socket
  /** The TCP socket beneath it. */
  readonly carrier: Socket
  readonly firstBytes: Buffer | undefined
}

interface TunnelKeeper {
  readonly observer: GatewayObserver
  /** Those that are open. */
  readonly tunnels: Set<Tunnel>
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
  /** Runs since one side has ended. */
  #timer: clock.Delay | undefined

  /** `client`: from `connection`. */
  constructor(keeper: TunnelKeeper, record: RequestRecord, connection: Client, client: Opened, service: Opened) {
    this.#keeper = keeper
    this.record = tunnelRecordOf(record)
    this.#connection = connection
    this.#client = new Side(this, client)
    this.#service = new Side(this, service)
    keeper.tunnels.add(this)
    this.#client.copyTo(this.#service)
    this.#service.copyTo(this.#client)
  }

  moved(): void {
    this.#timer?.restart()
  }

  /** This side sends no more. */
  sideEnded(side: Side, reason: TunnelEnd['reason'] = 'closed'): void {
    if (this.#endedBy !== undefined) return
    const isOurs = this.#connection.isFinishing
    this.#endedBy = isOurs ? 'proxy' : side === this.#client ? 'client' : 'service'
    this.#reason = isOurs ? 'closed' : reason
    this.leftAt = clock.now()
    this.#timer = clock.after(END_MS, () => this.#expired())
  }

  sideClosed(side: Side): void {
    this.sideEnded(side, 'broken')
    if (this.#isOver || !this.#client.socket.destroyed || !this.#service.socket.destroyed) return
    this.#isOver = true
    this.#timer?.cancel()
    this.#keeper.tunnels.delete(this)
    this.#keeper.observer.tunnelEnded?.(this.record, {
      endedBy: this.#endedBy ?? 'proxy',
      reason: this.#reason,
      durationMs: clock.now() - this.#startedAt,
      bytesIn: this.#client.bytes,
      bytesOut: this.#service.bytes,
    })
  }

  #expired(): void {
    this.#reason = 'timeout'
    this.#client.socket.destroy()
    this.#service.socket.destroy()
  }
}

class Side {
  readonly #tunnel: Tunnel
  readonly socket: Socket
  readonly #carrier: Socket
  /** It has sent. */
  bytes = 0
  /**
   * A side may send its last frame, and close without reading the rest. The rest is dropped, and the side is read to its end.
   */
  #takesNoMore = false
  /** Set while it is not read. */
  #probing: clock.Timer | undefined

  constructor(tunnel: Tunnel, { socket, carrier, firstBytes }: Opened) {
    this.#tunnel = tunnel
    this.socket = socket
    this.#carrier = carrier
    if (firstBytes !== undefined && firstBytes.length > 0) socket.unshift(firstBytes) // before all others
  }

  copyTo({ socket: to }: Side): void {
    const { socket } = this
    const tunnel = this.#tunnel
    keepReading(socket, (done) => {
      this.#takesNoMore = true
      done()
      // Nobody takes what it has sent.
      if (socket.readableEnded || this.#probing !== undefined) socket.destroy()
    })
    socket.on('data', (bytes: Buffer) => {
      this.bytes += bytes.length
      tunnel.moved()
      if (!to.write(bytes)) this.#pause()
    })
    to.on('drain', () => {
      tunnel.moved()
      this.#resume()
    })
    socket.once('end', () => {
      tunnel.sideEnded(this)
      if (this.#takesNoMore) socket.destroy()
      else to.end()
    })
    socket.once('close', () => {
      this.#probing?.cancel()
      // Behind an end, `to` still has to send what it holds.
      if (socket.readableEnded) to.destroySoon()
      else to.destroy()
      tunnel.sideClosed(this)
    })
    socket.resume()
  }

  /** While it is not read, a reset shows only when something is written, and TLS hides it. */
  #pause(): void {
    const { socket } = this
    socket.pause()
    this.#probing ??= clock.every(PROBE_MS, () => {
      if (socket.writableLength === 0 && !socket.writableEnded) this.#carrier.write('')
    })
  }

  #resume(): void {
    this.#probing?.cancel()
    this.#probing = undefined
    this.socket.resume()
  }
}
