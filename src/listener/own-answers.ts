/** What the listener answers by itself: refusals, preflights, and whatever was no request. Each leaves a record. */

import type { IncomingMessage, ServerResponse } from 'node:http'
import { performance } from 'node:perf_hooks'
import type { ErrorCode } from '../errors.ts'
import { endWithProblem, respondWithProblem } from '../gateway/problem-response.ts'
import type { GatewayObserver } from '../gateway/request-record.ts'
import type { Preflight, Refusal } from './admission.ts'
import type { Connection } from './connection.ts'
import { ownRecord } from './own-record.ts'
import type { ParserComplaint } from './parser-complaint.ts'

export interface OwnAnswerOptions {
  readonly newRequestId: () => string
  readonly observer: GatewayObserver
}

/** Answered and then closed: what follows on the connection cannot be trusted to be a request. */
const ENDS_CONNECTION: ReadonlySet<ErrorCode> = new Set([
  'remote_refused',
  'request_invalid',
  'http_version_refused',
  'upgrade_invalid',
])

export class OwnAnswers {
  readonly #options: OwnAnswerOptions

  constructor(options: OwnAnswerOptions) {
    this.#options = options
  }

  /** For a request that goes no further. */
  decline(
    connection: Connection,
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
    connection: Connection,
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
    const status = respondWithProblem(response, refusal, requestId)
    this.#options.observer.requestEnded(ownRecord(message, refusal.code, status, requestId, startedAt, refusal.orgId))
  }

  /** `*` covers `X-Org-Id`; credentials of the page are not asked for. */
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
    this.#options.observer.requestEnded(ownRecord(message, undefined, 204, requestId, startedAt))
  }

  refuseConnect(connection: Connection, message: IncomingMessage): void {
    const requestId = this.#options.newRequestId()
    const status = endWithProblem(connection.socket, { code: 'method_refused' }, requestId)
    const record = ownRecord(message, 'method_refused', status, requestId, performance.now())
    this.#options.observer.requestEnded(record)
    connection.linger()
  }

  /** For bytes that are no request. */
  refuseInput(connection: Connection, { code, looksLikeHead }: ParserComplaint): void {
    const startedAt = performance.now()
    const requestId = this.#options.newRequestId()
    const status = endWithProblem(connection.socket, { code }, requestId, looksLikeHead)
    this.#options.observer.requestEnded(ownRecord(undefined, code, status, requestId, startedAt))
    connection.linger()
  }
}

function declaresContent({ headers }: IncomingMessage): boolean {
  return headers['transfer-encoding'] !== undefined || (headers['content-length'] ?? '0') !== '0'
}
