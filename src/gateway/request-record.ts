/** What is known of one request, and told of it: to the log and the metrics when it has ended, to its spans while it goes on. */

import * as clock from '../clock.ts'
import { causeForOperator, type ErrorCode, type Failure } from '../errors.ts'
import type { RejectionOutcome, TokenResult } from '../token/request-token.ts'

/** Logged as the status of a request that got no answer: its client has left, or the proxy stops. Never sent. */
export const STATUS_WITHOUT_ANSWER = { client_closed: 499, draining: 0 } as const

export type AbandonCode = keyof typeof STATUS_WITHOUT_ANSWER

/**
 * A `traceparent` field (W3C Trace Context §3.2): trace id, span id and flags. Version 00 ends there; a later one may go on behind
 * a dash.
 */
export const TRACEPARENT =
  /^(?:00(?=.{53}$)|(?!00|ff)[0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(?:$|-)/

/** Instants are monotonic milliseconds. */
export class RequestRecord {
  /** Undefined if the request leaves no spans. */
  #spans: RequestTrace | undefined
  readonly requestId: string
  orgId: string | undefined
  readonly method: string
  /** Without the query. */
  readonly path: string
  /** The head was received. */
  readonly startedAt: number
  /** A connection to the service took the current attempt. Undefined while it waits for one. */
  carriedAt: number | undefined
  /** The response head of the current attempt was received. */
  respondedAt: number | undefined
  /** The waits for the service before this attempt. */
  waitedMs = 0
  endedAt = 0
  /** False for a request that was refused before any token was asked for. */
  isAdmitted = false
  /** The status that was sent; 499 if the client left before, 0 if the proxy stopped before. */
  status = 0
  /** Name of the caller, if callers are configured and this one was recognised. */
  caller: string | undefined
  /** Why the answer was our own, or was broken off. */
  code: ErrorCode | 'client_closed' | undefined
  /** Why the caller or the org id was refused, which never stands in the answer; the rule that a response broke; or the limit that was reached. */
  reason: string | undefined
  /** Of a valid `traceparent` (W3C Trace Context), or of the trace that begins here. */
  traceId: string | undefined
  /** One sentence that names the cause more closely than `code`, from a closed set. */
  detail: string | undefined
  /** `code` was said by the minter of this sidecar. */
  isOfMinter = false
  /** Set if the service rejected the token: what became of the request. */
  rejection: RejectionOutcome | undefined
  /** A rejection was to be followed by a repeat. */
  isRepeated = false
  /** `none`: the request needed no token, or got none. */
  token: TokenResult | 'none' = 'none'
  /** The service closed an idle connection while the request was sent on it. */
  metClosedIdle = false
  bytesIn = 0
  bytesOut = 0

  constructor(requestId: string, orgId: string | undefined, method: string, path: string, startedAt: number) {
    this.requestId = requestId
    this.orgId = orgId
    this.method = method
    this.path = path
    this.startedAt = startedAt
  }

  /** Begins its spans, if it leaves any. `traceparent` is the client's. */
  trace(tracing: Tracing | undefined, traceparent: string | undefined): void {
    this.#spans = tracing?.begin(this, traceparent)
    this.traceId = this.#spans?.traceId ?? (traceparent === undefined ? undefined : TRACEPARENT.exec(traceparent)?.[1])
  }

  /** A connection has the attempt, or it has its token there, or another connection has it. Returns `fields`, with the id of the span. */
  carried(fields: readonly string[]): readonly string[] {
    this.carriedAt = clock.now()
    return this.#spans?.attemptBegan(fields) ?? fields
  }

  /** The attempt has to wait for a connection. */
  queued(): void {
    this.carriedAt = undefined
  }

  responded(): void {
    this.respondedAt = clock.now()
  }

  /** The client does not get this answer, or failure: another attempt follows. */
  attemptEnded(outcome: number | string): void {
    this.waitedMs = waitedForServiceMs(this, clock.now())
    this.carriedAt = undefined
    this.respondedAt = undefined
    this.#spans?.attemptEnded(outcome)
  }

  failed(failure: Failure): void {
    this.code = failure.code
    this.isOfMinter = failure.isOfMinter ?? false
    this.detail = causeForOperator(failure)
    this.reason = failure.limit ?? failure.reason
  }

  /** The client has left, or the proxy stops. */
  abandoned(code: AbandonCode, hasAnswer = false): void {
    this.code = code
    if (!hasAnswer) this.status = STATUS_WITHOUT_ANSWER[code]
  }

  /** The field line that tells how long the proxy took. */
  get timing(): string {
    const now = clock.now()
    const tookMs = now - this.startedAt - waitedForServiceMs(this, now)
    return `Server-Timing: oap;dur=${tookMs.toFixed(3)}\r\n`
  }

  ended(observer: Pick<GatewayObserver, 'requestEnded'>, bytesIn: number, bytesOut: number): void {
    this.endedAt = clock.now()
    this.bytesIn = bytesIn
    this.bytesOut = bytesOut
    observer.requestEnded(this)
    this.#spans?.ended()
  }
}

/**
 * The reason in the log and in `status`: the client got the 401 of an ended token, which a repeat would have hidden. The content was
 * too large, had come in part and without a length, or found no room beside that of others.
 */
export const NOT_KEPT = 'content not kept: see replay.maxBody'

export function wasNotKept({ rejection, status }: RequestRecord): boolean {
  return rejection === 'not_kept' && status === 401
}

/**
 * While a connection had the request: to its response head, or to its failure. If the service has not answered yet, to `until`.
 * Monotonic milliseconds.
 */
export function waitedForServiceMs({ carriedAt, respondedAt, waitedMs }: RequestRecord, until: number): number {
  return carriedAt === undefined ? waitedMs : waitedMs + (respondedAt ?? until) - carriedAt
}

export interface TunnelEnd {
  /** Who ended or broke it first. `proxy`: it stops, or the caller is one no more. */
  readonly endedBy: 'client' | 'service' | 'proxy'
  /** `broken`: that side was gone without an end. `timeout`: the other side did not end. */
  readonly reason: 'closed' | 'broken' | 'timeout'
  readonly durationMs: number
  /** From the client. */
  readonly bytesIn: number
  /** From the service. */
  readonly bytesOut: number
}

/** What the line about the end of a WebSocket tells of its handshake. The strings are copies: a slice would pin the whole head. */
export interface TunnelRecord extends Pick<RequestRecord, 'requestId' | 'orgId' | 'caller' | 'path'> {}

export function tunnelRecordOf({ requestId, orgId, caller, path }: RequestRecord): TunnelRecord {
  return { requestId: flat(requestId), orgId: orgId && flat(orgId), caller, path: flat(path) }
}

function flat(text: string): string {
  return Buffer.from(text, 'latin1').toString('latin1')
}

export interface GatewayObserver {
  requestEnded(record: RequestRecord): void
  tunnelEnded?(record: TunnelRecord, end: TunnelEnd): void
  /** A fault of this program, and nobody else's. */
  programFailed(error: unknown, requestId: string): void
}

/** Makes spans of requests. */
export interface Tracing {
  /** `traceparent` is the client's. Undefined if the request leaves no spans: its parent or, without one, chance decided so. */
  begin(record: RequestRecord, traceparent: string | undefined): RequestTrace | undefined
}

/** The spans of one request: one for itself, and one for each time that it is sent. */
export interface RequestTrace {
  readonly traceId: string
  /** A connection has the request. Returns the fields with a `traceparent` of this attempt. Called again if it goes elsewhere unsent. */
  attemptBegan(fields: readonly string[]): readonly string[]
  /** The service has answered with this status, or the attempt has failed with this code. */
  attemptEnded(outcome: number | string): void
  /** The record is complete. An attempt that goes on ends, too. */
  ended(): void
}
