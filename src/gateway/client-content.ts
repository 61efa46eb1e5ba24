/** The content of a request on its way to the service. Small content is kept, so that the request can be repeated. */

import type { IncomingMessage } from 'node:http'
import { joinPieces, markEmpty } from '../http/node-internals.ts'
import type { ContentSource, ContentWriter } from '../origin/attempt.ts'

export interface ClientContentOptions {
  /** Octets that the client declared; undefined for chunked content. */
  readonly length: number | undefined
  /** Larger content is not kept. */
  readonly maxKeptBytes: number
  readonly memory: RepeatMemory
}

/** For all requests together. */
const MAX_MEMORY_BYTES = 32 * 1024 * 1024

/** The memory for content that is kept for repeats. When it is used up, further requests are forwarded, but not repeated. */
export class RepeatMemory {
  #freeBytes: number

  constructor(bytes = MAX_MEMORY_BYTES) {
    this.#freeBytes = bytes
  }

  /** Returns false if that much is not left. */
  take(bytes: number): boolean {
    if (bytes > this.#freeBytes) return false
    this.#freeBytes -= bytes
    return true
  }

  giveBack(bytes: number): void {
    this.#freeBytes += bytes
  }
}

export class ClientContent implements ContentSource {
  readonly #message: IncomingMessage
  readonly #length: number | undefined
  readonly #maxKeptBytes: number
  readonly #memory: RepeatMemory
  /** Its part of the memory, taken for a declared length at once. */
  #takenBytes = 0
  #kept: Buffer[] = []
  /** All of the content, once it is in one piece. */
  #whole: Buffer | undefined
  /** False if there is no room for the content, or no repeat will come. */
  #isKept = true
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
    this.#memory = options.memory
    this.#takeMemory(options.length ?? 0)
    if (options.length === undefined) joinPieces(message)
  }

  /** Returns all of the content, if it came together with the head or was kept. Otherwise it has to be streamed. */
  whole(): Buffer | undefined {
    if (this.#whole !== undefined) return this.#whole
    if (!this.#isListening && this.#hasArrived) return this.#takeWhole()
    if (this.isComplete && this.#isKept) this.#whole = Buffer.concat(this.#kept)
    return this.#whole
  }

  /** True if all of it is kept, or will be when the client has sent the rest of a small declared length. */
  get willBeKept(): boolean {
    return this.#isKept && (this.isComplete || this.#length !== undefined)
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

  /** No repeat will come. */
  dropKept(): void {
    this.#isKept = false
    this.#kept = []
    this.#whole = undefined
    this.#onWhole = undefined
    this.#memory.giveBack(this.#takenBytes)
    this.#takenBytes = 0
  }

  #takeMemory(bytes: number): void {
    if (this.#takenBytes + bytes <= this.#maxKeptBytes && this.#memory.take(bytes)) this.#takenBytes += bytes
    else this.dropKept()
  }

  /** Node runs the next tick when it has read the content, and only then takes note that the message is complete. */
  get #hasArrived(): boolean {
    return this.#message.complete || this.#message.readableLength === this.#length
  }

  #takeWhole(): Buffer {
    const whole = readAll(this.#message)
    markEmpty(this.#message)
    this.receivedBytes = whole.length
    this.isComplete = true
    if (this.#length === undefined) this.#takeMemory(whole.length)
    if (this.#isKept) this.#whole = whole
    return whole
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
    if (this.#writer?.write(chunk, !this.#isKept) !== false || this.#onWhole !== undefined) return
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
    if (this.#isKept && this.#length === undefined) this.#takeMemory(chunk.length)
    if (this.#isKept) this.#kept.push(chunk)
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
