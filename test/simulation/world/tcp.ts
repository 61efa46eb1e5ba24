/**
 * A small TCP, as Linux shows it to a program: bounded buffers on both sides, segments that are cut and merged, ends, and resets.
 * An endpoint is what a file descriptor is to a program; `handles.ts` puts Node's own sockets on it.
 */

import type { Random } from './random.ts'
import type { World } from './world.ts'

export type Errno = 'ECONNRESET' | 'EPIPE' | 'ECONNREFUSED' | 'ETIMEDOUT' | 'ENOTCONN'

/** What becomes of an attempt to connect. `hang`: the kernel takes it, and the program behind never does. `swallow`: no answer. */
export type Fate = 'accept' | 'refuse' | 'swallow' | 'hang'

/** Of one connection. */
export interface Line {
  /** Of each packet, one way; each takes up to twice as long. */
  readonly latencyMs: number
  /** The most octets of a segment. */
  readonly segmentBytes: number
  readonly sendBytes: number
  readonly receiveBytes: number
}

const FAST: Line = { latencyMs: 0.05, segmentBytes: 64 * 1024, sendBytes: 128 * 1024, receiveBytes: 128 * 1024 }
/** As Linux gives up: six repeats of the first packet. */
const CONNECT_TIMEOUT_MS = 127_000
const FIRST_FREE_PORT = 32_768

export interface Listener {
  readonly address: string
  readonly port: number
  accepted(endpoint: Endpoint): void
}

export class Network {
  readonly world: World
  readonly #random: Random
  readonly #listeners = new Map<string, Listener>()
  #lastPort = FIRST_FREE_PORT
  #lastId = 0
  /** Endpoints that are open: what a process must not leave behind. */
  readonly open = new Set<Endpoint>()
  /** A script may decide about each connection. */
  lineTo: (address: string, port: number) => Line = () => FAST
  fateOf: (address: string, port: number) => Fate = () => 'accept'

  constructor(world: World) {
    this.world = world
    this.#random = world.network
  }

  freePort(): number {
    return this.#lastPort++
  }

