/** Writes the content of one request to the socket, as it comes from the client, and frames it. */

import type { Socket } from 'node:net'
import type { AttemptSink, ContentSource, ContentWriter } from './attempt.ts'

const LAST_CHUNK = '0\r\n\r\n'

export class RequestContent implements ContentWriter {
  readonly #socket: Socket
  readonly #source: ContentSource
  readonly #isChunked: boolean
  readonly #sink: Pick<AttemptSink, 'contentSent'>
  #isOver = false

  constructor(socket: Socket, source: ContentSource, isChunked: boolean, sink: Pick<AttemptSink, 'contentSent'>) {
    this.#socket = socket
    this.#source = source
    this.#isChunked = isChunked
    this.#sink = sink
  }

  /** True once the last of the content has been handed to the socket, or `detach` was called. */
  get isOver(): boolean {
    return this.#isOver
  }

  /** Starts behind the head. */
  start(): void {
    this.#source.streamTo(this)
  }

  write(chunk: Buffer, isOwned: boolean): boolean {
    if (this.#isOver || chunk.length === 0) return true
    const socket = this.#socket
    this.#sink.contentSent()
    if (this.#isChunked) {
      socket.cork()
      socket.write(`${chunk.length.toString(16)}\r\n`, 'latin1')
      socket.write(chunk)
      socket.write('\r\n', 'latin1')
      socket.uncork()
    } else socket.write(chunk)
    if (socket.writableLength > 0) return !socket.writableNeedDrain
    // The kernel has a copy of everything.
    if (isOwned) free(chunk)
    return true
  }

  end(): void {
    if (this.#isOver) return
    this.#isOver = true
    if (this.#isChunked) this.#socket.write(LAST_CHUNK, 'latin1')
    this.#sink.contentSent()
  }

  /** The socket has room again. */
  resume(): void {
    if (!this.#isOver) this.#source.resume()
  }

  /** The connection takes no more content. */
  detach(): void {
    if (this.#isOver) return
    this.#isOver = true
    this.#source.detach()
  }
}

/** Below this, freeing costs more than it saves. */
const MIN_FREED_BYTES = 16 * 1024

/** A message to a closed port is dropped at once, and memory that was transferred to it is freed. */
const nowhere = new MessageChannel().port1
nowhere.close()

/**
 * Frees the memory of `chunk`, without waiting for the garbage collector. V8 collects the whole heap each time such memory
 * has grown by some 64 MiB, and each new piece lies in memory that no processor cache holds. Does nothing if `chunk`
 * shares its memory.
 */
function free(chunk: Buffer): void {
  const { buffer } = chunk
  if (chunk.length < MIN_FREED_BYTES || chunk.length !== buffer.byteLength || !(buffer instanceof ArrayBuffer)) return
  nowhere.postMessage(null, [buffer])
}
