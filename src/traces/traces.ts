/**
 * Spans by OpenTelemetry: one for each request (server), each time that it is sent (client), and each mint (client). Loaded only
 * if `traces.endpoint` is set. No span has a query, a token or a secret.
 */

import type { LookupFunction } from 'node:net'
import {
  type Context,
  ROOT_CONTEXT,
  type Span,
  type SpanContext,
  SpanKind,
  SpanStatusCode,
  TraceFlags,
  type Tracer,
  trace,
} from '@opentelemetry/api'
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-http'
import { detectResources, envDetector, resourceFromAttributes } from '@opentelemetry/resources'
import { TracerProvider } from '@opentelemetry/sdk-trace'
import { LRUCache } from 'lru-cache'
import * as clock from '../clock.ts'
import { type RequestRecord, type RequestTrace, TRACEPARENT, type Tracing } from '../gateway/request-record.ts'
import { withoutFields } from '../http1/field-list.ts'
import type { PartWarnings, Status } from '../part.ts'
import type { SettledMint } from '../token/token-source.ts'
import { SpanQueue } from './span-queue.ts'

export interface TracesOptions {
  /** Of the collector, with its path. */
  readonly endpoint: URL
  /** Share of the requests without a parent that leave spans, from 0 to 1. */
  readonly sample: number
  /** Of the service. */
  readonly baseUrl: URL
  /** What clients speak to the listener. */
  readonly scheme: 'http' | 'https'
  readonly version: string
  /** Finds the addresses of the collector. */
  readonly lookup?: LookupFunction | undefined
}

/** A mint that has ended, for the requests that waited for it. */
interface EndedMint {
  readonly context: SpanContext
  /** Monotonic milliseconds. */
  readonly endedAt: number
}

const EXPORT_TIMEOUT_MS = 10_000
/** The rest of the spans has this time when the proxy stops. */
const LAST_EXPORT_MS = 2_000
/** A request finds the mints that it waited for among the last ones of its Org. */
const MAX_ORGS = 1_024
const MAX_MINTS = 4
const MAX_PATH = 1_024
/** As the log, which tells the two apart by their codes. */
const NO_ANSWER: readonly number[] = [0, 499]

/** Those of the semantic conventions. Clients may invent others. */
const METHODS: ReadonlySet<string> = new Set('GET HEAD POST PUT DELETE CONNECT OPTIONS TRACE PATCH QUERY'.split(' '))

export class Traces implements Tracing {
  readonly queue: SpanQueue
  readonly #options: TracesOptions
  readonly #provider: TracerProvider
  readonly #tracer: Tracer
  readonly #server: UrlServer
  readonly #mints = new LRUCache<string, readonly EndedMint[]>({ max: MAX_ORGS })

  constructor(options: TracesOptions) {
    const { endpoint, baseUrl, version, lookup } = options
    this.#options = options
    this.#server = serverOf(baseUrl)
    this.queue = new SpanQueue(
      new OTLPTraceExporter({
        url: endpoint.href,
        timeoutMillis: EXPORT_TIMEOUT_MS,
        // With a certificate that is not trusted, it is no collector, whatever NODE_TLS_REJECT_UNAUTHORIZED says.
        httpAgentOptions: { keepAlive: true, rejectUnauthorized: true, ...(lookup && { lookup }) },
      }),
      EXPORT_TIMEOUT_MS,
    )
    const own = resourceFromAttributes({ 'service.name': 'org-access-proxy', 'service.version': version })
    this.#provider = new TracerProvider({
      resource: own.merge(detectResources({ detectors: [envDetector] })),
      spanProcessors: [this.queue],
    })
    this.#tracer = this.#provider.getTracer('org-access-proxy', version)
  }

  warnings(): PartWarnings {
    return this.queue.warnings()
  }

  status(): Partial<Status> {
    return this.queue.status()
  }

  begin(record: RequestRecord, traceparent: string | undefined): RequestTrace | undefined {
    const [, traceId, spanId, flags] = (traceparent !== undefined && TRACEPARENT.exec(traceparent)) || []
    if (traceId === undefined || spanId === undefined || flags === undefined) {
      return clock.random() < this.#options.sample ? this.#begin(record, ROOT_CONTEXT) : undefined
    }
    const traceFlags = Number.parseInt(flags, 16)
    if ((traceFlags & TraceFlags.SAMPLED) === 0) return undefined
    const parent = { traceId, spanId, traceFlags, isRemote: true }
    return this.#begin(record, trace.setSpanContext(ROOT_CONTEXT, parent))
  }

  #begin(record: RequestRecord, parent: Context): RequestTrace {
    const span = this.#start(nameOf(record), SpanKind.SERVER, record.startedAt, parent)
    setMethod(span, record)
    span.setAttribute('url.path', flat(record.path.slice(0, MAX_PATH)))
    span.setAttribute('url.scheme', this.#options.scheme)
    return new Trace(record, parent, span, this)
  }

  attempt(record: RequestRecord, request: Span): Span {
    const parent = trace.setSpan(ROOT_CONTEXT, request)
    const span = this.#start(nameOf(record), SpanKind.CLIENT, clock.now(), parent)
    setMethod(span, record)
    setUrl(span, this.#server, flat(this.#server.prefix + record.path.slice(0, MAX_PATH)))
    return span
  }

  /** Attributes are set one by one: given here, each would be checked twice. */
  #start(name: string, kind: SpanKind, startedAt: number, parent: Context): Span {
    return this.#tracer.startSpan(name, { kind, startTime: epochOf(startedAt) }, parent)
  }

  mintSettled({ org, method, url, reason, durationMs, error }: SettledMint): void {
    const endedAt = clock.now()
    const span = this.#start('mint', SpanKind.CLIENT, endedAt - durationMs, ROOT_CONTEXT)
    span.setAttribute('http.request.method', method)
    span.setAttribute('oap.org', org)
    span.setAttribute('oap.mint.reason', reason)
    setUrl(span, serverOf(new URL(url)), url)
    if (error !== undefined) markFailed(span, error.code)
    span.end(epochOf(endedAt))
    const mints = this.#mints.get(org)?.slice(1 - MAX_MINTS) ?? []
    this.#mints.set(org, [...mints, { context: span.spanContext(), endedAt }])
  }

  /** The mints of the Org that have ended while the request waited. */
  mintsFor({ orgId, token, startedAt }: RequestRecord): readonly EndedMint[] {
    // With a token from the cache, it did not wait.
    if (orgId === undefined || token === 'hit' || token === 'refreshing') return []
    return this.#mints.get(orgId)?.filter(({ endedAt }) => endedAt >= startedAt) ?? []
  }

  /** Sends what is left, but does not wait for a collector that is slow. Never rejects. */
  async close(): Promise<void> {
    await clock.within(
      LAST_EXPORT_MS,
      this.#provider.shutdown().catch(() => undefined),
    )
  }
}

