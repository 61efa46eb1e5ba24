/** The content of a request on its way to the service. Small content is kept, so that the request can be repeated. */

import type { IncomingMessage } from 'node:http'
import { markEmpty } from '../http/node-20.ts'
import { joinPieces } from '../http/node-internals.ts'
import type { ContentSource, ContentWriter } from '../origin/attempt.ts'

/** Bounds what a request and all of them together keep. Beyond it, requests are forwarded, but not repeated. */
export class RepeatMemory {
  readonly mostPerRequest: number
  #freeBytes: number
  readonly #heldBy = new Map<unknown, number>()

  constructor(mostPerRequest: number, totalBytes = 32 * 1024 * 1024) {
    this.mostPerRequest = mostPerRequest
    this.#freeBytes = totalBytes
  }

  /** Returns false if there is no room. No holder may have more than it leaves for others, so that one alone cannot take all. */
  take(holder: unknown, bytes: number): boolean {
    const held = (this.#heldBy.get(holder) ?? 0) + bytes
    this.#freeBytes -= bytes
    this.#heldBy.set(holder, held)
    if (held <= this.#freeBytes) return true
    this.give(holder, bytes)
    return false
  }

  give(holder: unknown, bytes: number): void {
    const held = (this.#heldBy.get(holder) ?? 0) - bytes
    this.#freeBytes += bytes
    if (held > 0) this.#heldBy.set(holder, held)
    else this.#heldBy.delete(holder)
  }
}

export class ClientContent implements ContentSource {
  readonly #message: IncomingMessage
  /** Octets that the client declared; undefined for chunked content. */
  readonly #length: number | undefined
  readonly #memory: RepeatMemory
  /** Whose share of the memory it takes. */
  readonly #holder: unknown
  #takenBytes = 0
  readonly #kept: Buffer[] = []
  /** False if there is no room for the content, or no repeat will come. */
  #isKept = true
  #writer: ContentWriter | undefined
  #onWhole: (() => void) | undefined
  receivedBytes = 0
  isComplete = false

  constructor(message: IncomingMessage, length: number | undefined, memory: RepeatMemory, holder: unknown) {
    this.#message = message
    this.#length = length
    this.#memory = memory
    this.#holder = holder
    this.#isKept = (length ?? 0) <= memory.mostPerRequest
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
    if (this.#takenBytes > 0) this.#memory.give(this.#holder, this.#takenBytes)
    this.#takenBytes = 0
  }

  /** A repeat will come: makes sure that the rest can be kept. Returns false if it cannot. */
  reserve(): boolean {
    if (this.isRepeatable && !this.isComplete && !this.#takeFor(this.#length ?? 0)) this.dropKept()
    return this.isRepeatable
  }

  /** Returns false if there is no memory for so many octets of content. */
  #takeFor(bytes: number): boolean {
    const further = bytes - this.#takenBytes
    if (further <= 0) return true
    if (bytes > this.#memory.mostPerRequest || !this.#memory.take(this.#holder, further)) return false
    this.#takenBytes = bytes
    return true
  }

  /** What has arrived counts, not what was declared: a client may declare much, and send nothing. */
  #keep(chunk: Buffer): void {
    if (!this.#isKept) return
    if (this.#takeFor(this.receivedBytes)) this.#kept.push(chunk)
    else this.dropKept()
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
