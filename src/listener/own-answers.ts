/** The answers that the listener gives by itself: to refused requests, to preflights, and to bytes that are no request. Each leaves a record. */

import type { IncomingMessage, ServerResponse } from 'node:http'
import { performance } from 'node:perf_hooks'
import type { ErrorCode, Failure } from '../errors.ts'
import type { OrgId } from '../http/org-id.ts'
import { type Answered, endWithProblem, respondWithProblem } from '../http/problem-response.ts'
import { CLIENT_CLOSED_STATUS, type GatewayObserver, RequestRecord } from '../http/request-record.ts'
import { pathOf } from '../http/target.ts'
import type { Preflight, Refusal } from './admission.ts'
import type { ClientConnection } from './connection.ts'

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
  decline(
    connection: ClientConnection,
    message: IncomingMessage,
    response: ServerResponse,
    verdict: Refusal | Preflight,
    startedAt: number,
  ): void {
    if ('code' in verdict) this.#refuse(connection, message, response, verdict, startedAt)
    else this.#answerPreflight(message, response, verdict.preflightOrigin, startedAt)
    connection.exchangeEnded()
  }

  #refuse(
    connection: ClientConnection,
    message: IncomingMessage,
    response: ServerResponse,
    refusal: Refusal,
    startedAt: number,
  ): void {
    const requestId = this.#options.newRequestId()
    if (ENDS_CONNECTION.has(refusal.code) || declaresContent(message)) {
      response.shouldKeepAlive = false
      connection.isClosing = true
    }
    const answered = respondWithProblem(response, refusal, requestId)
    const record = ownRecord(message, refusal.code, answered, requestId, startedAt, refusal.orgId)
    record.caller = refusal.caller?.name
    this.#options.observer.requestEnded(record)
  }

  /** Ends a request that failed, or whose client left, before it was admitted. */
  abandon(
    connection: ClientConnection,
    message: IncomingMessage,
    response: ServerResponse,
    failure: Failure | 'client_closed',
    startedAt: number,
  ): void {
    const requestId = this.#options.newRequestId()
    const isGone = failure === 'client_closed'
    response.shouldKeepAlive = false
    connection.isClosing = true
    const answered = isGone ? CLIENT_GONE : respondWithProblem(response, failure, requestId)
    const code = isGone ? failure : failure.code
    this.#options.observer.requestEnded(ownRecord(message, code, answered, requestId, startedAt))
    connection.exchangeEnded()
  }

  /** `*` covers `X-Org-Id`. Credentials of the page are not asked for. */
  #answerPreflight(message: IncomingMessage, response: ServerResponse, origin: string, startedAt: number): void {
    if (declaresContent(message)) response.shouldKeepAlive = false
    response.writeHead(204, {
      'access-control-allow-origin': origin,
      'access-control-allow-methods': 'GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS',
      'access-control-allow-headers': '*',
      'access-control-max-age': '600',
      vary: 'Origin',
    })
    response.end()
    const requestId = this.#options.newRequestId()
    this.#options.observer.requestEnded(ownRecord(message, undefined, { status: 204, bytes: 0 }, requestId, startedAt))
  }

  refuseConnect(connection: ClientConnection, message: IncomingMessage): void {
    const requestId = this.#options.newRequestId()
    const answered = endWithProblem(connection.socket, { code: 'method_refused' }, requestId)
    const record = ownRecord(message, 'method_refused', answered, requestId, performance.now())
    this.#options.observer.requestEnded(record)
    connection.linger()
  }

  /** Answers bytes that Node's parser, or the clock that watches it, refused. */
  refuseInput(connection: ClientConnection, code: InputProblem, error: Error): void {
    const requestId = this.#options.newRequestId()
    const answered = endWithProblem(connection.socket, { code }, requestId, looksLikeHead(error))
    this.#options.observer.requestEnded(ownRecord(undefined, code, answered, requestId, performance.now()))
    connection.linger()
  }
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

/**
 * The record of a request that never reached the gateway. `message` is undefined where no request could be read, `orgId` where
 * the id was not checked, or was refused.
 */
function ownRecord(
  message: IncomingMessage | undefined,
  code: RequestRecord['code'],
  { status, bytes }: Answered,
  requestId: string,
  startedAt: number,
  orgId?: OrgId | undefined,
): RequestRecord {
  const record = new RequestRecord(requestId, orgId, message?.method ?? '', pathIn(message?.url ?? ''), startedAt)
  record.status = status
  record.bytesOut = bytes
  record.code = code
  record.endedAt = performance.now()
  return record
}

/** Leaves out an authority, which may hold a password. */
function pathIn(target: string): string {
  return target.startsWith('/') ? pathOf(target) : ''
}
