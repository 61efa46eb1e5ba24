/** Sends one request and reads its answer into memory, within one time limit. The token endpoint is called this way. */

import { OriginError } from '../errors.ts'
import type { ResponseHead } from '../http/response-head.ts'
import { Attempt, type AttemptSink, type ContentFate, type OriginRequest } from './attempt.ts'
import type { Origin } from './origin.ts'

export interface Answer {
  readonly status: number
  /** Names and values in turn. */
  readonly fields: readonly string[]
  /** Of a success only. Any other answer says enough by its status, and its content may be huge, cut, or never come. */
  readonly content: Buffer
}

const MAX_CONTENT_BYTES = 64 * 1024
/** If the content of an answer without success is read within this time, its connection can be used again. */
const READ_AWAY_MS = 1_000

/** Sends a request without content, once. `signal` breaks it off. Rejects with an `OriginError`, or with another error if the fault is ours. */
export function call(
  origin: Origin,
  request: Pick<OriginRequest, 'method' | 'target' | 'fields'>,
  timeoutMs: number,
  signal?: AbortSignal,
): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const { attempt } = new Call({ ...request }, timeoutMs, resolve, reject)
    signal?.addEventListener('abort', () => attempt.abort(new OriginError('http_response_timeout', 'given up')))
    origin.dispatch(attempt)
  })
}

class Call implements AttemptSink {
  readonly attempt: Attempt
  readonly #resolve: (answer: Answer) => void
  readonly #reject: (error: unknown) => void
  #timer: NodeJS.Timeout
  #head: ResponseHead | undefined
  #isSuccess = false
  readonly #chunks: Buffer[] = []
  #bytes = 0

  constructor(
    request: OriginRequest,
    timeoutMs: number,
    resolve: (answer: Answer) => void,
    reject: (error: unknown) => void,
  ) {
    this.attempt = new Attempt(request, this)
    this.#resolve = resolve
    this.#reject = reject
    this.#timer = this.#abortAfter(timeoutMs)
  }

  connected(): void {}

  responseHead(head: ResponseHead): void {
    this.#head = head
    this.#isSuccess = head.status >= 200 && head.status <= 299
    if (this.#isSuccess) return
    this.#settle(head)
    clearTimeout(this.#timer)
    this.#timer = this.#abortAfter(READ_AWAY_MS)
  }

  responseContent(bytes: Buffer, start: number, end: number): ContentFate {
    this.#bytes += end - start
    if (this.#bytes > MAX_CONTENT_BYTES)
      this.attempt.abort(new OriginError('http_protocol_error', 'the answer is too large'))
    else if (this.#isSuccess) this.#chunks.push(Buffer.from(bytes.subarray(start, end)))
    return 'taken'
  }

  responsePaused(): void {}

  responseEnd(): void {
    clearTimeout(this.#timer)
    if (this.#head !== undefined) this.#settle(this.#head)
  }

  attemptFailed(_: Attempt, error: Error): void {
    clearTimeout(this.#timer)
    const isCut = this.#head !== undefined && error instanceof OriginError && error.code === 'connection_terminated'
    this.#reject(isCut ? new OriginError('http_response_incomplete', 'the answer was cut off') : error)
  }

  #settle({ status, fields }: ResponseHead): void {
    this.#resolve({ status, fields, content: Buffer.concat(this.#chunks) })
  }

  #abortAfter(delayMs: number): NodeJS.Timeout {
    const expire = () => this.attempt.abort(new OriginError('http_response_timeout', 'no answer in time'))
    // After a stall of this process the answer may be there already: it is read before the immediate runs.
    return setTimeout(() => setImmediate(expire), Math.max(delayMs, 0))
  }
}
