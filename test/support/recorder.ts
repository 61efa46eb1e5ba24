/** Sends requests directly over connections to the origin, and records the events of each. */

import type { ContentUse } from '../../src/http1/message-parser.ts'
import type { ReceivedResponse } from '../../src/http1/response-parser.ts'
import { Attempt, type AttemptSink, type OriginRequest } from '../../src/origin/attempt.ts'
import { Changes } from './changes.ts'

export type Told = 'connected' | 'head' | 'end' | 'failed'

/** What differs from a GET of `/`. */
export type Sent = Partial<OriginRequest> & { readonly content?: Attempt['content'] }

/** One attempt, and its events in order, except content and pauses. */
export class Recorder implements AttemptSink {
  readonly attempt: Attempt
  readonly told: Told[] = []
  head: ReceivedResponse | undefined
  error: Error | undefined
  /** The return value for content. */
  use: ContentUse = 'consumed'
  /** It has to wait for it when it has a connection. */
  token: Promise<string> | undefined
  /** Called with each event at once. */
  onTold: (what: Told) => void = () => {}
  readonly #pieces: Buffer[] = []
  readonly #changes = new Changes()

  constructor({ content, ...request }: Sent = {}) {
    const whole = { method: 'GET', target: '/', fields: ['host', 'origin.example'], ...request }
    this.attempt = new Attempt(whole, content, this)
  }

  get content(): Buffer {
    return Buffer.concat(this.#pieces)
  }

  get isOver(): boolean {
    return this.told.includes('end') || this.told.includes('failed')
  }

  /** Resolves when the condition holds. It is checked after each event. */
  waitFor(condition: (recorder: this) => boolean, what: string, deadlineMs?: number): Promise<void> {
    return this.#changes.until(() => condition(this), what, deadlineMs)
  }

  /** Resolves when the attempt has succeeded. Rejects with its error. */
  async ended(): Promise<this> {
    await this.waitFor(({ isOver }) => isOver, 'the end of an attempt')
    if (this.error !== undefined) throw this.error
    return this
  }

  /** Resolves with the error of the attempt. */
  async failed(): Promise<Error> {
    await this.waitFor(({ isOver }) => isOver, 'the failure of an attempt')
    if (this.error === undefined) throw new Error('it has ended well')
    return this.error
  }

  authorize(): Promise<string> | undefined {
    this.#tell('connected')
    return this.token
  }

  responseHead(head: ReceivedResponse): void {
    this.head = head
    this.#tell('head')
  }

  responseContent(bytes: Buffer, start: number, end: number): ContentUse {
    this.#pieces.push(Buffer.from(bytes.subarray(start, end)))
    this.#changes.notify()
    return this.use
  }

  responsePaused(): void {}

  responseEnd(): void {
    this.#tell('end')
  }

  attemptFailed(_: Attempt, error: Error): void {
    this.error = error
    this.#tell('failed')
  }

  #tell(what: Told): void {
    this.told.push(what)
    this.onTold(what)
    this.#changes.notify()
  }
}
