/** One connection of the scripted origin: reads requests strictly, records them, and writes the answers of the script. */

import type { Socket } from 'node:net'
import { ByteReader, type StreamEnd, StreamEnded } from './byte-reader.ts'
import { declaredFraming, type FieldList, MalformedMessage, readContent, readHead, valuesOf } from './http-message.ts'
import { type Reply, renderReply } from './origin-reply.ts'
import { resetNow } from './reset-now.ts'

/** More than this of one content or one connection is counted, but not kept. */
const MAX_RECORDED_BYTES = 8 * 1024 * 1024

const REQUEST_LINE = /^([!#$%&'*+.^_`|~0-9A-Za-z-]+) ([\x21-\x7e]+) HTTP\/1\.1$/

/**
 * Called after the head of a request; `await request.ended` for its content. Returns the answer, or nothing if it wrote the
 * answer itself.
 */
export type OriginScript = (
  request: OriginRequest,
  connection: OriginConnection,
) => Reply | undefined | Promise<Reply | undefined>

export type RequestState = 'open' | 'complete' | 'aborted' | 'malformed'

export class OriginRequest {
  readonly method: string
  readonly target: string
  readonly fields: FieldList
  readonly connection: OriginConnection
  /** Settles when the content has ended, one way or the other. */
  ended: Promise<void> = Promise.resolve()
  state: RequestState = 'open'
  contentBytes = 0
  trailers: FieldList = []
  readonly #pieces: Buffer[] = []

  constructor(method: string, target: string, fields: FieldList, connection: OriginConnection) {
    this.method = method
    this.target = target
    this.fields = fields
    this.connection = connection
  }

  get content(): Buffer {
    return Buffer.concat(this.#pieces)
  }

  /** All values of a field, in any case of its name. */
  values(name: string): string[] {
    return valuesOf(this.fields, name)
  }

  record(bytes: Buffer): void {
    if (this.contentBytes < MAX_RECORDED_BYTES) this.#pieces.push(bytes)
    this.contentBytes += bytes.length
  }
}

export interface OriginObserver {
  onRequest(request: OriginRequest): void
  onMalformed(problem: string): void
  onScriptError(error: unknown): void
  onChange(): void
}

export class OriginConnection {
  readonly socket: Socket
  readonly requests: OriginRequest[] = []
  readonly #reader: ByteReader
  readonly #observer: OriginObserver
  readonly #received: Buffer[] = []
  #receivedBytes = 0
  #isTunnel = false

  constructor(socket: Socket, observer: OriginObserver) {
    this.socket = socket
    this.#observer = observer
    socket.setNoDelay(true)
    socket.on('data', (chunk: Buffer) => {
      if (this.#receivedBytes < MAX_RECORDED_BYTES) this.#received.push(chunk)
      this.#receivedBytes += chunk.length
    })
    this.#reader = new ByteReader(socket)
    for (const event of ['data', 'end', 'close']) socket.on(event, () => observer.onChange())
  }

  /** The raw bytes that arrived. */
  get received(): Buffer {
    return Buffer.concat(this.#received)
  }

  get receivedBytes(): number {
    return this.#receivedBytes
  }

  get isClosed(): boolean {
    return this.socket.closed
  }

  /** How the peer ended its side. Undefined before. */
  get peerEnd(): StreamEnd | undefined {
    return this.#reader.end
  }

  /** A string is sent as latin1: one character, one byte. */
  write(bytes: string | Uint8Array): void {
    if (this.socket.writable) this.socket.write(typeof bytes === 'string' ? Buffer.from(bytes, 'latin1') : bytes)
  }

  /** Resolves when the written bytes were sent, or the connection has ended. */
  drained(): Promise<void> {
    return new Promise((resolve) => {
      const done = () => {
        this.socket.off('drain', done).off('close', done)
        resolve()
      }
      this.socket.on('drain', done).on('close', done)
    })
  }

  end(): void {
    this.socket.end()
  }

  reset(): void {
    resetNow(this.socket)
  }

  /** From here on, the script owns the connection, and nothing on it is read as HTTP. */
  tunnel(): ByteReader {
    this.#isTunnel = true
    return this.#reader
  }

  async serve(script: OriginScript): Promise<void> {
    try {
      while (!this.#isTunnel && this.socket.writable) await this.#serveNext(script)
    } catch (error) {
      if (error instanceof StreamEnded) this.#endedBetweenRequests()
      else if (error instanceof MalformedMessage) this.#refuse(error.message)
      else this.#observer.onScriptError(error)
    }
    this.#observer.onChange()
  }

  async #serveNext(script: OriginScript): Promise<void> {
    const { startLine, fields } = await readHead(this.#reader)
    const [, method, target] = REQUEST_LINE.exec(startLine) ?? []
    if (method === undefined || target === undefined)
      throw new MalformedMessage(`request line ${JSON.stringify(startLine)}`)
    const framing = declaredFraming(fields) ?? { kind: 'none' }
    const request = new OriginRequest(method, target, fields, this)
    this.requests.push(request)
    request.ended = this.#readContent(request, framing)
    this.#observer.onRequest(request)
    const reply = await script(request, this)
    if (reply !== undefined) {
      if (reply.isEarly !== true) await request.ended
      if (reply.isEarly === true || request.state === 'complete') this.#reply(request.method, reply)
    }
    if (!this.#isTunnel) await request.ended
  }

  async #readContent(request: OriginRequest, framing: Parameters<typeof readContent>[1]): Promise<void> {
    try {
      request.trailers = await readContent(this.#reader, framing, (bytes) => {
        request.record(bytes)
        this.#observer.onChange()
      })
      request.state = 'complete'
    } catch (error) {
      request.state = error instanceof StreamEnded ? 'aborted' : 'malformed'
      if (error instanceof MalformedMessage) this.#refuse(error.message)
    }
    this.#observer.onChange()
  }

  #reply(method: string, reply: Reply): void {
    for (const piece of renderReply(method, reply)) this.write(piece)
    if (reply.closes === true) this.end()
  }

  #endedBetweenRequests(): void {
    if (this.#reader.pending.length > 0) this.#observer.onMalformed('the connection ended inside a request head')
    this.socket.end()
  }

  #refuse(problem: string): void {
    this.#observer.onMalformed(problem)
    this.write('HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n')
    this.end()
  }
}
