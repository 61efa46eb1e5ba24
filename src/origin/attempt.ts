/** One request on its way to the service, on one connection. */

import assert from 'node:assert/strict'
import type { Socket } from 'node:net'
import type { ContentUse } from '../http1/message-parser.ts'
import type { ReceivedResponse } from '../http1/response-parser.ts'

/** Receives the events of an attempt. */
export interface AttemptSink {
  /** It waits for a connection. */
  queued?(): void
  /**
   * A connection has the attempt: from now on its wait counts as the service's. Told again when a token has come that it awaited
   * there, and when it goes to another connection, unsent.
   */
  carried?(attempt: Attempt): void
  /**
   * The attempt has a connection. Returns the lines of the fields with secrets; undefined if they are among the fields. The
   * request is written next, or when the promise has resolved: the attempt keeps its connection until then.
   */
  authorize?(): string | undefined | Promise<string>
  /** The head of the request was written. */
  sent?(): void
  /** The head of the final response, or of a 101, has arrived. Content may follow at once, unless it calls `holdResponse`. */
  responseHead(head: ReceivedResponse): void
  /** Content has arrived: octets `start` to `end` of `bytes`. Behind `pause`, no more comes until `resume`. */
  responseContent(bytes: Buffer, start: number, end: number): ContentUse
  /** All that has arrived so far was reported. Anything held back should be sent now. */
  responsePaused?(): void
  responseEnd(): void
  /** Any other error than an `OriginError` is a fault of this program. */
  attemptFailed(attempt: Attempt, error: Error): void
}

export interface ContentWriter {
  /** Returns false if no more is wanted until `resume` of the source. `isOwned`: nobody else will read `chunk`. */
  write(chunk: Buffer, isOwned: boolean): boolean
  end(): void
}

/** Content that is not in memory as a whole. */
export interface ContentSource {
  streamTo(writer: ContentWriter): void
  resume(): void
  /** The writer takes no more content. */
  detach(): void
}

export interface OriginRequest {
  readonly method: string
  /** Origin-form. */
  readonly target: string
  /** A flat list of names and values, without framing fields and connection options. */
  fields: readonly string[]
  /** Declared length of the content in octets; undefined if the length is not known. */
  readonly contentLength?: number | undefined
  /** Of a WebSocket. */
  readonly isHandshake?: boolean
  /** One org holds no more than its share of the connections. Empty for a request of the bare App; undefined for a mint. */
  readonly org?: string | undefined
  /** No connection that has carried an exchange before may be used. */
  readonly needsNewConnection?: boolean
}

/** Holds an attempt: the queue of a full pool, or a connection. */
export interface AttemptHolder {
  abort(attempt: Attempt, reason: Error): void
}

/** What an attempt asks of its connection. */
export interface AttemptConnection extends AttemptHolder {
  resume(): void
  holdResponse(): void
  releaseResponse(): void
  discardResponse(): void
  switchProtocols(): SwitchedConnection
}

/** The socket of another protocol, the TCP socket beneath it, and the bytes that have come from it already. */
export interface SwitchedConnection {
  readonly socket: Socket
  readonly carrier: Socket
  readonly firstBytes: Buffer
}

export class Attempt {
  readonly request: OriginRequest
  readonly sink: AttemptSink
  /** Undefined if there is none, and once content in memory has been written: the response may go on for hours. */
  content: Buffer | ContentSource | undefined
  /** Undefined before the attempt is dispatched and after it has ended. */
  holder: AttemptHolder | AttemptConnection | undefined
  /** When its wait began, put back by the time that it had waited before: running time. */
  queuedAt = 0
  /** So long it has waited for connections before. */
  queuedMs = 0
  /** True once the request is being written, so that bytes may have been sent. */
  isSent = false
  /** True if the connection has been idle before: behind another exchange, or while a token was awaited. */
  isReused = false
  /** True once a byte of the response has arrived. */
  hasResponse = false

  constructor(request: OriginRequest, content: Attempt['content'], sink: AttemptSink) {
    this.request = request
    this.content = content
    this.sink = sink
  }

  /** Ends the attempt. `attemptFailed` is its last event. */
  abort(reason: Error): void {
    this.holder?.abort(this, reason)
  }

  /** More content is wanted, if the response has not ended meanwhile. */
  resume(): void {
    if (this.holder !== undefined && 'resume' in this.holder) this.holder.resume()
  }

  /** To be called from `responseHead`: nothing behind the head is told until one of the next three is called. */
  holdResponse(): void {
    this.#connection.holdResponse()
  }

  releaseResponse(): void {
    this.#connection.releaseResponse()
  }

  /** To be called once the head has arrived: nobody wants the content. No more events follow. */
  discardResponse(): void {
    this.#connection.discardResponse()
  }

  /** The response is a 101 to a WebSocket handshake. The socket leaves its connection, and no more events follow. */
  switchProtocols(): SwitchedConnection {
    return this.#connection.switchProtocols()
  }

  get #connection(): AttemptConnection {
    assert(this.holder !== undefined && 'holdResponse' in this.holder)
    return this.holder
  }
}
