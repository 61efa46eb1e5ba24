/** Takes the requests of the listener: admits or refuses each by the rules of the moment, and counts those in flight. */

import assert from 'node:assert/strict'
import type { Caller, CallerRefusal } from '../callers/callers.ts'
import type { Failure } from '../errors.ts'
import type { RequestHead } from '../http1/request-parser.ts'
import type { BrokenInput, Client, RequestHandler, RequestInProgress } from '../listener/request-handler.ts'
import type { Admission, AdmissionRules, Admitted, Refusal } from './admission.ts'
import type { KnownHead } from './exchange.ts'

/** What is known of a request that may be carried out. */
interface Admissible extends Pick<Admitted, 'verdict' | 'orgId' | 'caller'>, Partial<Pick<Admitted, 'dropsCookie'>> {}

/** A request, admitted or not. */
export interface Received<A> extends RequestInProgress {
  awaitsProof: boolean
  readonly isOver: boolean
  /** It was admitted for this one. */
  readonly caller: Caller | undefined
  refuse(refusal: Failure & Pick<Refusal, 'orgId' | 'caller'>): void
  start(admitted: A): void
}

export interface ReceptionOptions<A extends Admissible> {
  readonly allowRemote: boolean
  readonly maxInFlight: number
  /** A request keeps the rules that it began with, even after a reload. `isOnSocket`: it came through a unix socket. */
  readonly rules: (isOnSocket: boolean) => AdmissionRules
  /** The part of `maxInFlight` that one caller may have. */
  readonly callerShare?: number
  readonly admit: (
    head: RequestHead,
    rules: AdmissionRules,
    client: Client,
    verified: Caller | CallerRefusal | undefined,
  ) => A | Exclude<Admission, Admitted>
  readonly begin: (client: Client, head: KnownHead, onEnd: (request: Received<A>) => void) => Received<A>
}

export class Reception<A extends Admissible> implements RequestHandler {
  readonly #options: ReceptionOptions<A>
  requestsInFlight = 0
  /**
   * The requests in flight whose JWT is being verified. Anyone can send such a JWT, so they take no place from callers that are
   * known.
   */
  readonly #unproven = new Set<Received<A>>()
  #isDraining = false
  /** Monotonic milliseconds: the last request came whose cookies are not sent on. */
  cookieDroppedAt = Number.NEGATIVE_INFINITY

  constructor(options: ReceptionOptions<A>) {
    this.#options = options
  }

  receive(head: RequestHead, client: Client): RequestInProgress {
    const request = this.#begin(client, head)
    if (client.isLocal || this.#options.allowRemote) {
      this.#admit(request, head, client, this.#options.rules(client.isOnSocket))
    } else request.refuse({ code: 'remote_refused' })
    return request
  }

  refuse(input: BrokenInput, client: Client): RequestInProgress {
    const { method = '', target = '' } = input
    const request = this.#begin(client, { method, target, minorVersion: 1, rawFields: [] })
    request.refuse(input)
    return request
  }

  drain(): void {
    this.#isDraining = true
  }

  #begin(client: Client, head: KnownHead): Received<A> {
    this.requestsInFlight++
    return this.#options.begin(client, head, this.#ended)
  }

  readonly #ended = (request: Received<A>) => {
    const { caller } = request
    this.requestsInFlight--
    assert(this.requestsInFlight >= 0)
    this.#unproven.delete(request)
    if (caller === undefined) return
    caller.usage.inFlight--
    assert(caller.usage.inFlight >= 0)
  }

  /** `verified`: who sent its JWT, or why that names no caller. */
  #admit(
    request: Received<A>,
    head: RequestHead,
    client: Client,
    rules: AdmissionRules,
    verified?: Caller | CallerRefusal,
  ): void {
    const admission = this.#options.admit(head, rules, client, verified)
    if (admission.verdict === 'unverified') void this.#verify(request, head, client, rules, admission.token)
    else if (admission.verdict === 'refused') request.refuse(admission)
    else {
      const { orgId, caller } = admission
      const lack = this.#lackOfRoom(caller)
      if (lack !== undefined) request.refuse({ ...lack, orgId, caller })
      else {
        if (caller !== undefined) caller.usage.inFlight++
        if (admission.dropsCookie === true) this.cookieDroppedAt = performance.now()
        client.wasAdmitted = true
        client.caller = caller
        request.start(admission)
      }
    }
  }

  /** Verifies a JWT that is not known yet, then goes on under the rules that the request began with. */
  async #verify(
    request: Received<A>,
    head: RequestHead,
    client: Client,
    rules: AdmissionRules,
    token: string,
  ): Promise<void> {
    this.#unproven.add(request)
    request.awaitsProof = true
    client.holdInput()
    const verified = await rules.callers?.verify(token).catch(() => 'malformed token' as const)
    this.#unproven.delete(request)
    request.awaitsProof = false
    if (request.isOver) return
    this.#admit(request, head, client, rules, verified)
    client.releaseInput()
    // A reload may have come in between.
    const { callers } = this.#options.rules(client.isOnSocket)
    if (client.caller !== undefined && callers?.stillKnow(client.caller) !== true) client.finish()
  }

  /** Why an admitted request is not started. `requestsInFlight` counts it already. */
  #lackOfRoom(caller: Caller | undefined): Failure | undefined {
    if (this.#isDraining) return { code: 'draining' }
    const inFlight = this.requestsInFlight - this.#unproven.size
    const { maxInFlight, callerShare = 1 } = this.#options
    if (inFlight > maxInFlight) return { code: 'overloaded', limit: 'listen.maxInFlight' }
    if (caller?.hasRoom === false) return { code: 'overloaded', limit: 'callers[].maxInFlight' }
    const isAtShare = caller !== undefined && caller.usage.inFlight >= Math.max(1, maxInFlight * callerShare)
    return isAtShare ? { code: 'overloaded', limit: 'caller share' } : undefined
  }
}
