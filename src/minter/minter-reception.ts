/**
 * Takes the requests of sidecars: `POST /v1/orgs/{orgId}/token`. Who sends one is found out as for any other request, and gets
 * tokens of its own Orgs only.
 */

import type { Caller, CallerRefusal } from '../callers/callers.ts'
import { causeOf, type Failure, TokenError } from '../errors.ts'
import { type AdmissionRules, admitOrg, declaresContent, type Refusal, senderOf } from '../gateway/admission.ts'
import { respondWithJson, respondWithProblem } from '../gateway/problem.ts'
import {
  type AbandonCode,
  type GatewayObserver,
  RequestRecord,
  STATUS_WITHOUT_ANSWER,
} from '../gateway/request-record.ts'
import { gatherFields } from '../http1/fields.ts'
import type { RequestHead } from '../http1/request-parser.ts'
import { pathOf } from '../http1/target.ts'
import type { BrokenInput, Client, RequestHandler, RequestInProgress } from '../listener/request-handler.ts'
import type { OrgId } from '../org-id.ts'
import { orgIn, readRequest, TOKEN_ROUTE } from './message.ts'
import type { TokenGiver } from './token-giver.ts'

export interface MinterObserver extends GatewayObserver {
  /** `outcome` is the code of a problem, or tells where the token came from. */
  tokenAsked(outcome: string): void
}

export interface MinterReceptionOptions {
  readonly allowsRemote: boolean
  readonly maxInFlight: number
  /** The longest time until all of a request is here. */
  readonly headersTimeoutMs: number
  /** A request keeps the rules that it began with. */
  readonly rules: () => AdmissionRules
  readonly newRequestId: () => string
  readonly giver: TokenGiver
  readonly observer: MinterObserver
}

/** The part of the requests in flight that one caller may have, so that it cannot keep the others out. */
const CALLER_SHARE = 1 / 4
const MAX_CONTENT_BYTES = 1024

const WRONG_TARGET = `A minter answers ${TOKEN_ROUTE}, and nothing else.`
const WRONG_CONTENT = `The content may be {"rejected":"ID"}, and no more than ${MAX_CONTENT_BYTES} bytes.`
const NO_ROUTES = 'A token knows no routes, so a caller with routes gets none.'

export class MinterReception implements RequestHandler {
  readonly options: MinterReceptionOptions
  requestsInFlight = 0
  #isDraining = false

  constructor(options: MinterReceptionOptions) {
    this.options = options
  }

  receive(head: RequestHead, client: Client): RequestInProgress {
    const request = new TokenRequest(this, client, head)
    if (client.isLocal || this.options.allowsRemote) request.admit(head, this.options.rules())
    else request.fail({ code: 'remote_refused' })
    return request
  }

  refuse(input: BrokenInput, client: Client): RequestInProgress {
    const request = new TokenRequest(this, client, input)
    request.fail(input)
    return request
  }

  drain(): void {
    this.#isDraining = true
  }

  lackOfRoom(caller: Caller): Failure | undefined {
    const { maxInFlight } = this.options
    if (this.#isDraining) return { code: 'draining' }
    if (this.requestsInFlight > maxInFlight) return { code: 'overloaded', limit: 'listen.maxInFlight' }
    if (!caller.hasRoom) return { code: 'overloaded', limit: 'callers[].maxInFlight' }
    const isAtShare = caller.usage.inFlight >= Math.max(1, maxInFlight * CALLER_SHARE)
    return isAtShare ? { code: 'overloaded', limit: 'caller share' } : undefined
  }
}

interface Admitted {
  readonly org: OrgId
  readonly caller: Caller
}

/** Pure. `verified`: who sent its JWT, or why that names no caller. */
function admitTokenRequest(
  head: RequestHead,
  rules: AdmissionRules,
  client: Client,
  verified?: Caller | CallerRefusal,
) {
  const found = gatherFields(head.rawFields)
  const caller = senderOf(head, found, rules, client, verified)
  if (caller === undefined) return { verdict: 'refused', code: 'caller_refused' } as const
  if ('verdict' in caller) return caller
  const orgId = head.method === 'POST' ? orgIn(head.target) : undefined
  if (orgId === undefined) return { verdict: 'refused', code: 'target_invalid', hint: WRONG_TARGET, caller } as const
  if (caller.hasRoutes) return { verdict: 'refused', code: 'route_refused', hint: NO_ROUTES, caller } as const
  const org = admitOrg({ orgId }, rules, caller)
  if (typeof org === 'object') return { ...org, caller }
  if (found.imitation !== undefined || found.isInvalid)
    return { verdict: 'refused', code: 'field_invalid', caller } as const
  return { verdict: 'admitted', org, caller, expectsContinue: found.expectation !== undefined } as const
}

class TokenRequest implements RequestInProgress {
  /** Until all of it is here, it gives up its place first: nobody holds a place by half a request. */
  awaitsProof = true
  readonly mayBecomeTunnel = false
  readonly #reception: MinterReception
  readonly #client: Client
  readonly #response: Client['response']
  readonly #record: RequestRecord
  #content: Buffer = Buffer.alloc(0)
  #isComplete = false
  #admitted: Admitted | undefined
  #isOver = false
  #timer: NodeJS.Timeout | undefined

