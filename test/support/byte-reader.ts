/** Reads the bytes of one socket in order: by line, by count, or to the end. Each wait of a client has a deadline. */

import type { Socket } from 'node:net'

/** How the peer's half of the connection ended. */
export type StreamEnd = 'fin' | 'reset'

export class StreamEnded extends Error {
  override readonly name = 'StreamEnded'
  readonly end: StreamEnd

  constructor(end: StreamEnd) {
    super(end === 'fin' ? 'the peer has ended its side' : 'the connection was reset')
    this.end = end
  }
}

export class DeadlineExceeded extends Error {
  override readonly name = 'DeadlineExceeded'
}

const LINE_FEED = 0x0a

export class ByteReader {
  readonly #deadlineMs: number
  /** Joined only on demand, so that large content is copied once. */
  #chunks: Buffer[] = []
  #length = 0
  #end: StreamEnd | undefined
  #wake: () => void = () => {}

  /** Reads as fast as bytes arrive, so that it sees an abort at once. Slow readers call `pause()` on the socket. */
  constructor(socket: Socket, deadlineMs: number = Number.POSITIVE_INFINITY) {
    this.#deadlineMs = deadlineMs
    socket.on('data', (chunk: Buffer) => {
      this.#chunks.push(chunk)
      this.#length += chunk.length
      this.#wake()
    })
    socket.on('end', () => this.#finish('fin'))
    socket.on('error', () => this.#finish('reset'))
    socket.on('close', () => this.#finish('reset'))
  }

  /** The bytes that arrived and were not taken yet. */
  get pending(): Buffer {
    if (this.#chunks.length > 1) this.#chunks = [Buffer.concat(this.#chunks, this.#length)]
    return this.#chunks[0] ?? Buffer.alloc(0)
  }

  get end(): StreamEnd | undefined {
    return this.#end
  }

  /** One line with its end, unchanged. */
  async line(limitBytes = 1024 * 1024): Promise<string> {
    await this.#until(() => this.pending.includes(LINE_FEED) || this.#length > limitBytes, 'the end of a line')
    const end = this.pending.indexOf(LINE_FEED)
    if (end === -1) throw new Error(`a line of more than ${limitBytes} bytes`)
    return this.#take(end + 1).toString('latin1')
  }

  /** Between one byte and `limit`. */
  async some(limit: number): Promise<Buffer> {
    await this.#until(() => this.#length > 0, 'a byte')
    return this.#take(Math.min(limit, this.#length))
  }

  async exactly(count: number): Promise<Buffer> {
    await this.#until(() => this.#length >= count, `${count} bytes`)
    return this.#take(count)
  }

  /** Everything up to the end of the stream. */
  async toEnd(): Promise<Buffer> {
    await this.#until(() => this.#end !== undefined, 'the end of the stream')
    return this.#take(this.#length)
  }

  #take(count: number): Buffer {
    const { pending } = this
    this.#length -= count
    this.#chunks = this.#length === 0 ? [] : [pending.subarray(count)]
    return pending.subarray(0, count)
  }

  #finish(end: StreamEnd): void {
    this.#end ??= end
    this.#wake()
  }

  async #until(condition: () => boolean, what: string): Promise<void> {
    if (condition()) return
    let expired = false
    const expire = () => {
      expired = true
      this.#wake()
    }
    const timer = Number.isFinite(this.#deadlineMs) ? setTimeout(expire, this.#deadlineMs) : undefined
    try {
      while (!condition()) {
        if (this.#end !== undefined) throw new StreamEnded(this.#end)
        if (expired)
          throw new DeadlineExceeded(
            `${what} did not come within ${this.#deadlineMs} ms; so far: ${preview(this.pending)}`,
          )
        await new Promise<void>((resolve) => {
          this.#wake = resolve
        })
      }
    } finally {
      clearTimeout(timer)
    }
  }
}

function preview(bytes: Buffer): string {
  return JSON.stringify(bytes.subarray(0, 300).toString('latin1'))
}
