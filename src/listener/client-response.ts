/** A response on its way to the client, and the future of its connection. A small one is written at once, a large one as it comes. */

import assert from 'node:assert/strict'
import type { Socket } from 'node:net'
import * as clock from '../clock.ts'
import type { ContentUse } from '../http1/message-parser.ts'
import type { ReceivedResponse } from '../http1/response-parser.ts'

/** Content up to this size is copied behind the head. One write of a string costs less than a write of two parts. */
const MAX_JOINED_BYTES = 8 * 1024

/** A final response, or a 101, without framing fields and connection options. */
interface HeadToWrite {
  readonly status: number
  readonly reason: string
  /** Of its fields, which the parser has let pass. */
  readonly lines: string
  readonly hasDate: boolean
}

const UPGRADE_REQUIRED = 426

/** Adds a `Date` if there is none (RFC 9110 §6.6.1), and `moreLines`. */
export function responseHeadText(head: HeadToWrite, isChunked: boolean, moreLines: string): string {
  let text = `HTTP/1.1 ${head.status} ${head.reason}\r\n${head.lines}`
  if (!head.hasDate) text += `Date: ${httpDate()}\r\n`
  if (isChunked) text += 'Transfer-Encoding: chunked\r\n'
  // An `Upgrade` must be named by `Connection` (RFC 9110 §7.8).
  if (head.status === UPGRADE_REQUIRED) text += 'Connection: upgrade\r\n'
  return `${text}${moreLines}\r\n`
}

let renderedSecond = Number.NaN
let renderedDate = ''

/** The time of day as `Date` has it (RFC 9110 §5.6.7). Rendered once a second. */
function httpDate(): string {
  const second = Math.floor(clock.day() / 1_000)
  if (second !== renderedSecond) {
    renderedSecond = second
    renderedDate = new Date(second * 1_000).toUTCString()
  }
  return renderedDate
}

/** What the response sees of its connection. */
interface ResponseCarrier {
  readonly socket: Socket
  /** True if another request may follow. */
  readonly mayGoOn: boolean
  /** For how long the connection waits for it. */
  readonly keepAliveSeconds: number
  readonly lastWrites: LastWrites
  responseFlushed(): void
  reset(): void
}

/**
 * The last bytes of all responses that become complete in one turn of the event loop are written together: a client that sleeps
 * between two writes has to be woken for each, which costs as much as the write.
 */
export class LastWrites {
  #complete: ClientResponse[] = []

  add(response: ClientResponse): void {
    if (this.#complete.push(response) === 1) setImmediate(this.#writeAll)
  }

  readonly #writeAll = () => {
    const responses = this.#complete
    this.#complete = []
    for (const response of responses) response.writeLast()
  }
}

/**
 * | state | what may come | what follows |
 * |---|---|---|
 * | `coming` | `begin`, `write`, `end`: a response of the service | `complete` |
 * | | `endWith`: one of our own, whole; `switchProtocols` | `written` |
 * | `complete`: all of it is here, but the last of it waits for its turn | that turn; or `endWith`, if nothing was written yet | `written` |
 * | `written` | the system takes the last of it | `responseFlushed` of the connection |
 */
export class ClientResponse {
  readonly #connection: ResponseCarrier
  readonly #socket: Socket
  /** False if the connection closes behind this response. May be set before the head is written; then it is decided. */
  keepsAlive = true
  /** True once a byte of it may have reached the client. */
  hasStarted = false
  #state: 'coming' | 'complete' | 'written' = 'coming'
  /** A field line for its head. */
  timing = ''
  /** Octets of content so far. */
  contentBytes = 0
  /** Text in latin1 that is still to be written. */
  #text = ''
  readonly #isHttp10: boolean
  #isChunked = false
  /** The end of the connection is the end of the content. */
  #endsByClose = false
  /** What the socket held after the last large write. The client may have taken some of it since. */
  #heldBytes = 0

  /** `isHttp10`: the client knows no chunks. */
  constructor(connection: ResponseCarrier, isHttp10 = false) {
    this.#connection = connection
    this.#isHttp10 = isHttp10
    this.#socket = connection.socket
  }

  get date(): string {
    return httpDate()
  }

  get isComplete(): boolean {
    return this.#state !== 'coming'
  }

  get isWritten(): boolean {
    return this.#state === 'written'
  }

