/** Takes the requests of the listener: admits or refuses each by the rules of the moment, and counts those in flight. */

import assert from 'node:assert/strict'
import type { Caller, CallerRefusal } from '../callers/callers.ts'
import * as clock from '../clock.ts'
import type { Failure } from '../errors.ts'
import type { RequestHead } from '../http1/request-parser.ts'
import type { BrokenInput, Client, RequestHandler, RequestInProgress } from '../listener/request-handler.ts'
import type { OrgId } from '../org-id.ts'
import type { PartWarnings } from '../part.ts'
import type { Admission, AdmissionRules, Admitted } from './admission.ts'
import { type KnownHead, type RefusalDesk, UnadmittedRequest } from './unadmitted-request.ts'

/** What is known of a request that may be carried out. */
interface Admissible extends Holder, Pick<Admitted, 'verdict'>, Partial<Pick<Admitted, 'dropsCookie'>> {}

/** Who has a request in flight. */
type Holder = Pick<Admitted, 'orgId' | 'caller'>

/** Of `maxInFlight`, rounded up: the most for one Org, or for all requests without one. */
const ORG_SHARE = 3 / 4
/** A cookie that was dropped is told for so long. */
const COOKIE_EPISODE_MS = 3_600_000

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
  /** Carries it out. `startedAt`, in monotonic milliseconds: its head had arrived. */
  readonly serve: (
    admitted: A,
    client: Client,
    startedAt: number,
    onEnd: (admitted: Holder) => void,
  ) => RequestInProgress
  /** For requests that are not admitted. */
  readonly refusals: RefusalDesk
}

export class Reception<A extends Admissible> implements RequestHandler {
  readonly #options: ReceptionOptions<A>
  /** Requests that were admitted. */
  #admitted = 0
  /** The same by Org. */
  readonly #byOrg = new Map<OrgId | undefined, number>()
  /** Requests whose JWT is being verified. Anyone can send such a JWT, so they take no place from callers that are known. */
  readonly #unproven = new Set<UnadmittedRequest>()
  #isDraining = false
  /** Monotonic milliseconds: the last request came whose cookies are not sent on. */
  #cookieDroppedAt = Number.NEGATIVE_INFINITY

  constructor(options: ReceptionOptions<A>) {
    this.#options = options
  }

  get requestsInFlight(): number {
    let unproven = 0
    for (const { isOver } of this.#unproven) if (!isOver) unproven++
    return this.#admitted + unproven
  }

  /** The Orgs with requests in flight, and how many each has. Those of the App itself stand under undefined. */
  get inFlightByOrg(): ReadonlyMap<OrgId | undefined, number> {
    return this.#byOrg
  }

  warnings(now: number): PartWarnings {
    const leftMs = this.#cookieDroppedAt + COOKIE_EPISODE_MS - now
    if (leftMs <= 0) return {}
    const text =
      'Apps send cookies, which the proxy drops, because the cookie jar of an app mixes the sessions of all Orgs. If an app needs them, and has a jar for each Org, set origin.sendCookies.'
    return { cookies_dropped: { text, leftMs } }
  }

  receive(head: RequestHead, client: Client): RequestInProgress {
    const startedAt = clock.now()
    if (!client.isLocal && !this.#options.allowRemote) {
      return this.#unadmitted(client, head, startedAt).refuse({ code: 'remote_refused' })
    }
    return this.#admit(head, client, this.#options.rules(client.isOnSocket), startedAt)
  }

  refuse(input: BrokenInput, client: Client): RequestInProgress {
    const { method = '', target = '' } = input
    return this.#unadmitted(client, { method, target, rawFields: [] }, clock.now()).refuse(input)
  }

  drain(): void {
    this.#isDraining = true
  }

  #unadmitted(client: Client, head: KnownHead, startedAt: number): UnadmittedRequest {
    return new UnadmittedRequest(this.#options.refusals, client, head, startedAt)
  }

  /** `verified`: who sent its JWT, or why that names no caller. */
  #admit(
    head: RequestHead,
    client: Client,
    rules: AdmissionRules,
    startedAt: number,
    verified?: Caller | CallerRefusal,
  ): RequestInProgress {
    try {
      const admission = this.#options.admit(head, rules, client, verified)
      if (admission.verdict === 'unverified') {
        const request = this.#unadmitted(client, head, startedAt)
        void this.#verify(request, head, client, rules, startedAt, admission.token)
        return request
      }
      const refusal = admission.verdict === 'refused' ? admission : this.#lackOfRoom(admission)
      if (refusal !== undefined) return this.#unadmitted(client, head, startedAt).refuse(refusal)
      return this.#serve(admission as A, client, startedAt)
    } catch (fault) {
      return this.#unadmitted(client, head, startedAt).refuse({ code: 'proxy_internal_error' }, fault)
    }
  }

  #serve(admitted: A, client: Client, startedAt: number): RequestInProgress {
    const { caller, orgId, dropsCookie } = admitted
    const request = this.#options.serve(admitted, client, startedAt, this.#ended)
    this.#admitted++
    this.#byOrg.set(orgId, (this.#byOrg.get(orgId) ?? 0) + 1)
    if (caller !== undefined) caller.usage.inFlight++
    if (dropsCookie === true) this.#cookieDroppedAt = startedAt
    client.wasAdmitted = true
    client.caller = caller
    return request
  }

  readonly #ended = ({ orgId, caller }: Holder) => {
    this.#admitted--
    const left = (this.#byOrg.get(orgId) ?? 0) - 1
    assert(this.#admitted >= 0 && left >= 0)
    if (left === 0) this.#byOrg.delete(orgId)
    else this.#byOrg.set(orgId, left)
    if (caller === undefined) return
    caller.usage.inFlight--
    assert(caller.usage.inFlight >= 0)
  }

  /** Verifies a JWT that is not known yet, then goes on under the rules that the request began with. */
  async #verify(
    request: UnadmittedRequest,
    head: RequestHead,
    client: Client,
    rules: AdmissionRules,
    startedAt: number,
    token: string,
  ): Promise<void> {
    this.#unproven.add(request)
    client.holdInput()
    const verified = await rules.callers?.verify(token).catch(() => 'malformed token' as const)
    this.#unproven.delete(request)
    if (request.isOver) return
    request.isOver = true // it goes on as another
    client.releaseInput(this.#admit(head, client, rules, startedAt, verified))
    // A reload may have come in between.
    const { callers } = this.#options.rules(client.isOnSocket)
    if (client.caller !== undefined && callers?.stillKnow(client.caller) !== true) client.finish()
  }

  /** Why a request that may be carried out is not. */
  #lackOfRoom({ orgId, caller }: Admissible): (Failure & Holder) | undefined {
    if (this.#isDraining) return { code: 'draining', orgId, caller }
    const { maxInFlight, callerShare = 1 } = this.#options
    if (this.#admitted >= maxInFlight) return { code: 'overloaded', limit: 'listen.maxInFlight', orgId, caller }
    if ((this.#byOrg.get(orgId) ?? 0) >= Math.ceil(maxInFlight * ORG_SHARE))
      return { code: 'overloaded', limit: 'requests of one Org', orgId, caller }
    if (caller?.hasRoom === false) return { code: 'overloaded', limit: 'callers[].maxInFlight', orgId, caller }
    const isAtShare = caller !== undefined && caller.usage.inFlight >= Math.max(1, maxInFlight * callerShare)
    return isAtShare ? { code: 'overloaded', limit: 'caller share', orgId, caller } : undefined
  }
}