const TRACE_FIELD: ReadonlySet<string> = new Set(['traceparent'])
const TRACE_FIELDS: ReadonlySet<string> = new Set(['traceparent', 'tracestate'])

class Trace implements RequestTrace {
  readonly traceId: string
  readonly #record: RequestRecord
  readonly #parent: SpanContext | undefined
  readonly #span: Span
  readonly #traces: Traces
  #attempt: Span | undefined
  #attempts = 0

  constructor(record: RequestRecord, parent: Context, span: Span, traces: Traces) {
    this.#record = record
    this.#parent = trace.getSpanContext(parent)
    this.#span = span
    this.#traces = traces
    this.traceId = span.spanContext().traceId
  }

  attemptBegan(fields: readonly string[]): readonly string[] {
    const attempt = this.#traces.attempt(this.#record, this.#span)
    if (this.#attempt === undefined) this.#attempts++
    if (this.#attempts > 1) attempt.setAttribute('http.request.resend_count', this.#attempts - 1)
    this.#attempt = attempt
    const { traceId, spanId } = attempt.spanContext()
    // The other flag that is known says that the trace id is random, which stays true (W3C Trace Context level 2).
    const flags = TraceFlags.SAMPLED | ((this.#parent?.traceFlags ?? 0) & 2)
    // What vendors noted of another trace does not belong to a new one (§3.4).
    const kept = withoutFields(fields, this.#parent === undefined ? TRACE_FIELDS : TRACE_FIELD)
    kept.push('traceparent', `00-${traceId}-${spanId}-0${flags}`)
    return kept
  }

  attemptEnded(outcome: number | string): void {
    const attempt = this.#attempt
    if (attempt === undefined) return
    this.#attempt = undefined
    if (typeof outcome === 'string') markFailed(attempt, outcome)
    else {
      attempt.setAttribute('http.response.status_code', outcome)
      if (outcome >= 400) markFailed(attempt, String(outcome))
    }
    attempt.end(epochOf(clock.now()))
  }

  ended(): void {
    const { status, orgId, token, caller, code, requestId, endedAt } = this.#record
    this.attemptEnded(code ?? status)
    const span = this.#span
    span.setAttribute('oap.request_id', flat(requestId))
    span.setAttribute('oap.token', token)
    if (orgId !== undefined) span.setAttribute('oap.org', flat(orgId))
    if (caller !== undefined) span.setAttribute('oap.caller', caller)
    if (!NO_ANSWER.includes(status)) span.setAttribute('http.response.status_code', status)
    // A server's span fails by faults of the server: a 4xx is the client's, and so is a client that leaves. What has a code and
    // another status broke off.
    const isBroken = code !== undefined && code !== 'client_closed' && status < 400
    if (status >= 500 || isBroken) markFailed(span, code ?? String(status))
    else if (code !== undefined) span.setAttribute('error.type', code)
    for (const { context } of this.#traces.mintsFor(this.#record)) span.addLink({ context })
    span.end(epochOf(endedAt))
  }
}

type UrlServer = ReturnType<typeof serverOf>

/** The socket of a minter has no host, and no port. */
function serverOf({ hostname, port, protocol, origin, pathname }: URL) {
  const usual = protocol === 'https:' ? 443 : 80
  return {
    address: hostname.replace(/^\[|\]$/g, ''),
    port: port === '' ? usual : Number(port),
    prefix: origin + pathname.replace(/\/$/, ''),
  }
}

function setUrl(span: Span, { address, port }: UrlServer, url: string): void {
  if (address !== '') span.setAttribute('server.address', address).setAttribute('server.port', port)
  span.setAttribute('url.full', url)
}

function setMethod(span: Span, { method }: RequestRecord): void {
  const isKnown = METHODS.has(method)
  span.setAttribute('http.request.method', isKnown ? method : '_OTHER')
  if (!isKnown) span.setAttribute('http.request.method_original', flat(method))
}

function nameOf({ method }: RequestRecord): string {
  return METHODS.has(method) ? method : 'HTTP'
}

function markFailed(span: Span, type: string): void {
  span.setAttribute('error.type', type)
  span.setStatus({ code: SpanStatusCode.ERROR })
}

/** A copy: text of a request is a slice of its head, and would keep the whole head in memory. */
function flat(text: string): string {
  return Buffer.from(text, 'latin1').toString('latin1')
}

/** Of monotonic milliseconds, in milliseconds since the epoch. The two clocks drift apart while the process lives, so now counts. */
function epochOf(monotonicMs: number): number {
  return clock.day() - (clock.now() - monotonicMs)
}
