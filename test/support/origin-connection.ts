/** One connection of the scripted origin: reads requests strictly, records them, and writes the answers of the script. */

import { once } from 'node:events'
import type { Socket } from 'node:net'
import { Changes } from './changes.ts'
import {
  ByteReader,
  type FieldList,
  MAX_RECORDED_BYTES,
  MalformedMessage,
  type RequestHead,
  readRequestContent,
  readRequestHead,
  type StreamEnd,
  StreamEnded,
  valuesOf,
} from './http-reader.ts'
import { resetNow } from './reset-now.ts'

/** The simple form of an answer. */
export interface Reply {
  readonly status?: number
  readonly reason?: string
  /** Names and values in turn. `Content-Length` is added if nothing else frames the content. */
  readonly fields?: FieldList
  readonly content?: string | Uint8Array
  /** Sends the content as one chunk. */
  readonly isChunked?: boolean
  /** Does not wait for the content of the request. */
  readonly isEarly?: boolean
  /** Ends the connection after the response. */
  readonly closes?: boolean
}

/** What a script returns: its answer, or nothing if it has written that itself, or there is none. */
// biome-ignore lint/suspicious/noConfusingVoidType: a script without an answer just ends
export type Answer = Reply | void

/** Called after the head of a request; `await request.ended` for its content. */
export type OriginScript = (request: OriginRequest, connection: OriginConnection) => Answer | Promise<Answer>

/** Writes these bytes as soon as it has the head of a request, and nothing more. */
export function writes(bytes: string): OriginScript {
  return (_, connection) => connection.write(bytes)
}

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

  constructor({ method, target, fields }: RequestHead, connection: OriginConnection) {
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

/** What all connections of an origin have in common. */
export class OriginRecord {
  readonly requests: OriginRequest[] = []
  /** Bytes that are not HTTP/1.1, such as a smuggled half of a request. */
  readonly malformed: string[] = []
  readonly scriptErrors: unknown[] = []
  readonly changes: Changes = new Changes()
}

export class OriginConnection {
  readonly socket: Socket
  readonly requests: OriginRequest[] = []
  readonly #reader: ByteReader
  readonly #record: OriginRecord
  #isTunnel = false

  constructor(socket: Socket, record: OriginRecord) {
    this.socket = socket.setNoDelay(true)
    this.#record = record
    this.#reader = ByteReader.on(socket)
    for (const event of ['data', 'end', 'close']) socket.on(event, () => record.changes.notify())
  }

  /** The raw bytes that arrived. */
  get received(): Buffer {
    return this.#reader.received
  }

  get receivedBytes(): number {
    return this.#reader.receivedBytes
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
  async drained(): Promise<void> {
    const ends = new AbortController()
    const { signal } = ends
    await Promise.race(['drain', 'close'].map((event) => once(this.socket, event, { signal }).catch(() => undefined)))
    ends.abort()
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
      else {
        this.#record.scriptErrors.push(error)
        this.socket.destroy()
      }
    }
    this.#record.changes.notify()
  }

  async #serveNext(script: OriginScript): Promise<void> {
    const head = await readRequestHead(this.#reader)
    const request = new OriginRequest(head, this)
    this.requests.push(request)
    request.ended = this.#readContent(request, head)
    this.#record.requests.push(request)
    this.#record.changes.notify()
    const reply = await script(request, this)
    if (reply !== undefined) {
      if (reply.isEarly !== true) await request.ended
      if (reply.isEarly === true || request.state === 'complete') this.#reply(request.method, reply)
    }
    if (!this.#isTunnel) await request.ended
  }

  async #readContent(request: OriginRequest, head: RequestHead): Promise<void> {
    try {
      request.trailers = await readRequestContent(this.#reader, head, (bytes) => {
        request.record(bytes)
        this.#record.changes.notify()
      })
      request.state = 'complete'
    } catch (error) {
      request.state = error instanceof StreamEnded ? 'aborted' : 'malformed'
      if (error instanceof MalformedMessage) this.#refuse(error.message)
    }
    this.#record.changes.notify()
  }

  /** Writes head and content separately, like many servers, so that a relay cannot rely on getting both at once. */
  #reply(method: string, reply: Reply): void {
    const { status = 200, reason = 'OK', fields = [], content = '', isChunked = false, closes = false } = reply
    const bytes = Buffer.from(content)
    const lines = [`HTTP/1.1 ${status} ${reason}`]
    for (let i = 0; i < fields.length; i += 2) lines.push(`${fields[i]}: ${fields[i + 1]}`)
    const isFramed = ['content-length', 'transfer-encoding'].some((name) => valuesOf(fields, name).length > 0)
    const hasNoContent = status < 200 || status === 204 || status === 304
    if (isChunked) lines.push('Transfer-Encoding: chunked')
    else if (!isFramed && !hasNoContent) lines.push(`Content-Length: ${bytes.length}`)
    if (closes) lines.push('Connection: close')
    this.write(`${lines.join('\r\n')}\r\n\r\n`)
    if (method !== 'HEAD' && bytes.length > 0) {
      if (isChunked) this.write(`${bytes.length.toString(16)}\r\n`)
      this.write(bytes)
    }
    if (method !== 'HEAD' && isChunked) this.write(bytes.length > 0 ? '\r\n0\r\n\r\n' : '0\r\n\r\n')
    if (closes) this.end()
  }

  #endedBetweenRequests(): void {
    if (this.#reader.pending.length > 0) this.#record.malformed.push('the connection ended inside a request head')
    this.socket.end()
  }

  #refuse(problem: string): void {
    this.#record.malformed.push(problem)
    this.#record.changes.notify()
    this.write('HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n')
    this.end()
  }
}