  /** Returns false if the address is in use. */
  listen(listener: Listener): boolean {
    const key = `${listener.address}:${listener.port}`
    if (this.#listeners.has(key)) return false
    this.#listeners.set(key, listener)
    return true
  }

  unlisten(listener: Listener): void {
    this.#listeners.delete(`${listener.address}:${listener.port}`)
  }

  get listening(): readonly Listener[] {
    return [...this.#listeners.values()]
  }

  /** The result arrives later. `owner` is for the trace. */
  connect(owner: string, address: string, port: number, done: (error: Errno | undefined) => void): Endpoint {
    const line = this.lineTo(address, port)
    const fate = this.fateOf(address, port)
    const id = ++this.#lastId
    const near = new Endpoint(this, `${owner}#${id}`, line, { address: '127.0.0.1', port: this.freePort() })
    const roundTripMs = line.latencyMs * this.#random.between(2, 4)
    if (fate === 'swallow') {
      this.world.after(CONNECT_TIMEOUT_MS, () => near.isClosed || done('ETIMEDOUT'))
      return near
    }
    this.world.after(roundTripMs, () => {
      if (near.isClosed) return
      const listener = this.#listeners.get(`${address}:${port}`) ?? this.#listeners.get(`0.0.0.0:${port}`)
      if (listener === undefined || fate === 'refuse') {
        this.open.delete(near)
        done('ECONNREFUSED')
        return
      }
      const far = new Endpoint(this, `${port}#${id}`, line, { address, port })
      near.join(far)
      if (fate === 'accept') listener.accepted(far)
      done(undefined)
    })
    return near
  }

  delayOf(line: Line): number {
    return line.latencyMs * this.#random.between(0.5, 2)
  }

  /** Of at most `most` octets. */
  segmentOf(line: Line, most: number): number {
    if (this.#random.chance(0.5)) return Math.min(most, line.segmentBytes)
    // Of much, no crumbs: they only take time.
    const least = Math.max(1, Math.min(most / 16, line.segmentBytes / 4))
    return Math.min(most, Math.ceil(this.#random.spread(least, line.segmentBytes)))
  }
}

export class Endpoint {
  readonly #network: Network
  readonly name: string
  readonly line: Line
  readonly local: { readonly address: string; readonly port: number }
  #peer: Endpoint | undefined
  /** Called whenever something changes for the program. */
  onChange: () => void = () => undefined
  // Towards the peer:
  readonly #unsent = new ByteQueue()
  /** On the way: they take room in both buffers. */
  #flyingBytes = 0
  #lastArrivalAt = 0
  writtenBytes = 0
  /** Octets that the program has read. */
  readBytes = 0
  /** Of each write: where it began, what the program had read by then, and what had come. */
  readonly #writes: { readonly at: number; readonly read: number; readonly arrived: number }[] = []
  /** Our side has ended. The end goes behind all that is unsent. */
  hasShutDown = false
  #isEndSent = false
  // From the peer:
  readonly #received = new ByteQueue()
  hasEnd = false
  /** To be told once, by the next call. */
  #error: Errno | undefined
  isReset = false
  /** The program has closed it. What is unsent still goes out. */
  isClosed = false
  /** The network delivers nothing any more, either way, and says nothing. */
  isCut = false

  constructor(network: Network, name: string, line: Line, local: { readonly address: string; readonly port: number }) {
    this.#network = network
    this.name = name
    this.line = line
    this.local = local
    network.open.add(this)
  }

  join(far: Endpoint): void {
    this.#peer = far
    far.#peer = this
  }

  get peer(): Endpoint | undefined {
    return this.#peer
  }

  // ---- what the program sees

  get isReadable(): boolean {
    return this.#received.bytes > 0 || this.hasEnd || this.isReset
  }

  /** As epoll tells it: with a third of the buffer free. */
  get isWritable(): boolean {
    return this.isReset || this.#room >= this.line.sendBytes / 3
  }

  /** EPOLLHUP: nothing can come or go any more. */
  get isHungUp(): boolean {
    return this.isReset || (this.hasEnd && this.#isEndSent)
  }

  get unreadBytes(): number {
    return this.#received.bytes
  }

  /** The peer has not got them yet. */
  get unsentBytes(): number {
    return this.#unsent.bytes + this.#flyingBytes
  }

  get #room(): number {
    return Math.max(0, this.line.sendBytes - this.#unsent.bytes - this.#flyingBytes)
  }

  /** At most `most` octets; undefined if there are none yet. */
  read(most: number): Buffer | 'end' | Errno | undefined {
    if (this.#received.bytes > 0) {
      const bytes = this.#received.take(most)
      this.readBytes += bytes.length
      if (this.#peer !== undefined) this.#peer.#transmit()
      return bytes
    }
    if (this.hasEnd) return 'end'
    if (this.isReset) return this.#takeError() ?? 'end'
    return undefined
  }

  #takeError(): Errno | undefined {
    const error = this.#error
    this.#error = undefined
    return error
  }

  /** Returns how many octets the kernel took. It copies them. */
  write(bytes: Buffer): number | Errno {
    if (this.isReset || this.hasShutDown) return this.#takeError() ?? 'EPIPE'
    const length = Math.min(bytes.length, this.#room)
    if (length === 0) return 0
    this.#writes.push({ at: this.writtenBytes, read: this.readBytes, arrived: this.readBytes + this.#received.bytes })
    this.writtenBytes += length
    this.#unsent.add(Buffer.from(bytes.subarray(0, length)))
    this.#transmit()
    return length
  }

  /** When the program wrote octet `at`: how many octets it had read by then, and how many had come. */
  whenWrote(at: number): { readonly read: number; readonly arrived: number } {
    return this.#writes.findLast((write) => write.at <= at) ?? { read: 0, arrived: 0 }
  }

  /** Ends our side. */
  shutdown(): Errno | undefined {
    if (this.isReset) return 'ENOTCONN'
    this.hasShutDown = true
    this.#transmit()
    return undefined
  }

  close(): void {
    if (this.isClosed) return
    this.isClosed = true
    this.onChange = () => undefined
    this.#network.open.delete(this)
    if (this.#received.bytes > 0) this.#sendReset()
    else if (!this.isReset) this.shutdown()
  }

  /** SO_LINGER with no time: the peer gets a reset, and what was unsent never goes out. */
  reset(): void {
    if (!this.isClosed && !this.isReset) this.#sendReset()
    this.isClosed = true
    this.onChange = () => undefined
    this.#network.open.delete(this)
  }

  // ---- the network

  #transmit(): void {
    const peer = this.#peer
    if (peer === undefined || this.#isEndSent || this.isReset) return
    for (;;) {
      const window = peer.isClosed ? Number.POSITIVE_INFINITY : peer.line.receiveBytes - peer.#received.bytes
      const most = Math.min(this.#unsent.bytes, window - this.#flyingBytes)
      if (most <= 0) break
      const segment = this.#unsent.take(this.#network.segmentOf(this.line, most))
      this.#flyingBytes += segment.length
      this.#send(() => {
        this.#flyingBytes -= segment.length
        peer.#arrived(segment)
        if (!this.isClosed) this.onChange() // there is room again
        this.#transmit()
      })
    }
    if (this.hasShutDown && this.#unsent.bytes === 0) {
      this.#isEndSent = true
      this.#send(() => peer.#ended())
    }
  }

  /** Packets keep their order. `isClose`: it may arrive together with the one before. */
  #send(arrive: () => void, isClose = false): void {
    const { world } = this.#network
    const at = world.now + this.#network.delayOf(this.line)
    this.#lastArrivalAt = Math.max(this.#lastArrivalAt, isClose && this.#flyingBytes > 0 ? this.#lastArrivalAt : at)
    world.at(this.#lastArrivalAt, () => {
      if (!this.isCut) arrive()
    })
  }

  #arrived(segment: Buffer): void {
    if (this.isReset) return
    // Nobody can read it any more.
    if (this.isClosed) {
      this.#sendReset()
      return
    }
    this.#received.add(segment)
    this.onChange()
  }

  #ended(): void {
    if (this.isReset) return
    this.hasEnd = true
    this.onChange()
  }

  #sendReset(): void {
    this.#dropUnsent()
    this.isReset = true
    const peer = this.#peer
    if (peer !== undefined) this.#send(() => peer.#wasReset(), true)
  }

  /** What has arrived can still be read. */
  #wasReset(): void {
    if (this.isReset) return
    this.isReset = true
    this.#error = this.hasEnd ? 'EPIPE' : 'ECONNRESET'
    this.#dropUnsent()
    this.onChange()
  }

  #dropUnsent(): void {
    this.#unsent.take(this.#unsent.bytes)
  }
}

/** Bytes in order. */
class ByteQueue {
  #pieces: Buffer[] = []
  /** Of the first piece that is left. */
  #at = 0
  bytes = 0

  add(piece: Buffer): void {
    this.#pieces.push(piece)
    this.bytes += piece.length
  }

  /** At most `most` octets. */
  take(most: number): Buffer {
    const taken: Buffer[] = []
    let left = Math.min(most, this.bytes)
    this.bytes -= left
    while (left > 0) {
      const first = this.#pieces[this.#at] as Buffer
      if (first.length <= left) {
        taken.push(first)
        left -= first.length
        this.#at++
      } else {
        taken.push(first.subarray(0, left))
        this.#pieces[this.#at] = first.subarray(left)
        left = 0
      }
    }
    if (this.#at === this.#pieces.length || this.#at > 1_000) {
      this.#pieces = this.#pieces.slice(this.#at)
      this.#at = 0
    }
    const [only] = taken
    return taken.length === 1 && only !== undefined ? only : Buffer.concat(taken)
  }
}
