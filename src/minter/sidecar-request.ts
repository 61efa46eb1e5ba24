/** One request of a sidecar, `POST /v1/orgs/{orgId}/token`, and its answer. */

import * as clock from '../clock.ts'
import { type Failure, TokenError } from '../errors.ts'
import { refuseWith, respondWithJson } from '../gateway/own-responses.ts'
import { type AbandonCode, type GatewayObserver, RequestRecord } from '../gateway/request-record.ts'
import type { BrokenInput, Client, RequestInProgress } from '../listener/request-handler.ts'
import { type AdmittedSidecarRequest, tokenTarget } from './admission.ts'
import { readRequest } from './message.ts'
import type { TokenGiver } from './token-giver.ts'

const MAX_CONTENT_BYTES = 1024
const WRONG_CONTENT: Failure = { code: 'request_invalid', hint: 'The content may be {"rejected":"ID"}, and no more.' }

export interface TokenDesk {
  /** The longest time until all of a request is here. */
  readonly headersTimeoutMs: number
  readonly newRequestId: () => string
  readonly giver: TokenGiver
  /** `tokenAsked` gets the code of a problem, or where the token came from. */
  readonly observer: GatewayObserver & { tokenAsked(outcome: string): void }
}

export class SidecarRequest implements RequestInProgress {
  readonly mayBecomeTunnel = false
  readonly #desk: TokenDesk
  readonly #client: Client
  readonly #response: Client['response']
  readonly #admitted: AdmittedSidecarRequest
  readonly #onEnd: (admitted: AdmittedSidecarRequest) => void
  readonly #record: RequestRecord
  #content: Buffer = Buffer.alloc(0)
  /** Until all of it is here: nobody holds a place by half a request. */
  awaitsProof: boolean
  isOver = false
  #timer: clock.Timer | undefined

  /** `startedAt`, in monotonic milliseconds: its head had arrived. */
  constructor(
    desk: TokenDesk,
    client: Client,
    admitted: AdmittedSidecarRequest,
    startedAt: number,
    onEnd: (admitted: AdmittedSidecarRequest) => void,
  ) {
    const { orgId, caller, hasContent } = admitted
    this.#desk = desk
    this.#client = client
    this.#response = client.response
    this.#admitted = admitted
    this.#onEnd = onEnd
    this.awaitsProof = hasContent
    this.#record = new RequestRecord(desk.newRequestId(), orgId, 'POST', tokenTarget(orgId), startedAt)
    this.#record.isAdmitted = true
    this.#record.caller = caller.name
  }

  start(): void {
    if (this.isOver) return
    if (this.awaitsProof) {
      this.#timer = clock.after(this.#desk.headersTimeoutMs, () => this.#fail({ code: 'request_timeout' }))
      if (this.#admitted.expectsContinue) this.#client.sendContinue()
    } else void this.#serve(this.#admitted)
  }

  async #serve({ orgId, caller }: AdmittedSidecarRequest): Promise<void> {
    const { giver, observer } = this.#desk
    const { requestId } = this.#record
    try {
      const sidecar = { requester: caller.usage, requestId, hasLeft: () => this.isOver }
      const { given, outcome, result, retryAfterSeconds } = await giver.give(orgId, sidecar, readRequest(this.#content))
      if (this.isOver) return
      this.#record.token = result
      this.#record.status = respondWithJson(this.#response, requestId, given, retryAfterSeconds)
      this.isOver = true
      this.#end(outcome)
    } catch (error) {
      if (error instanceof TokenError) this.#fail(error)
      else if (error instanceof SyntaxError) this.#fail(WRONG_CONTENT)
      else {
        observer.programFailed(error, requestId)
        this.#fail({ code: 'proxy_internal_error' })
      }
    }
  }

  #fail(failure: Failure): void {
    if (this.isOver) return
    this.isOver = true
    // On its next connection, the client may have a better certificate, or the minter the CA.
    if (this.#client.certificateProblem !== undefined) this.#response.keepsAlive = false
    this.#record.failed(failure)
    refuseWith(failure, this.#record, this.#client, this.#desk.observer)
    this.#end(failure.code)
  }

  #end(outcome: string): void {
    this.#timer?.cancel()
    this.#record.ended(this.#desk.observer, this.#content.length, this.#response.contentBytes)
    this.#desk.observer.tokenAsked(outcome)
    this.#onEnd(this.#admitted)
  }

  // ---- what the client's connection tells

  get awaitsClient(): boolean {
    return !this.isOver && this.awaitsProof
  }

  content(bytes: Buffer): void {
    if (this.isOver) return
    this.#content = Buffer.concat([this.#content, bytes])
    if (this.#content.length > MAX_CONTENT_BYTES) this.#fail(WRONG_CONTENT)
  }

  contentEnded(): void {
    if (this.isOver) return
    this.awaitsProof = false
    if (this.#timer === undefined) return // `start` is still to come
    this.#timer.cancel()
    void this.#serve(this.#admitted)
  }

  clientFailed(input: BrokenInput): void {
    this.#fail(input)
  }

  abandoned(code: AbandonCode): void {
    if (this.isOver) return
    this.isOver = true
    this.#record.abandoned(code)
    this.#end(code)
  }

  responseDrained(): void {}
  responseFlushed(): void {}
}