  /** The fields that say whether the connection is kept, and for how long. Asked when a head is written, which decides it. */
  get connectionLines(): string {
    if (!this.#connection.mayGoOn) this.keepsAlive = false
    if (!this.keepsAlive) return `${this.timing}Connection: close\r\n`
    return `${this.timing}Connection: keep-alive\r\nKeep-Alive: timeout=${this.#connection.keepAliveSeconds}\r\n`
  }

  /** Takes the head of the service. It is written together with the content that came with it. */
  begin(head: HeadToWrite & Pick<ReceivedResponse, 'hasContent' | 'contentLength'>): void {
    const isOpenEnded = head.hasContent && head.contentLength === undefined
    this.#isChunked = isOpenEnded && !this.#isHttp10
    this.#endsByClose = isOpenEnded && this.#isHttp10
    if (this.#endsByClose) this.keepsAlive = false
    this.#text = responseHeadText(head, this.#isChunked, this.connectionLines)
  }

  /** Writes a 101 to the client. What follows belongs to a tunnel. */
  switchProtocols({ status, reason, lines }: HeadToWrite): void {
    this.hasStarted = true
    this.#state = 'written'
    const text = `HTTP/1.1 ${status} ${reason}\r\n${lines}`
    this.#socket.write(`${text}${this.timing}Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n`, 'latin1')
  }

  /** Behind `pause`, no more is wanted until `responseDrained`. */
  write(bytes: Buffer, start: number, end: number): ContentUse {
    const length = end - start
    this.contentBytes += length
    const lineEnd = this.#isChunked ? '\r\n' : ''
    if (this.#isChunked) this.#text += `${length.toString(16)}\r\n`
    const socket = this.#socket
    // Nothing more is joined behind a client that reads nothing: an endless run of small pieces would fill the memory.
    if (!socket.writableNeedDrain && this.#text.length + length <= MAX_JOINED_BYTES) {
      this.#text += bytes.toString('latin1', start, end) + lineEnd
      return 'consumed'
    }
    if (socket.destroyed) {
      this.contentBytes -= length
      return 'consumed'
    }
    socket.cork()
    this.writeHeld()
    socket.write(bytes.subarray(start, end))
    this.#text = lineEnd
    this.writeHeld()
    socket.uncork()
    this.#heldBytes = socket.writableLength
    if (this.#heldBytes === 0) return 'consumed'
    return socket.writableNeedDrain ? 'pause' : 'borrowed'
  }

  /** Writes what is held back. The service has sent nothing more for now, so waiting for more would delay the client. */
  writeHeld(): void {
    const text = this.#text
    if (text === '') return
    this.#text = ''
    this.hasStarted = true
    this.#socket.write(text, 'latin1')
  }

  /** All of it is here. */
  end(): void {
    assert(this.#state === 'coming')
    this.#state = 'complete'
    this.#connection.lastWrites.add(this)
  }

  /** Until a slow client has taken everything, it can still leave, and the proxy can still break off. */
  writeLast(): void {
    if (this.#state === 'written' || this.#socket.destroyed) return
    this.#state = 'written'
    if (this.#isChunked) this.#text += '0\r\n\r\n'
    // Under TLS no write is done at once, and an empty one behind it would cost a system call of its own.
    if (!('encrypted' in this.#socket)) this.writeHeld()
    if (this.#text !== '' || this.#socket.writableLength > 0) this.endWith(this.#text)
    else this.#connection.responseFlushed()
  }

  /** Writes `last` alone. The connection goes on in a later tick: a chain of requests that are refused at once must not keep others waiting. */
  endWith(last: string): void {
    this.#text = ''
    this.hasStarted = true
    this.#state = 'written'
    this.#socket.write(last, 'latin1', (error) => {
      if (error == null) this.#connection.responseFlushed()
    })
  }

  /** Nothing more is written. What is still to be flushed counts as not sent. */
  discard(): void {
    // When a socket has been destroyed, it does not tell any more what it held.
    const held = this.#socket.destroyed ? this.#heldBytes : this.#socket.writableLength
    const unsent = this.#text.length + held
    this.contentBytes = Math.max(0, this.contentBytes - unsent)
    this.#text = ''
  }

  /** Breaks it off. A reset is needed if the end of the connection would look like the end of the content. */
  cut(): void {
    this.discard()
    if (this.#endsByClose) this.#connection.reset()
    else this.#socket.destroy()
  }
}
