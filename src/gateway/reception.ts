/** Takes the requests of the listener: admits or refuses each by the rules of the moment, and counts those in flight. */

import type { Caller, CallerRefusal } from '../callers/callers.ts'
import type { Failure } from '../errors.ts'
import type { RequestHead } from '../http1/request-parser.ts'
import type { BrokenInput, Client, RequestHandler, RequestInProgress } from '../listener/request-handler.ts'
import { type AdmissionRules, admit } from './admission.ts'
import { Exchange, type Gateway, type KnownHead } from './exchange.ts'

export interface ReceptionOptions {
  readonly allowRemote: boolean
  readonly maxInFlight: number
  /** A request keeps the rules that it began with, even after a reload. `isOnSocket`: it came through a unix socket. */
  readonly rules: (isOnSocket: boolean) => AdmissionRules
  readonly newRequestId: () => string
}

export class Reception implements RequestHandler {
  readonly #options: ReceptionOptions
  readonly #gateway: Gateway
  requestsInFlight = 0
  /**
   * The requests in flight whose JWT is being verified. Anyone can send such a JWT, so they take no place from callers that are
   * known.
   */
  #verifying = 0
  #isDraining = false
  /** Monotonic milliseconds: the last request came whose cookies are not sent on. */
  cookieDroppedAt = Number.NEGATIVE_INFINITY

  constructor(options: ReceptionOptions, gateway: Gateway) {
    this.#options = options
    this.#gateway = gateway
  }

  receive(head: RequestHead, client: Client): RequestInProgress {
    const exchange = this.#newExchange(client, head)
    if (client.isLocal || this.#options.allowRemote) {
      this.#admit(exchange, head, client, this.#options.rules(client.isOnSocket))
    } else exchange.refuse({ code: 'remote_refused' })
    return exchange
  }

  refuse(input: BrokenInput, client: Client): RequestInProgress {
    const { method = '', target = '' } = input
    const exchange = this.#newExchange(client, { method, target, minorVersion: 1, rawFields: [] })
    exchange.refuse(input)
    return exchange
  }

  drain(): void {
    this.#isDraining = true
  }

  #newExchange(client: Client, head: KnownHead): Exchange {
    this.requestsInFlight++
    const ended = (caller?: Caller) => {
      this.requestsInFlight--
      if (caller !== undefined) caller.usage.inFlight--
    }
    return new Exchange(this.#gateway, client, head, this.#options.newRequestId, ended)
  }

  /** `verified`: who sent its JWT, or why that names no caller. */
  #admit(
    exchange: Exchange,
    head: RequestHead,
    client: Client,
    rules: AdmissionRules,
    verified?: Caller | CallerRefusal,
  ): void {
    const admission = admit(head, rules, this.#options.newRequestId, client, verified)
    if (admission.verdict === 'unverified') void this.#verify(exchange, head, client, rules, admission.token)
    else if (admission.verdict === 'refused') exchange.refuse(admission)
    else {
      const { orgId, caller } = admission
      const lack = this.#lackOfRoom(caller)
      if (lack !== undefined) exchange.refuse({ ...lack, orgId, caller })
      else {
        if (caller !== undefined) caller.usage.inFlight++
        if (admission.dropsCookie) this.cookieDroppedAt = performance.now()
        client.wasAdmitted = true
        client.caller = caller
        exchange.start(admission)
      }
    }
  }

  /** Verifies a JWT that is not known yet, then goes on under the rules that the request began with. */
  async #verify(
    exchange: Exchange,
    head: RequestHead,
    client: Client,
    rules: AdmissionRules,
    token: string,
  ): Promise<void> {
    this.#verifying++
    exchange.awaitsProof = true
    const verified = await rules.callers?.verify(token).catch(() => 'malformed token' as const)
    this.#verifying--
    exchange.awaitsProof = false
    if (exchange.isOver) return
    this.#admit(exchange, head, client, rules, verified)
    // A reload may have come in between.
    const { callers } = this.#options.rules(client.isOnSocket)
    if (client.caller !== undefined && callers?.stillKnow(client.caller) !== true) client.finish()
  }

  /** Why an admitted request is not started. `requestsInFlight` counts it already. */
  #lackOfRoom(caller: Caller | undefined): Failure | undefined {
    if (this.#isDraining) return { code: 'draining' }
    const inFlight = this.requestsInFlight - this.#verifying
    if (inFlight > this.#options.maxInFlight) return { code: 'overloaded', limit: 'listen.maxInFlight' }
    return caller?.hasRoom === false ? { code: 'overloaded', limit: 'callers[].maxInFlight' } : undefined
  }
}
