/** One request on its way to the origin, on one connection. */

import type { ResponseHead } from '../http/response-head.ts'

/**
 * What became of bytes of content. `taken`: they may be overwritten. `kept`: they are still to be sent on. `full`: the
 * same, and no more is wanted until `resume`.
 */
export type ContentFate = 'taken' | 'kept' | 'full'

/** What an attempt tells the exchange that started it. */
export interface AttemptSink {
  /** A connection has been given to it, and the request is about to be written. */
  connected(): void
  /** A part of the request content was handed to the socket. */
  contentSent(): void
  /** The final response head. */
  responseHead(head: ResponseHead): void
  /** Octets `start` to `end` of `bytes`. */
  responseContent(bytes: Buffer, start: number, end: number): ContentFate
  /** All that had come has been told: what is held back for more goes out now. */
  responsePaused(): void
  responseEnd(): void
  attemptFailed(attempt: Attempt, error: Error): void
}

/** Takes content as it comes. */
export interface ContentWriter {
  /**
   * `isOwned`: nobody else will look at `chunk` again, its memory may be given back. False: no more is wanted until
   * `resume` of the source.
   */
  write(chunk: Buffer, isOwned: boolean): boolean
  end(): void
}

/** Content that does not lie whole in memory. */
export interface ContentSource {
  streamTo(writer: ContentWriter): void
  resume(): void
  /** The writer takes no more. */
  detach(): void
}

export interface OriginRequest {
  readonly method: string
  /** Origin-form. */
  readonly target: string
  /** Flat list; neither framing nor connection options are in it. */
  readonly fields: readonly string[]
  readonly content: Buffer | ContentSource | undefined
  /** Declared octets of content; undefined where they are not known. */
  readonly contentLength: number | undefined
}

/** Where an attempt stands: in the queue of a full pool, or on a connection. */
export interface AttemptPlace {
  abort(attempt: Attempt, reason: Error): void
  resume(): void
}

export class Attempt {
  readonly request: OriginRequest
  readonly sink: AttemptSink
  /** Undefined before and after. */
  place: AttemptPlace | undefined
  /** True once a connection has been given to it, so that bytes may have been sent. */
  isConnected = false
  /** True where the connection had carried an exchange before. */
  isReused = false
  /** True once a byte of a response has come. */
  hasResponse = false

  constructor(request: OriginRequest, sink: AttemptSink) {
    this.request = request
    this.sink = sink
  }

  /** Ends it; nothing more is told, but its failure. */
  abort(reason: Error): void {
    this.place?.abort(this, reason)
  }

  resume(): void {
    this.place?.resume()
  }
}
