/** A request as it arrived. If it is not admitted, its answer is given here and leaves a record; if it is, an exchange goes on with it. */

import type { IncomingMessage } from 'node:http'
import { performance } from 'node:perf_hooks'
import type { Caller } from '../callers/callers.ts'
import type { ErrorCode, Failure } from '../errors.ts'
import type { ReceivedRequest } from '../gateway/exchange.ts'
import type { ClientResponse } from '../http/client-response.ts'
import { respondToOptions, respondWithProblem } from '../http/problem.ts'
import { type AbandonCode, RequestRecord, STATUS_WITHOUT_ANSWER, traceIdOf } from '../http/request-record.ts'
import { pathOf } from '../http/target.ts'
import type { AdmissionRules, Admitted, Refusal } from './admission.ts'
import type { ClientConnection, CurrentRequest } from './connection.ts'
import type { Listener } from './server.ts'

/** The connection closes behind these answers: the bytes that follow cannot be trusted to be a request. */
const ENDS_CONNECTION: ReadonlySet<ErrorCode> = new Set([
  'remote_refused',
  'request_invalid',
  'request_head_too_large',
  'transfer_coding_refused',
  'http_version_refused',
  'upgrade_invalid',
])

export class Arrival implements ReceivedRequest, CurrentRequest {
  readonly connection: ClientConnection
  readonly message: IncomingMessage
  readonly response: ClientResponse
  readonly startedAt = performance.now()
  /** It keeps the rules that it began with, even after a reload. */
  readonly rules: AdmissionRules
  readonly #listener: Listener
  /** Counts it for its caller. */
  usage: Caller['usage'] | undefined = undefined

  constructor(connection: ClientConnection, message: IncomingMessage, response: ClientResponse, listener: Listener) {
    this.connection = connection
    this.message = message
    this.response = response
    this.rules = listener.options.rules(connection.origin.isOnSocket === true)
    this.#listener = listener
  }

  fail(refusal: Failure & Pick<Refusal, 'orgId' | 'caller'>): void {
    const { connection, message, response } = this
    // On its next connection, the client may have a better certificate, or the proxy the CA.
    const problem = connection.certificate?.problem
    if (problem !== undefined || ENDS_CONNECTION.has(refusal.code) || declaresContent(message)) {
      response.keepsAlive = false
    }
    const record = this.#newRecord(refusal.code, refusal.orgId)
    record.caller = refusal.caller?.name
    const isUncertified = refusal.reason === 'no credential' && problem !== undefined
    record.reason = isUncertified ? problem : (refusal.reason ?? refusal.limit)
    const status = respondWithProblem(response, record, refusal)
    record.bytesOut = response.contentBytes
    this.#end(record, status)
  }

  /** The client asks this proxy, not the service behind it (RFC 9110 §7.6.2). */
  answerOptions({ requestId, orgId, caller, method, path, traceId }: Admitted): void {
    const { message, response, startedAt } = this
    if (declaresContent(message)) response.keepsAlive = false
    const record = new RequestRecord(requestId, orgId, method, path, startedAt)
    record.isAdmitted = true
    record.caller = caller?.name
    record.traceId = traceId
    this.#end(record, respondToOptions(response, requestId))
  }

  abandon(code: AbandonCode): void {
    this.#end(this.#newRecord(code), STATUS_WITHOUT_ANSWER[code])
  }

  /** `orgId` is undefined if the id was not checked, or is invalid. */
  #newRecord(code: ErrorCode | 'client_closed', orgId?: string): RequestRecord {
    const { method, url, headers } = this.message
    const path = url?.startsWith('/') ? pathOf(url) : '' // without an authority, which may hold a password
    // An id of our own: the answer repeats nothing of a request that was not admitted.
    const record = new RequestRecord(this.#listener.options.newRequestId(), orgId, method ?? '', path, this.startedAt)
    const { traceparent } = headers
    if (typeof traceparent === 'string') record.traceId = traceIdOf(traceparent)
    record.code = code
    return record
  }

  #end(record: RequestRecord, status: number): void {
    record.status = status
    record.endedAt = performance.now()
    this.#listener.options.observer.requestEnded(record)
    this.ended()
  }

  ended(): void {
    this.#listener.requestEnded(this)
    this.connection.requestEnded(this.response)
  }
}

function declaresContent({ headers }: IncomingMessage): boolean {
  return headers['transfer-encoding'] !== undefined || (headers['content-length'] ?? '0') !== '0'
}
