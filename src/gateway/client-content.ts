/** The content of a request on its way to the service. Small content is kept, so that the request can be repeated. */

import type { IncomingMessage } from 'node:http'
import { joinPieces, markEmpty } from '../http/node-internals.ts'
import type { ContentSource, ContentWriter } from '../origin/attempt.ts'

export interface ClientContentOptions {
  /** Octets that the client declared; undefined for chunked content. */
  readonly length: number | undefined
  /** Larger content is not kept. */
  readonly maxKeptBytes: number
}

export class ClientContent implements ContentSource {
  readonly #message: IncomingMessage
  readonly #length: number | undefined
  readonly #maxKeptBytes: number
  #kept: Buffer[] = []
  /** All of the content, once it is in one piece. */
  #whole: Buffer | undefined
  /** Nothing is kept: the content is too large, or no repeat will come. */
  #isTooLarge = false
  #isFlowing = false
  #writer: ContentWriter | undefined
  #isListening = false
  #onWhole: (() => void) | undefined
  /** Octets received so far. */
  receivedBytes = 0
  /** True once all of it has been received. */
  isComplete = false

  constructor(message: IncomingMessage, options: ClientContentOptions) {
    this.#message = message
    this.#length = options.length
    this.#maxKeptBytes = options.maxKeptBytes
    this.#isTooLarge = options.length !== undefined && options.length > options.maxKeptBytes
    if (options.length === undefined) joinPieces(message)
  }

  /** Returns all of the content, if it came together with the head or was kept. Otherwise it has to be streamed. */
  whole(): Buffer | undefined {
    if (this.isComplete && !this.#isTooLarge) this.#whole ??= Buffer.concat(this.#kept)
    if (this.#whole === undefined && !this.#isListening && this.#hasArrived) this.#takeWhole()
    return this.#whole
  }

  /** True if all of it is kept, or will be when the client has sent the rest of a small declared length. */
  get willBeKept(): boolean {
    return !this.#isTooLarge && (this.isComplete || this.#length !== undefined)
  }

  /** True while we read and the client sends nothing. */
  get awaitsClient(): boolean {
    return !this.isComplete && this.#isFlowing
  }

  /** Calls `onWhole` when everything has been received. `whole` returns it then. */
  whenWhole(onWhole: () => void): void {
    if (this.isComplete) {
      onWhole()
      return
    }
    this.#onWhole = onWhole
    this.#flow()
  }

  /** Drops what was kept: no repeat will come. */
  release(): void {
    this.#isTooLarge = true
    this.#kept = []
    this.#whole = undefined
    this.#onWhole = undefined
  }

  /** Node runs the next tick when it has read the content, and only then takes note that the message is complete. */
  get #hasArrived(): boolean {
    return this.#message.complete || this.#message.readableLength === this.#length
  }

  #takeWhole(): void {
    const whole = readAll(this.#message)
    markEmpty(this.#message)
    this.receivedBytes = whole.length
    this.isComplete = true
    this.#isTooLarge = whole.length > this.#maxKeptBytes
    this.#whole = whole
  }

  streamTo(writer: ContentWriter): void {
    this.#writer = writer
    this.#flow()
  }

  resume(): void {
    this.#flow()
  }

  /** The service has answered early. The rest is read all the same: a repeat may need it, and the client may be writing. */
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
    if (this.#writer?.write(chunk, this.#isTooLarge) !== false || this.#onWhole !== undefined) return
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
    if (this.receivedBytes > this.#maxKeptBytes) {
      this.#isTooLarge = true
      this.#kept = []
      return
    }
    this.#kept.push(chunk)
  }
}

/** From Node 26 on, each `read()` returns one piece of what has come; before, all of it. */
function readAll(message: IncomingMessage): Buffer {
  const first: unknown = message.read()
  if (!Buffer.isBuffer(first)) return Buffer.alloc(0)
  const pieces = [first]
  for (let piece: unknown = message.read(); Buffer.isBuffer(piece); piece = message.read()) pieces.push(piece)
  return pieces.length === 1 ? first : Buffer.concat(pieces)
}
