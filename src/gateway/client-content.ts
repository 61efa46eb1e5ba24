/** The content of a request on its way to the service. Small content is kept, so that the request can be repeated. */

import type { Client } from '../listener/request-handler.ts'
import type { ContentSource, ContentWriter } from '../origin/attempt.ts'

/** More is not read before it can go on. */
const MAX_PENDING_BYTES = 64 * 1024

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

type ContentClient = Pick<Client, 'pauseContent' | 'resumeContent'>

export class ClientContent implements ContentSource {
  readonly #client: ContentClient
  /** Octets that the client declared; undefined for chunked content. */
  readonly #length: number | undefined
  readonly #memory: RepeatMemory
  /** Whose share of the memory it takes. */
  readonly #holder: unknown
  #takenBytes = 0
  readonly #kept: Buffer[] = []
  /** False if there is no room for the content, or no repeat will come. */
  #isKept = true
  /** Content that came before there was a writer. */
  #pending: Buffer[] = []
  #pendingBytes = 0
  #writer: ContentWriter | undefined
  #isPaused = false
  /** The service has answered: nothing more is written. */
  #isDetached = false
  #onWhole: (() => void) | undefined
  receivedBytes = 0
  isComplete = false

  constructor(client: ContentClient, length: number | undefined, memory: RepeatMemory, holder: unknown) {
    this.#client = client
    this.#length = length
    this.#memory = memory
    this.#holder = holder
    this.#isKept = (length ?? 0) <= memory.mostPerRequest
  }

  /** Returns all of the content, if it is here in memory. Otherwise it has to be streamed. */
  whole(): Buffer | undefined {
    const isStreamed = !this.#isKept && this.#writer !== undefined // so that a part of it is gone
    if (!this.isComplete || isStreamed) return undefined
    const pieces = this.#isKept ? this.#kept : this.#pending
    this.#pending = []
    const [first] = pieces
    return first !== undefined && pieces.length === 1 ? first : Buffer.concat(pieces)
  }

  /** True if all of it is kept, or will be when the client has sent the rest of a small declared length. */
  get isRepeatable(): boolean {
    return this.#isKept && (this.isComplete || this.#length !== undefined)
  }

  /** True while we read and the client sends nothing. */
  get awaitsClient(): boolean {
    return !this.isComplete && !this.#isPaused
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

  // ---- from the client

  take(bytes: Buffer, start: number, end: number): void {
    const chunk = start === 0 && end === bytes.length ? bytes : bytes.subarray(start, end)
    this.receivedBytes += chunk.length
    this.#keep(chunk)
    if (this.#writer !== undefined) {
      if (!this.#writer.write(chunk, !this.#isKept) && this.#onWhole === undefined) this.#pause()
    } else if (!this.#isDetached) {
      this.#pending.push(chunk)
      this.#pendingBytes += chunk.length
      if (this.#pendingBytes >= MAX_PENDING_BYTES) this.#pause()
    }
  }

  ended(): void {
    this.isComplete = true
    this.#writer?.end()
    this.#onWhole?.()
  }

  #pause(): void {
    if (this.#isDetached) return // a write that fails at once detaches
    this.#isPaused = true
    this.#client.pauseContent()
  }

  // ---- to the service

  streamTo(writer: ContentWriter): void {
    const pending = this.#pending
    this.#pending = []
    this.#pendingBytes = 0
    this.#writer = writer
    let mayGoOn = true
    for (const chunk of pending) mayGoOn = writer.write(chunk, false)
    if (this.isComplete) writer.end()
    else if (mayGoOn) this.resume()
    else this.#pause()
  }

  /** The service has answered early. The rest is read all the same: a repeat may need it, and the client may be writing. */
  detach(): void {
    this.#writer = undefined
    this.#isDetached = true
    this.#pending = []
    this.resume()
  }

  resume(): void {
    if (this.isComplete || !this.#isPaused) return
    this.#isPaused = false
    this.#client.resumeContent()
  }
}