  constructor(reception: MinterReception, client: Client, { method = '', target = '' }: BrokenInput | RequestHead) {
    const path = target.startsWith('/') ? pathOf(target) : ''
    this.#reception = reception
    this.#client = client
    this.#response = client.response
    this.#record = new RequestRecord(reception.options.newRequestId(), undefined, method, path, performance.now())
    reception.requestsInFlight++
  }

  admit(head: RequestHead, rules: AdmissionRules, verified?: Caller | CallerRefusal): void {
    const admission = admitTokenRequest(head, rules, this.#client, verified)
    if (admission.verdict === 'unverified') void this.#verify(head, rules, admission.token)
    else if (admission.verdict === 'refused') this.fail(admission)
    else {
      const { org, caller, expectsContinue } = admission
      const lack = this.#reception.lackOfRoom(caller)
      if (lack !== undefined) {
        this.fail({ ...lack, orgId: org, caller })
        return
      }
      this.#admitted = { org, caller }
      caller.usage.inFlight++
      this.#client.wasAdmitted = true
      this.#client.caller = caller
      this.#record.isAdmitted = true
      if (this.#isComplete || !declaresContent(head)) this.contentEnded()
      else this.#waitForContent(expectsContinue)
    }
  }

  #waitForContent(expectsContinue: boolean): void {
    const { headersTimeoutMs } = this.#reception.options
    this.#timer = setTimeout(() => this.fail({ code: 'request_timeout' }), headersTimeoutMs).unref()
    if (expectsContinue) this.#client.sendContinue()
  }

  async #verify(head: RequestHead, rules: AdmissionRules, token: string): Promise<void> {
    const verified = await rules.callers?.verify(token).catch(() => 'malformed token' as const)
    if (this.#isOver) return
    this.admit(head, rules, verified)
    // A reload may have come in between.
    const { caller } = this.#client
    if (caller !== undefined && this.#reception.options.rules().callers?.stillKnow(caller) !== true)
      this.#client.finish()
  }

  async #serve(): Promise<void> {
    const { giver, observer } = this.#reception.options
    if (this.#admitted === undefined || this.#isOver) return
    this.awaitsProof = false
    const { org, caller } = this.#admitted
    const { requestId } = this.#record
    let rejected: string | undefined
    try {
      rejected = readRequest(this.#content)
    } catch {
      return this.fail({ code: 'request_invalid', hint: WRONG_CONTENT })
    }
    try {
      const { given, outcome } = await giver.give(org, caller, requestId, rejected)
      if (this.#isOver) return
      this.#record.token = outcome === 'minted' ? 'miss' : 'hit'
      this.#record.status = respondWithJson(this.#response, requestId, given)
      this.#end(outcome)
    } catch (error) {
      if (error instanceof TokenError) return this.fail(error)
      observer.programFailed(error, requestId)
      this.fail({ code: 'proxy_internal_error' })
    }
  }

  fail(failure: Failure & Pick<Refusal, 'orgId' | 'caller'>): void {
    if (this.#isOver) return
    const { certificateProblem } = this.#client
    // On its next connection, the client may have a better certificate, or the minter the CA.
    if (certificateProblem !== undefined) this.#response.keepsAlive = false
    const record = this.#record
    const { code, caller, limit } = failure
    const reason = limit ?? failure.reason
    record.code = code
    record.caller = caller?.name
    record.reason = reason === 'no credential' ? (certificateProblem ?? reason) : reason
    record.detail = causeOf(failure)
    record.status = respondWithProblem(this.#response, record, failure)
    this.#end(code)
  }

  #end(outcome: string): void {
    const { options } = this.#reception
    const record = this.#record
    this.#isOver = true
    this.awaitsProof = false
    clearTimeout(this.#timer)
    this.#reception.requestsInFlight--
    if (this.#admitted !== undefined) {
      this.#admitted.caller.usage.inFlight--
      record.caller = this.#admitted.caller.name
    }
    record.endedAt = performance.now()
    record.bytesIn = this.#content.length
    record.bytesOut = this.#response.contentBytes
    options.observer.requestEnded(record)
    options.observer.tokenAsked(outcome)
  }

  // ---- what the client's connection tells

  get awaitsClient(): boolean {
    return !this.#isOver && !this.#isComplete
  }

  content(bytes: Buffer, start: number, end: number): void {
    if (this.#isOver) return
    this.#content = Buffer.concat([this.#content, bytes.subarray(start, end)])
    if (this.#content.length > MAX_CONTENT_BYTES) this.fail({ code: 'request_invalid', hint: WRONG_CONTENT })
  }

  contentEnded(): void {
    this.#isComplete = true
    clearTimeout(this.#timer)
    void this.#serve()
  }

  clientFailed(input: BrokenInput): void {
    this.fail(input)
  }

  abandoned(code: AbandonCode): void {
    if (this.#isOver) return
    this.#record.code = code
    this.#record.status = STATUS_WITHOUT_ANSWER[code]
    this.#end(code)
  }

  responseDrained(): void {}

  responseFlushed(): void {}
}
