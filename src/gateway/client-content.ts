/** The content of a request on its way to the service. Small content is kept, so that the request can be repeated. */

import assert from 'node:assert/strict'
import type { Client } from '../listener/request-handler.ts'
import type { ContentSource, ContentWriter } from '../origin/attempt.ts'
import { Pieces } from '../pieces.ts'
import type { Admitted } from './admission.ts'

/** More is not read before it can go on. */
const MAX_PENDING_BYTES = 64 * 1024

/** Bounds what a request and all of them together keep. Beyond it, requests are forwarded, but not repeated. */
export class RepeatMemory {
  readonly mostPerRequest: number
  #freeBytes: number
  readonly #heldBy = new Map<unknown, number>()

  /** One holder gets at most half of `totalBytes`, so a request of the greatest size needs twice that. */
  constructor(mostPerRequest: number, totalBytes = Math.max(32 * 1024 * 1024, 2 * mostPerRequest)) {
    this.mostPerRequest = mostPerRequest
    this.#freeBytes = totalBytes
  }

  get heldBytes(): number {
    let bytes = 0
    for (const held of this.#heldBy.values()) bytes += held
    return bytes
  }

  /** Returns false if there is no room. A holder may have at most as much as stays free, so that one alone cannot take all. */
  hold(holder: unknown, bytes: number): boolean {
    const held = (this.#heldBy.get(holder) ?? 0) + bytes
    this.#freeBytes -= bytes
    this.#heldBy.set(holder, held)
    if (held <= this.#freeBytes) return true
    this.giveBack(holder, bytes)
    return false
  }

  giveBack(holder: unknown, bytes: number): void {
    const held = (this.#heldBy.get(holder) ?? 0) - bytes
    this.#freeBytes += bytes
    if (held > 0) this.#heldBy.set(holder, held)
    else this.#heldBy.delete(holder)
  }
}

type ContentClient = Pick<Client, 'sendContinue' | 'pauseContent' | 'resumeContent'>

export class ClientContent implements ContentSource {
  readonly #client: ContentClient
  /** Octets that the client declared; undefined for chunked content. */
  readonly #length: number | undefined
  readonly #memory: RepeatMemory
  /** Whose share of the memory it takes. */
  readonly #holder: unknown
  /** Of the memory. */
  #heldBytes = 0
  /** If the content is kept, all of it that has come. Otherwise, what has not gone out. */
  readonly #here = new Pieces()
  /** False if there is no room for the content, or no repeat will come. */
  #isKept: boolean
  /** The client waits for a 100, and has sent none of the content. */
  #isWithheld: boolean
  /** It was not told to send it. */
  #isUninvited: boolean
  /** It was handed out, in one piece or as a stream. */
  #isTaken = false
  /** What was here was handed over. What comes goes to the writer, if there is one. */
  #isGone = false
  #writer: ContentWriter | undefined
  #isPaused = false
  #onWhole: (() => void) | undefined
  receivedBytes = 0
  isComplete = false

  constructor(
    client: ContentClient,
    { contentLength, expectsContinue }: Pick<Admitted, 'contentLength' | 'expectsContinue'>,
    memory: RepeatMemory,
    holder: unknown,
  ) {
    this.#client = client
    this.#length = contentLength
    this.#memory = memory
    this.#holder = holder
    this.#isKept = (contentLength ?? 0) <= memory.mostPerRequest
    this.#isWithheld = expectsContinue
    this.#isUninvited = expectsContinue
  }

  /** Hands out the content: in one piece if all of it is here, or else as a stream. Again only if all of it is kept. */
  handOut(): Buffer | ContentSource {
    const isAllKept = this.isComplete && this.#isKept
    assert(isAllKept || !this.#isTaken, 'the content is gone')
    this.#isTaken = true
    if (!this.isComplete) return this
    this.#isGone = true
    const whole = this.#here.joined()
    if (!isAllKept) this.#here.clear()
    return whole
  }

  /** True if all of it is kept, or will be when it has come; or if none has come. */
  get isRepeatable(): boolean {
    return this.#isWithheld || this.staysRepeatable
  }

  /** True if all of it is kept, or will be when the client has sent the rest of a small declared length. */
  get staysRepeatable(): boolean {
    return this.#isKept && (this.isComplete || this.#length !== undefined)
  }

  /** True if it is the client's turn to send. */
  get awaitsClient(): boolean {
    return !this.isComplete && !this.#isPaused && !this.#isUninvited
  }

  /** Tells the client to send it. */
  invite(): void {
    this.#isUninvited = false
    this.#client.sendContinue()
  }

  /** Resolves when it can be handed out for a repeat. */
  repeatable(): Promise<void> {
    if (this.isComplete || this.#isWithheld) return Promise.resolve()
    return new Promise((resolve) => {
      this.#onWhole = resolve
      this.resume()
    })
  }

  /** No repeat will come. */
  dropKept(): void {
    this.#isKept = false
    this.#isWithheld = false
    if (this.#isGone) this.#here.clear()
    if (this.#heldBytes > 0) this.#memory.giveBack(this.#holder, this.#heldBytes)
    this.#heldBytes = 0
  }

  /** A repeat will come: makes sure that the rest can be kept. Returns false if it cannot. */
  reserve(): boolean {
    const isKept = this.isRepeatable && !this.#isWithheld
    if (isKept && !this.isComplete && !this.#hold(this.#length ?? 0)) this.dropKept()
    return this.isRepeatable
  }

  /** Returns false if there is not so much memory for the content. */
  #hold(bytes: number): boolean {
    const further = bytes - this.#heldBytes
    if (further <= 0) return true
    if (bytes > this.#memory.mostPerRequest || !this.#memory.hold(this.#holder, further)) return false
    this.#heldBytes = bytes
    return true
  }

  // ---- from the client

  receive(chunk: Buffer): void {
    this.receivedBytes += chunk.length
    this.#isWithheld = false
    this.#isUninvited = false
    if (this.#isKept || !this.#isGone) this.#here.add(chunk)
    // What has arrived counts, not what was declared: a client may declare much, and send nothing.
    if (this.#isKept && !this.#hold(this.receivedBytes)) this.dropKept()
    if (this.#writer !== undefined) {
      if (!this.#writer.write(chunk, !this.#isKept) && this.#onWhole === undefined) this.#pause()
    } else if (this.#here.bytes >= MAX_PENDING_BYTES) this.#pause()
  }

  ended(): void {
    this.isComplete = true
    this.#isWithheld = false
    this.#writer?.end()
    this.#onWhole?.()
  }

  #pause(): void {
    if (this.#isGone && this.#writer === undefined) return // a write that fails at once detaches
    this.#isPaused = true
    this.#client.pauseContent()
  }

  // ---- to the service

  streamTo(writer: ContentWriter): void {
    assert(this.#isTaken && !this.#isGone)
    this.#isGone = true
    this.#writer = writer
    let mayGoOn = true
    for (const chunk of this.#here.list()) mayGoOn = writer.write(chunk, false)
    if (!this.#isKept) this.#here.clear()
    if (this.isComplete) writer.end()
    else if (mayGoOn) this.resume()
    else this.#pause()
  }

  /**
   * The service has answered early. The rest is read all the same: a repeat may need it, and the client may be writing. If none
   * has come, all of it may be taken once more.
   */
  detach(): void {
    this.#writer = undefined
    if (this.#isWithheld) {
      this.#isTaken = false
      this.#isGone = false
    }
    this.resume()
  }

  resume(): void {
    if (this.isComplete || !this.#isPaused) return
    this.#isPaused = false
    this.#client.resumeContent()
  }
}
