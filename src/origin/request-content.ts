/** The content of one request on its way into the socket: framed, in writes of some size, its memory given back behind it. */

import type { Socket } from 'node:net'
import type { AttemptSink, ContentSource, ContentWriter } from './attempt.ts'
import { giveBack } from './give-back.ts'

/** What one read of the client's socket brings at most: where it brought so much, there is mostly more. */
const FULL_READ_BYTES = 64 * 1024
const LAST_CHUNK = '0\r\n\r\n'

export class RequestContent implements ContentWriter {
  readonly #socket: Socket
  readonly #source: ContentSource
  readonly #isChunked: boolean
  readonly #sink: Pick<AttemptSink, 'contentSent'>
  /** Waits for a second one to be written with it: each write wakes up whoever reads at the other end. */
  #held: Buffer | undefined
  #isFlushDue = false
  #isOver = false

  constructor(socket: Socket, source: ContentSource, isChunked: boolean, sink: Pick<AttemptSink, 'contentSent'>) {
    this.#socket = socket
    this.#source = source
    this.#isChunked = isChunked
    this.#sink = sink
  }

  /** True once the last of it has been handed to the socket, or the connection has let go of it. */
  get isOver(): boolean {
    return this.#isOver
  }

  /** Behind the head. */
  start(): void {
    this.#source.streamTo(this)
  }

  write(chunk: Buffer, isOwned: boolean): boolean {
    if (this.#isOver || chunk.length === 0) return true
    if (isOwned && chunk.length === FULL_READ_BYTES && this.#mayHold) {
      this.#hold(chunk)
      return true
    }
    this.#send(chunk, isOwned)
    return this.#hasLeft || !this.#socket.writableNeedDrain
  }

  end(): void {
    if (this.#isOver) return
    this.#flush()
    this.#isOver = true
    if (this.#isChunked) this.#socket.write(LAST_CHUNK, 'latin1')
    this.#sink.contentSent()
  }

  /** The socket has room again. */
  resume(): void {
    if (!this.#isOver) this.#source.resume()
  }

  /** The connection takes no more of it. */
  detach(): void {
    if (this.#isOver) return
    this.#isOver = true
    this.#held = undefined
    this.#source.detach()
  }

  /** Never behind a socket that has not taken all: who brings one full read a turn would not be told to wait. */
  get #mayHold(): boolean {
    return this.#held === undefined && !this.#isChunked && this.#hasLeft
  }

  /** Not beyond this turn of the event loop, in which all is read that has come. */
  #hold(chunk: Buffer): void {
    this.#held = chunk
    if (this.#isFlushDue) return
    this.#isFlushDue = true
    setImmediate(RequestContent.flushWhenDue, this)
  }

  /** The second half of a hold. */
  static flushWhenDue(content: RequestContent): void {
    content.#isFlushDue = false
    content.#flush()
  }

  #flush(): void {
    const held = this.#held
    if (held === undefined) return
    this.#held = undefined
    this.#sink.contentSent()
    this.#socket.write(held)
    if (this.#hasLeft) giveBack(held)
  }

  #send(chunk: Buffer, isOwned: boolean): void {
    const socket = this.#socket
    const held = this.#held
    this.#held = undefined
    this.#sink.contentSent()
    if (held === undefined && !this.#isChunked) socket.write(chunk)
    else {
      socket.cork()
      if (held !== undefined) socket.write(held)
      if (this.#isChunked) socket.write(`${chunk.length.toString(16)}\r\n`, 'latin1')
      socket.write(chunk)
      if (this.#isChunked) socket.write('\r\n', 'latin1')
      socket.uncork()
    }
    if (!this.#hasLeft) return
    if (held !== undefined) giveBack(held)
    if (isOwned) giveBack(chunk)
  }

  /** The kernel has taken everything. */
  get #hasLeft(): boolean {
    return this.#socket.writableLength === 0
  }
}
