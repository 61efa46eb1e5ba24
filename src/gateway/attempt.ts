/**
 * One dispatch to the origin. All that is particular to the handler names of undici 7 stands here: version 8 has others,
 * and moving to it changes this file alone.
 */

import type { Dispatcher } from 'undici'
import { OriginError } from '../errors.ts'
import type { ResponsePosition } from './interim-filter.ts'

/** What an attempt tells the exchange that started it. */
export interface AttemptSink {
  /** A connection has been given to it, and the request is about to be written. */
  connected(): void
  /** Final response head. `false` holds the content back until `resume`. */
  responseHead(status: number, rawFields: readonly Buffer[], reason: string): boolean
  /** `false` holds further content back until `resume`. */
  responseContent(chunk: Buffer): boolean
  responseEnd(): void
  /** A part of the request content was handed to the socket. */
  contentSent(): void
  attemptFailed(attempt: Attempt, error: Error): void
}

/** The connection that carried an attempt, as far as a repeat depends on it. */
export interface ConnectionUse extends ResponsePosition {
  /** Exchanges begun on the present connection. */
  exchanges: number
  /** True once the origin has reset it. */
  wasReset: boolean
}

export class Attempt implements Dispatcher.DispatchHandler {
  readonly #sink: AttemptSink
  #abort: ((error?: Error) => void) | undefined
  #resume: (() => void) | undefined
  #abortReason: Error | undefined
  /** Set by the client that takes the attempt up. */
  use: ConnectionUse | undefined
  /** True once a connection has been given to it, so that bytes may have been sent. */
  isConnected = false
  /** True where the connection had carried an exchange before. */
  isReused = false
  /** True once a byte of a response has come. */
  hasResponse = false
  /** True where undici refused the request before it took a place in a queue. */
  isRefused = false

  constructor(sink: AttemptSink) {
    this.#sink = sink
  }

  /** Ends it now, or as soon as it leaves the queue of a full pool. */
  abort(reason: Error): void {
    this.#abortReason = reason
    this.#abort?.(reason)
  }

  resume(): void {
    this.#resume?.()
  }

  onConnect(abort: (error?: Error) => void): void {
    if (this.#abortReason !== undefined) {
      abort(this.#abortReason)
      return
    }
    this.#abort = abort
    this.isConnected = true
    this.#sink.connected()
    if (this.use === undefined) return
    this.isReused = this.use.exchanges++ > 0
    this.use.awaitsHead = true
  }

  onResponseStarted(): void {
    this.hasResponse = true
  }

  onHeaders(status: number, rawFields: Buffer[], resume: () => void, reason: string): boolean {
    if (status < 100 || status === 101) {
      // Nobody asked for other protocols here; undici trips over a 101 that lacks `Connection: upgrade`.
      this.abort(new OriginError('http_protocol_error', 'a status that no request of ours can have'))
      return true
    }
    if (status < 200) return true // interim responses are dropped
    this.#resume = resume
    return this.#sink.responseHead(status, rawFields, reason)
  }

  onData(chunk: Buffer): boolean {
    return this.#sink.responseContent(chunk)
  }

  onComplete(): void {
    this.#abort = undefined
    // undici takes a reset for the end of content that ends with its connection; it may as well have been cut.
    if (this.use?.wasReset === true) {
      this.#sink.attemptFailed(this, new OriginError('http_response_incomplete', 'reset by the origin'))
    } else this.#sink.responseEnd()
  }

  onBodySent(): void {
    this.#sink.contentSent()
  }

  onError(error: Error): void {
    this.#abort = undefined
    this.isRefused = !this.isConnected && isArgumentError(error)
    this.#sink.attemptFailed(this, error)
  }
}

function isArgumentError(error: Error): boolean {
  return 'code' in error && (error.code === 'UND_ERR_INVALID_ARG' || error.code === 'UND_ERR_NOT_SUPPORTED')
}
