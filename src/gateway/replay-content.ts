/** The content of a request on its way to the origin, with as much of it kept as one repeat after a rejected token needs. */

import type { IncomingMessage } from 'node:http'
import type { ContentSource, ContentWriter } from '../origin/attempt.ts'
import { giveBack } from '../origin/give-back.ts'

export interface ReplayContentOptions {
  /** Declared by the client; undefined for chunked content. */
  readonly length: number | undefined
  /** `replay.maxBody`: content up to this size is kept. */
  readonly maxReplayBytes: number
}

export class ReplayContent implements ContentSource {
  readonly #message: IncomingMessage
  readonly #length: number | undefined
  readonly #maxReplayBytes: number
  #kept: Buffer[] = []
  /** All of it, where it came in one piece. */
  #whole: Buffer | undefined
  #isTooLarge = false
  #isFlowing = false
  #writer: ContentWriter | undefined
  #isListening = false
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

  /** All of it, where it came in one piece with the head or has been kept whole; undefined where it has to be streamed. */
  whole(): Buffer | undefined {
    if (this.isReplayable) this.#whole ??= Buffer.concat(this.#kept)
    if (this.#whole === undefined && !this.#isListening && this.#message.complete) this.#takeWhole()
    return this.#whole
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

  /** Calls `onWhole` once everything has been received; the bytes are then had from `whole`. */
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

  #takeWhole(): void {
    const content: unknown = this.#message.read()
    const whole = Buffer.isBuffer(content) ? content : Buffer.alloc(0)
    this.receivedBytes = whole.length
    this.isComplete = true
    this.#isTooLarge = whole.length > this.#maxReplayBytes
    this.#whole = whole
  }

  streamTo(writer: ContentWriter): void {
    this.#writer = writer
    this.#flow()
  }

  resume(): void {
    this.#flow()
  }

  /** After an early answer nobody takes the rest but a repeat; it is read away. */
  detach(): void {
    this.#writer = undefined
    if (this.#isListening) this.#flow()
  }

  #flow(): void {
    if (this.#isFlowing || this.isComplete) return
    this.#isFlowing = true
    if (!this.#isListening) {
      this.#isListening = true
      this.#message.on('data', (chunk: Buffer) => this.#received(chunk))
      this.#message.on('end', () => this.#ended())
    }
    this.#message.resume()
  }

  #received(chunk: Buffer): void {
    this.receivedBytes += chunk.length
    this.#keep(chunk)
    if (this.#writer === undefined) {
      if (this.#isTooLarge) giveBack(chunk)
      return
    }
    if (this.#writer.write(chunk, this.#isTooLarge) || this.#onWhole !== undefined) return
    this.#isFlowing = false
    this.#message.pause()
  }

  #ended(): void {
    this.isComplete = true
    this.#writer?.end()
    this.#writer = undefined
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
