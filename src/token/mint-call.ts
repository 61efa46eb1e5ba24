/**
 * One exchange with the token endpoint: one dispatch, one deadline for all of it, a bounded reply. It is one object without
 * streams and signals, because thousands of orgs may need their tokens at once.
 */

import type { Dispatcher } from 'undici'
import { TokenError } from '../errors.ts'
import type { MintReply } from './token-reply.ts'

const MAX_REPLY_BYTES = 64 * 1024
/** If the content of a refusal is read within this time, its connection can be used again. */
const READ_AWAY_MS = 1_000

/**
 * Write it as one object literal. When `body` was added to a copy of the rest, V8 made a hidden class for each mint, and
 * undici's lookups were slow.
 */
export type MintRequest = Pick<Dispatcher.DispatchOptions, 'origin' | 'path' | 'method' | 'headers' | 'body'>

/** Rejects with a `TokenError` of its own, or with an error of undici. */
export function callTokenEndpoint(pool: Dispatcher, request: MintRequest, timeoutMs: number): Promise<MintReply> {
  return new Promise((resolve, reject) => {
    pool.dispatch(request, new MintCall(resolve, reject, timeoutMs))
  })
}

class MintCall implements Dispatcher.DispatchHandler {
  readonly #resolve: (reply: MintReply) => void
  readonly #reject: (error: Error) => void
  #timer: NodeJS.Timeout
  #abort: ((error?: Error) => void) | undefined
  #abortReason: Error | undefined
  #status = 0
  #rawFields: readonly Buffer[] = []
  readonly #chunks: Buffer[] = []
  #bytes = 0

  constructor(resolve: (reply: MintReply) => void, reject: (error: Error) => void, timeoutMs: number) {
    this.#resolve = resolve
    this.#reject = reject
    this.#timer = this.#abortAfter(timeoutMs)
  }

  onConnect(abort: (error?: Error) => void): void {
    this.#abort = abort
    if (this.#abortReason !== undefined) abort(this.#abortReason)
  }

  onHeaders(status: number, rawFields: Buffer[]): boolean {
    if (status === 101) this.#breakOff(new TokenError('token_response_invalid', 'it changed the protocol'))
    if (status < 200) return true
    this.#status = status
    this.#rawFields = rawFields
    if (!this.#isSuccess) {
      this.#settle()
      clearTimeout(this.#timer)
      this.#timer = this.#abortAfter(READ_AWAY_MS)
    }
    return true
  }

  onData(chunk: Buffer): boolean {
    this.#bytes += chunk.length
    if (this.#bytes > MAX_REPLY_BYTES) {
      this.#breakOff(new TokenError('token_response_invalid', 'the reply is too large'))
    } else if (this.#isSuccess) this.#chunks.push(chunk)
    return true
  }

  onComplete(): void {
    clearTimeout(this.#timer)
    this.#settle()
  }

  onError(error: Error): void {
    clearTimeout(this.#timer)
    this.#reject(
      this.#isSuccess ? new TokenError('token_response_invalid', 'the reply was cut off', { cause: error }) : error,
    )
  }

  get #isSuccess(): boolean {
    return this.#status >= 200 && this.#status <= 299
  }

  #settle(): void {
    this.#resolve({ status: this.#status, rawFields: this.#rawFields, content: Buffer.concat(this.#chunks) })
  }

  #abortAfter(delayMs: number): NodeJS.Timeout {
    const expire = () => this.#breakOff(new TokenError('token_endpoint_timeout', 'no answer in time'))
    return setTimeout(expire, Math.max(delayMs, 0))
  }

  /** Rejects at once. The exchange ends now, or as soon as it leaves the queue of a full pool. */
  #breakOff(reason: TokenError): void {
    clearTimeout(this.#timer)
    this.#abortReason = reason
    this.#reject(reason)
    this.#abort?.(reason)
  }
}
