/** The content of a request on its way to the service. Small content is kept, so that the request can be repeated. */

import type { IncomingMessage } from 'node:http'
import { markEmpty } from '../http/node-20.ts'
import { joinPieces } from '../http/node-internals.ts'
import type { ContentSource, ContentWriter } from '../origin/attempt.ts'

/** For all requests together. */
const MAX_MEMORY_BYTES = 32 * 1024 * 1024

/** The memory for content that is kept for repeats. When it is used up, further requests are forwarded, but not repeated. */
export interface RepeatMemory {
  readonly mostPerRequest: number
  takenBytes: number
}

export class ClientContent implements ContentSource {
  readonly #message: IncomingMessage
  /** Octets that the client declared; undefined for chunked content. */
  readonly #length: number | undefined
  readonly #memory: RepeatMemory
  /** Its part of the memory, taken for a declared length at once. */
  #takenBytes = 0
  readonly #kept: Buffer[] = []
  /** False if there is no room for the content, or no repeat will come. */
  #isKept = true
  #writer: ContentWriter | undefined
  #onWhole: (() => void) | undefined
  receivedBytes = 0
  isComplete = false

  constructor(message: IncomingMessage, length: number | undefined, memory: RepeatMemory) {
    this.#message = message
    this.#length = length
    this.#memory = memory
    this.#takeMemory(length ?? 0)
    if (length === undefined) joinPieces(message)
  }

  /** Returns all of the content, if it came together with the head or was kept. Otherwise it has to be streamed. */
  whole(): Buffer | undefined {
    if (this.isComplete) return this.#isKept ? Buffer.concat(this.#kept) : undefined
    // Node runs the next tick when it has read the content, and only then takes note that the message is complete.
    if (!this.#message.complete && this.#message.readableLength !== this.#length) return undefined
    const whole = readAll(this.#message)
    markEmpty(this.#message)
    this.receivedBytes = whole.length
    this.isComplete = true
    this.#keep(whole)
    return whole
  }

  /** Some of it has come, or all. */
  get hasBegun(): boolean {
    return this.#message.complete || this.#message.readableLength > 0
  }

  /** True if all of it is kept, or will be when the client has sent the rest of a small declared length. */
  get isRepeatable(): boolean {
    return this.#isKept && (this.isComplete || this.#length !== undefined)
  }

  /** True while we read and the client sends nothing. */
  get awaitsClient(): boolean {
    return !this.isComplete && this.#message.readableFlowing === true
  }

  /** Resolves when everything has been received. `whole` returns it then. */
  received(): Promise<void> {
    if (this.isComplete) return Promise.resolve()
    return new Promise((resolve) => {
      this.#onWhole = resolve
      this.resume()
    })
  }

  /** No repeat will come. */
  dropKept(): void {
    this.#isKept = false
    this.#kept.length = 0
    this.#memory.takenBytes -= this.#takenBytes
    this.#takenBytes = 0
  }

  #takeMemory(bytes: number): void {
    const memory = this.#memory
    this.#takenBytes += bytes
    memory.takenBytes += bytes
    if (this.#takenBytes > memory.mostPerRequest || memory.takenBytes > MAX_MEMORY_BYTES) this.dropKept()
  }

  #keep(chunk: Buffer): void {
    if (this.#isKept && this.#length === undefined) this.#takeMemory(chunk.length)
    if (this.#isKept) this.#kept.push(chunk)
  }

  streamTo(writer: ContentWriter): void {
    this.#writer = writer
    this.#message.on('data', (chunk: Buffer) => this.#take(chunk))
    this.#message.on('end', () => this.#ended())
  }

  /** The service has answered early. The rest is read all the same: a repeat may need it, and the client may be writing. */
  detach(): void {
    this.#writer = undefined
    this.resume()
  }

  resume(): void {
    if (!this.isComplete) this.#message.resume()
  }

  #take(chunk: Buffer): void {
    this.receivedBytes += chunk.length
    this.#keep(chunk)
    if (this.#writer?.write(chunk, !this.#isKept) !== false || this.#onWhole !== undefined) return
    this.#message.pause()
  }

  #ended(): void {
    this.isComplete = true
    this.#writer?.end()
    this.#onWhole?.()
  }
}

/** From Node 26 on, each `read()` returns one piece of what has come; before, all of it. */
function readAll(message: IncomingMessage): Buffer {
  const pieces: Buffer[] = []
  for (let piece: unknown = message.read(); Buffer.isBuffer(piece); piece = message.read()) pieces.push(piece)
  const [first] = pieces
  return first !== undefined && pieces.length === 1 ? first : Buffer.concat(pieces)
}
