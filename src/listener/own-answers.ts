/** The answers that the listener gives by itself: to refused requests, and to bytes that are no request. Each leaves a record. */

import type { IncomingMessage, ServerResponse } from 'node:http'
import { performance } from 'node:perf_hooks'
import type { ErrorCode, Failure } from '../errors.ts'
import type { ReceivedRequest } from '../gateway/exchange.ts'
import type { OrgId } from '../http/org-id.ts'
import { type Answered, endWithProblem, respondWithProblem } from '../http/problem-response.ts'
import { CLIENT_CLOSED_STATUS, type GatewayObserver, RequestRecord, traceIdOf } from '../http/request-record.ts'
import { pathOf } from '../http/target.ts'
import type { AdmissionRules, Refusal } from './admission.ts'
import type { ClientConnection } from './connection.ts'

/** A request as it arrived. */
export interface Arrival extends ReceivedRequest {
  readonly connection: ClientConnection
  /** It keeps the rules that it began with, even after a reload. */
  readonly rules: AdmissionRules
}

export interface OwnAnswerOptions {
  readonly newRequestId: () => string
  readonly observer: GatewayObserver
}

/** The connection closes behind these answers: the bytes that follow cannot be trusted to be a request. */
const ENDS_CONNECTION: ReadonlySet<ErrorCode> = new Set([
  'remote_refused',
  'request_invalid',
  'http_version_refused',
  'upgrade_invalid',
])

const CLIENT_GONE = { status: CLIENT_CLOSED_STATUS, bytes: 0 }

export class OwnAnswers {
  readonly #options: OwnAnswerOptions

  constructor(options: OwnAnswerOptions) {
    this.#options = options
  }

  /** Answers a request that goes no further. */
  refuse({ connection, message, response, startedAt }: Arrival, refusal: Refusal): void {
    if (ENDS_CONNECTION.has(refusal.code) || declaresContent(message)) closeBehind(connection, response)
    const record = this.#newRecord(message, startedAt, refusal.orgId)
    record.code = refusal.code
    record.caller = refusal.caller?.name
    const { certificateProblem } = connection
    const isUncertified = refusal.reason !== undefined && certificateProblem !== undefined
    record.reason = isUncertified
      ? `certificate not verified: ${certificateProblem}`
      : (refusal.reason ?? refusal.limit)
    this.#tell(record, respondWithProblem(response, refusal, record.requestId))
    connection.exchangeEnded()
  }

  /** Ends a request that failed, or whose client left, before it was admitted. */
  abandon({ connection, message, response, startedAt }: Arrival, failure: Failure | 'client_closed'): void {
    closeBehind(connection, response)
    const record = this.#newRecord(message, startedAt)
    const isGone = failure === 'client_closed'
    record.code = isGone ? failure : failure.code
    record.reason = isGone ? undefined : failure.limit
    this.#tell(record, isGone ? CLIENT_GONE : respondWithProblem(response, failure, record.requestId))
    connection.exchangeEnded()
  }

  refuseConnect(connection: ClientConnection, message: IncomingMessage): void {
    const record = this.#newRecord(message, performance.now())
    record.code = 'method_refused'
    this.#tell(record, endWithProblem(connection.socket, { code: 'method_refused' }, record.requestId))
    connection.linger()
  }

  /** Answers bytes that Node's parser, or the clock that watches it, refused. */
  refuseInput(connection: ClientConnection, code: InputProblem, error: Error): void {
    const record = this.#newRecord(undefined, performance.now())
    record.code = code
    this.#tell(record, endWithProblem(connection.socket, { code }, record.requestId, looksLikeHead(error)))
    connection.linger()
  }

  /** `message` is undefined if no request could be read. `orgId` is undefined if the id was not checked, or is invalid. */
  #newRecord(message: IncomingMessage | undefined, startedAt: number, orgId?: OrgId): RequestRecord {
    const { method = '', url = '' } = message ?? {}
    const record = new RequestRecord(this.#options.newRequestId(), orgId, method, pathIn(url), startedAt)
    const { traceparent } = message?.headers ?? {}
    if (typeof traceparent === 'string') record.traceId = traceIdOf(traceparent)
    return record
  }

  #tell(record: RequestRecord, { status, bytes }: Answered): void {
    record.status = status
    record.bytesOut = bytes
    record.endedAt = performance.now()
    this.#options.observer.requestEnded(record)
  }
}

function closeBehind(connection: ClientConnection, response: ServerResponse): void {
  response.shouldKeepAlive = false
  connection.isClosing = true
}

function declaresContent({ headers }: IncomingMessage): boolean {
  return headers['transfer-encoding'] !== undefined || (headers['content-length'] ?? '0') !== '0'
}

export type InputProblem = 'request_timeout' | 'request_head_too_large' | 'request_invalid'

/** Undefined for an error of the socket: there is nobody left to answer. */
export function inputProblem(error: Error): InputProblem | undefined {
  const code = 'code' in error ? error.code : ''
  if (code === 'ERR_HTTP_REQUEST_TIMEOUT') return 'request_timeout'
  if (code === 'HPE_HEADER_OVERFLOW') return 'request_head_too_large'
  return typeof code === 'string' && code.startsWith('HPE_') ? 'request_invalid' : undefined
}

const HEAD = Buffer.from('HEAD ')

/** The parser does not say how far it got. Most heads arrive in one packet, so the first bytes show the method. */
function looksLikeHead(error: Error): boolean {
  return 'rawPacket' in error && Buffer.isBuffer(error.rawPacket) && error.rawPacket.subarray(0, 5).equals(HEAD)
}

/** Leaves out an authority, which may hold a password. */
function pathIn(target: string): string {
  return target.startsWith('/') ? pathOf(target) : ''
}
