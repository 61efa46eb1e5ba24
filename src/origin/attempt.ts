/** One request on its way to the origin, on one connection. */

import type { Socket } from 'node:net'
import type { Limit } from '../errors.ts'
import type { ResponseHead } from '../http/response-head.ts'
import type { RequestContent } from './request-writer.ts'

/**
 * The receiver's use of the bytes of content. `consumed`: it is done with them, and they may be overwritten. `borrowed`: it still
 * reads them. `pause`: it still reads them, and wants no more until it calls `resume`.
 */
export type ContentUse = 'consumed' | 'borrowed' | 'pause'

/** Receives the events of an attempt. The exchange that started it implements this. */
export interface AttemptSink {
  /** The attempt has a connection. Its request is written next. */
  connected?(): void
  /** The final response head has arrived. */
  responseHead(head: ResponseHead): void
  /** The response is a 101 to a WebSocket handshake: `socket` is the other's, `firstBytes` came behind the head. No more events follow. */
  protocolSwitched?(head: ResponseHead, socket: Socket, firstBytes: Buffer): void
  /** Content has arrived: octets `start` to `end` of `bytes`. */
  responseContent(bytes: Buffer, start: number, end: number): ContentUse
  /** All that has arrived so far was reported. Anything held back should be sent now. */
  responsePaused?(): void
  responseEnd(): void
  /** Any other error than an `OriginError` is a fault of this program. */
  attemptFailed(attempt: Attempt, error: Error): void
}

export type ContentWriter = Pick<RequestContent, 'write' | 'end'>

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
  readonly fields: readonly string[]
  /** The credential, if it is not among the fields. */
  readonly authorization?: string | undefined
  /** Undefined if there is none, and once content in memory has been written. */
  content?: Buffer | ContentSource | undefined
  /** Declared length in octets; undefined if the length is not known. */
  readonly contentLength?: number | undefined
  readonly isHandshake?: boolean
  /** One org holds no more than its share of the connections. Empty for a request of the bare App; undefined for a mint. */
  readonly org?: string | undefined
  /** No connection that has carried an exchange before may be used. */
  readonly needsNewConnection?: boolean
}

/** Holds an attempt: the queue of a full pool, or a connection. */
export interface AttemptPlace {
  abort(attempt: Attempt, reason: Error): void
  resume?(): void
}

export class Attempt {
  readonly request: OriginRequest
  sink: AttemptSink
  /** Undefined before the attempt is dispatched and after it has ended. */
  place: AttemptPlace | undefined
  /** The limit that the attempt met when it had to wait for a connection. */
  queuedFor: Limit | undefined
  /** True once the request is being written, so that bytes may have been sent. */
  isSent = false
  /** True if the connection has carried an exchange before. */
  isReused = false
  /** True once a byte of the response has arrived. */
  hasResponse = false

  constructor(request: OriginRequest, sink: AttemptSink) {
    this.request = request
    this.sink = sink
  }

  /** Ends the attempt. `attemptFailed` is its last event. */
  abort(reason: Error): void {
    this.place?.abort(this, reason)
  }

  resume(): void {
    this.place?.resume?.()
  }
}
