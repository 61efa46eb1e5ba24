/** The content of a request on its way to the origin, with as much of it kept as one repeat after a rejected token needs. */

import type { IncomingMessage } from 'node:http'
import { Readable } from 'node:stream'

export interface ReplayContentOptions {
  /** Declared by the client; undefined for chunked content. */
  readonly length: number | undefined
  /** `replay.maxBody`: content up to this size is kept. */
  readonly maxReplayBytes: number
}

export class ReplayContent {
  readonly #message: IncomingMessage
  readonly #length: number | undefined
  readonly #maxReplayBytes: number
  #kept: Buffer[] = []
  /** All of it, where it came in one piece. */
  #whole: Buffer | undefined
  #isTooLarge = false
  #isFlowing = false
  #stream: Readable | undefined
  #onWhole: (() => void) | undefined
  /** Octets received so far. */
  receivedBytes = 0
  /** True once all of it has been received. */
  isComplete = false

  constructor(message: IncomingMessage, options: ReplayContentOptions) {
    this.#message = message
    this.#length = options.length
    this.#maxReplayBytes = options.maxReplayBytes
    this.#isTooLarge = options.length !== undefined && options.length > options.maxReplayBytes
  }

  /**
   * For the first attempt: all of it at once where it came in one piece with the head, a stream otherwise. Called again
   * (nothing was sent on the failed connection), it gives the same.
   */
  open(): Buffer | Readable {
    if (this.isReplayable) this.#whole ??= Buffer.concat(this.#kept)
    if (this.#whole !== undefined) return this.#whole
    if (this.#stream !== undefined) return this.#stream
    if (this.#message.complete) return this.#takeWhole()
    return this.#startStream()
  }

  /** True where the repeat needs nothing more from the client. */
  get isReplayable(): boolean {
    return this.isComplete && !this.#isTooLarge
  }

  /** True where it is kept, or will be once the client has sent the rest of a small declared length. */
  get willBeReplayable(): boolean {
    return !this.#isTooLarge && (this.isComplete || this.#length !== undefined)
  }

  /** True while silence is the client's: we are reading and nothing comes. */
  get awaitsClient(): boolean {
    return !this.isComplete && this.#isFlowing
  }

  /** Calls `onWhole` once everything has been received; the bytes are then had from `open`. */
  whenWhole(onWhole: () => void): void {
    if (this.isComplete) {
      onWhole()
      return
    }
    this.#onWhole = onWhole
    this.#flow()
  }

  /** No repeat will come: what was kept is let go, what still arrives is not kept. */
  release(): void {
    this.#isTooLarge = true
    this.#kept = []
    this.#whole = undefined
    this.#onWhole = undefined
  }

  /** The client has gone, or the exchange has ended without it. */
  abandon(reason: Error): void {
    this.release()
    this.#stream?.destroy(reason)
  }

  #takeWhole(): Buffer {
    const content: unknown = this.#message.read()
    const whole = Buffer.isBuffer(content) ? content : Buffer.alloc(0)
    this.receivedBytes = whole.length
    this.isComplete = true
    this.#isTooLarge = whole.length > this.#maxReplayBytes
    this.#whole = whole
    return whole
  }

  /**
   * A stream between the message and undici: undici destroys what it was given as soon as the origin answers early, and
   * destroying the message would cut the client off.
   */
  #startStream(): Readable {
    const stream = new Readable({
      highWaterMark: 64 * 1024,
      read: () => this.#flow(),
    })
    this.#stream = stream
    // undici listens while it reads; after it has let go, an abort must not become an uncaught error.
    stream.on('error', () => undefined)
    this.#message.on('data', (chunk: Buffer) => this.#received(chunk))
    this.#message.on('end', () => this.#ended())
    this.#message.pause()
    return stream
  }

  #flow(): void {
    if (this.#isFlowing || this.isComplete) return
    this.#isFlowing = true
    this.#message.resume()
  }

  #received(chunk: Buffer): void {
    this.receivedBytes += chunk.length
    this.#keep(chunk)
    const stream = this.#stream
    // After an early answer nobody takes the rest but a repeat.
    if (stream === undefined || stream.destroyed) return
    if (!stream.push(chunk) && this.#onWhole === undefined) {
      this.#isFlowing = false
      this.#message.pause()
    }
  }

  #ended(): void {
    this.isComplete = true
    if (this.#stream !== undefined && !this.#stream.destroyed) this.#stream.push(null)
    const onWhole = this.#onWhole
    this.#onWhole = undefined
    onWhole?.()
  }

  #keep(chunk: Buffer): void {
    if (this.#isTooLarge) return
    if (this.receivedBytes > this.#maxReplayBytes) {
      this.#isTooLarge = true
      this.#kept = []
      return
    }
    this.#kept.push(chunk)
  }
}
