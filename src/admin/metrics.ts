/** All metrics of the program: counts that the events add to, and gauges that are read at a scrape. No label holds an org. */

import * as clock from '../clock.ts'
import { HANDSHAKE_FAILURES, LIMITS, PASSED_ON, PROBLEMS, TOKEN_PROBLEMS } from '../errors.ts'
import { type RequestRecord, waitedForServiceMs } from '../gateway/request-record.ts'
import { SWITCHING_PROTOCOLS } from '../http1/response-parser.ts'
import { copyOfOrgId, type OrgId } from '../org-id.ts'
import type { Finding, PartWarnings, Status } from '../part.ts'
import { REJECTION_OUTCOMES, type TokenResult } from '../token/request-token.ts'
import { MINT_REASONS, type MintReason, type SettledMint } from '../token/token-source.ts'
import { Busiest } from './busiest.ts'
import { Counter, Histogram, keysOf, type MetricFamily } from './counts.ts'
import { RecentErrors } from './recent-errors.ts'
import { Rejections } from './rejections.ts'
import { ServiceTroubles } from './service-troubles.ts'

const RELOAD_OUTCOMES = ['applied', 'unchanged', 'refused'] as const
const SECRET_OUTCOMES = ['loaded', 'accepted', 'rejected', 'unusable'] as const

const MINT_OUTCOMES = ['ok', ...keysOf(TOKEN_PROBLEMS)] as const
/** Its other outcomes depend on the role. */
const MINTER_PROBLEMS = [...keysOf(TOKEN_PROBLEMS), ...PASSED_ON]
const LOOKUPS = keysOf<TokenResult>({ hit: 0, refreshing: 0, miss: 0, joined: 0, stale: 0, replayed: 0 })
const REPLAYS = ['accepted', 'rejected', 'failed', 'refused', 'passed'] as const

const BOUNDS_MS = [0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000]
const OVERHEAD_BOUNDS_MS = [0.05, 0.1, 0.25, ...BOUNDS_MS]

/** Clients may invent methods; those share one label, because labels must stay few. */
const METHODS = new Set(['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS', 'CONNECT', 'TRACE'])
const OTHER = 'OTHER'

const OVERLOAD_EPISODE_MS = 60_000

const STATUS_CLASSES = ['2xx', '3xx', '4xx', '5xx'] as const
type StatusClass = (typeof STATUS_CLASSES)[number]

export type Totals = ReturnType<Metrics['totals']>

const requestCounts = () => ({
  responses: new Counter<string, number>(
    'oap_requests_total',
    'Requests that have ended, by method and status sent; 499 if the client closed first.',
    ['method', 'status'],
  ),
  durations: new Histogram('oap_request_duration_seconds', 'Time from request head to end of response.', BOUNDS_MS),
  serviceResponses: new Histogram(
    'oap_service_response_seconds',
    'Time of the service to the head of its response.',
    BOUNDS_MS,
  ),
  overheads: new Histogram(
    'oap_overhead_seconds',
    'Time of a request without the wait for the response head of the service. WebSockets are left out.',
    OVERHEAD_BOUNDS_MS,
  ),
  refused: new Counter('oap_refused_total', 'Requests answered by the proxy itself.', ['code'], keysOf(PROBLEMS)),
  overloads: new Counter<string>('oap_overloaded_total', 'Requests refused at a limit.', ['limit'], keysOf(LIMITS)),
  callers: new Counter<string, StatusClass>(
    'oap_caller_requests_total',
    'Requests of each caller that have ended, by class of status.',
    ['caller', 'status'],
    [],
    STATUS_CLASSES,
  ),
  refusedCallers: new Counter('oap_callers_refused_total', 'Requests of no known caller, by reason.', ['reason']),
  handshakes: new Counter(
    'oap_tls_handshakes_failed_total',
    'TLS handshakes of clients that failed, by reason.',
    ['reason'],
    HANDSHAKE_FAILURES,
  ),
  lookups: new Counter('oap_token_lookups_total', 'Requests that needed a token, by result.', ['result'], LOOKUPS),
  replays: new Counter('oap_replays_total', 'Repeats after a rejected token, by outcome.', ['outcome'], REPLAYS),
})

const tokenCounts = () => ({
  mints: new Counter<MintReason, string>(
    'oap_mints_total',
    'Calls of the token endpoint, by reason and outcome.',
    ['reason', 'outcome'],
    MINT_REASONS,
    MINT_OUTCOMES,
  ),
  mintDurations: new Histogram('oap_mint_duration_seconds', 'Duration of one call of the token endpoint.', BOUNDS_MS),
  rejections: new Counter(
    'oap_token_rejections_total',
    'Requests whose token the service rejected, by what became of them.',
    ['outcome'],
    REJECTION_OUTCOMES,
  ),
  secretReloads: new Counter('oap_secret_reloads_total', 'Changes of the secret.', ['outcome'], SECRET_OUTCOMES),
  reloads: new Counter('oap_config_reloads_total', 'Reloads of the configuration.', ['outcome'], RELOAD_OUTCOMES),
})

const storeCounts = () => ({
  requests: new Counter<string, string>(
    'oap_fleet_requests_total',
    "Operations on the fleet's store, by operation and outcome.",
    ['operation', 'outcome'],
  ),
  durations: new Histogram('oap_fleet_request_duration_seconds', 'Duration of one operation on the store.', BOUNDS_MS),
})

const minterCounts = () => ({
  requests: new Counter<string>(
    'oap_minter_requests_total',
    'Requests for tokens between sidecars and minter, by outcome.',
    ['outcome'],
    MINTER_PROBLEMS,
  ),
})

export class Metrics {
  readonly errors = new RecentErrors()
  readonly orgs = new Busiest()
  readonly callers = new Busiest()
  /** Orgs that the token endpoint or the minter refuses. */
  readonly refusedOrgs = new Busiest()
  readonly rejections: Rejections
  readonly troubles = new ServiceTroubles()
  readonly requests = requestCounts()
  readonly tokens = tokenCounts()
  /** Answers of the service that clients got, by class of status: a service may tell the end of a token with any of them. */
  readonly #answers: Record<StatusClass, number> = { '2xx': 0, '3xx': 0, '4xx': 0, '5xx': 0 }
  evictions = 0
  /** The last request that met a limit. `at`: monotonic milliseconds. */
  #lastOverload = { org: '', detail: '', at: Number.NEGATIVE_INFINITY }
  /** Undefined for a proxy that shares no tokens: it has no metrics of a fleet. */
  readonly store: ReturnType<typeof storeCounts> | undefined

  /** Undefined for a proxy that is neither a minter nor a sidecar of one. */
  readonly minter: ReturnType<typeof minterCounts> | undefined
  readonly #isSidecar: boolean

  /** `isWell`: the service accepts the token that the Org has now. */
  constructor(
    { hasFleet = false, isMinter = false, isSidecar = false } = {},
    isWell: (org: OrgId) => boolean = () => false,
  ) {
    this.rejections = new Rejections(isWell)
    if (hasFleet) this.store = storeCounts()
    if (isMinter || isSidecar) this.minter = minterCounts()
    this.#isSidecar = isSidecar
  }

  /** The counts of these callers begin at zero. */
  use({ callers }: { readonly callers: readonly { readonly name: string }[] }): void {
    this.requests.callers.know(callers.map(({ name }) => name))
  }

  warnings(now: number): PartWarnings {
    return { ...this.troubles.warnings(now), ...this.rejections.warnings(), overloaded: this.#overloaded(now) }
  }

  #overloaded(now: number): Finding | undefined {
    const { org, detail, at } = this.#lastOverload
    const leftMs = at + OVERLOAD_EPISODE_MS - now
    if (leftMs <= 0) return undefined
    const text = `Requests get 503 overloaded, the last one of ${org}. ${detail} Find out why the service or the token endpoint is slow, or raise the limit.`
    return { text, leftMs }
  }

  requestEnded(record: RequestRecord): void {
    const { method, status, code, token, rejection, reason, caller, carriedAt, respondedAt, orgId } = record
    const durationMs = record.endedAt - record.startedAt
    this.requests.responses.add(METHODS.has(method) ? method : OTHER, status)
    this.requests.durations.record(durationMs)
    if (carriedAt !== undefined && respondedAt !== undefined)
      this.requests.serviceResponses.record(respondedAt - carriedAt)
    // A tunnel stays open for as long as its ends want. Its duration is no overhead.
    if (status !== SWITCHING_PROTOCOLS)
      this.requests.overheads.record(durationMs - waitedForServiceMs(record, record.endedAt))
    if (token !== 'none') this.requests.lookups.add(token)
    const replay = outcomeOfRepeat(record)
    if (replay !== undefined) this.requests.replays.add(replay)
    if (rejection !== undefined) this.tokens.rejections.add(rejection)
    if (caller !== undefined) this.requests.callers.add(caller, statusClassOf(status))
    if (code === undefined && respondedAt !== undefined) this.#answers[statusClassOf(status)]++
    this.rejections.requestEnded(record)
    this.troubles.requestEnded(record)
    const isError = (code !== undefined || status >= 400) && this.errors.requestEnded(record)
    if (orgId !== undefined) {
      this.orgs.add(orgId, isError, record.endedAt)
      const isRefused = code === 'org_access_refused' || (code === 'org_not_allowed' && record.isOfMinter)
      if (isRefused) this.refusedOrgs.add(orgId, true, record.endedAt)
    }
    if (caller !== undefined) this.callers.add(caller, isError, record.endedAt)
    if (code === 'caller_refused' && reason !== undefined) this.requests.refusedCallers.add(reason)
    if (code === 'overloaded' && reason !== undefined) {
      this.requests.overloads.add(reason)
      const org = orgId === undefined ? 'the App' : copyOfOrgId(orgId as OrgId)
      this.#lastOverload = { org, detail: record.detail ?? '', at: record.endedAt }
    }
    if (code !== undefined && code !== 'client_closed') this.requests.refused.add(code)
  }

  mintSettled({ reason, durationMs, error }: SettledMint): void {
    this.tokens.mints.add(reason, error?.code ?? 'ok')
    this.tokens.mintDurations.record(durationMs)
  }

  totals() {
    const { mints, refusedMints, failedMints } = this.#mints()
    return {
      requests: this.requests.responses.total(),
      answers: { ...this.#answers },
      errors: this.errors.totals(),
      serviceTroubles: this.troubles.totals(),
      /** Of a sidecar, its calls of the minter. */
      mints,
      /** The token endpoint or the minter refused the org. */
      refusedMints,
      /** Every other failure. */
      failedMints,
    }
  }

  #mints() {
    const calls = this.#isSidecar ? this.minter?.requests : undefined
    const withOutcome = (outcome?: string) => calls?.total(outcome) ?? this.tokens.mints.total(undefined, outcome)
    const [mints, ok] = [withOutcome(), withOutcome('ok')]
    const refusedMints = withOutcome('org_access_refused') + withOutcome('org_not_allowed')
    return { mints, refusedMints, failedMints: mints - refusedMints - ok }
  }

  families(held: Status, version: string): MetricFamily[] {
    const help = "1 if the fleet's store answers, 0 if this replica mints for itself."
    const available = gauge('oap_fleet_available', help, held.fleet?.state === 'available' ? 1 : 0)
    const minterHelp = '1 if the minter answers, 0 if it is lost, or refuses this sidecar.'
    const minter = gauge('oap_minter_available', minterHelp, held.isMinterAvailable ? 1 : 0)
    const counted = [this.requests, this.tokens, this.store ?? {}, this.minter ?? {}].flatMap(
      (each): { family(): MetricFamily }[] => Object.values(each),
    )
    return [
      ...counted.map((each) => each.family()),
      this.troubles.counter.family(),
      ...(this.store === undefined ? [] : [available]),
      ...(this.#isSidecar ? [minter] : []),
      count('oap_token_evictions_total', 'Tokens evicted from a full cache.', this.evictions),
      gauge('oap_requests_in_flight', 'Requests in progress.', held.requestsInFlight),
      gauge('oap_tunnels', 'WebSockets that are open.', held.tunnels),
      gauge('oap_orgs_paused', 'Orgs for which no mint is made now, because the last ones failed.', held.orgsPaused),
      gauge(
        'oap_orgs_refused',
        'Orgs whose requests the token endpoint or the minter refused in the last minutes.',
        this.refusedOrgs.size(clock.now()),
      ),
      gauge('oap_mint_pace_ratio', 'Share of tokens.mintRate in use; less after answers that limit it.', held.mintPace),
      count('oap_log_lines_dropped_total', 'Lines of the log that nobody read in time.', held.logLinesDropped),
      count('oap_log_lines_omitted_total', 'Lines of refused requests left out of the log.', held.logLinesOmitted),
      ...(held.spansDropped === undefined
        ? []
        : [count('oap_spans_dropped_total', 'Spans that the collector did not get.', held.spansDropped)]),
      count('oap_connections_refused_total', 'Client connections beyond a limit.', held.connectionsRefused),
      gauge('oap_cached_tokens', 'Tokens in the cache.', held.cachedTokens),
      {
        name: 'oap_origin_connections',
        type: 'gauge',
        help: 'Connections to the service, by state.',
        values: Object.entries({ ...held.originConnections, tunnel: held.tunnels }).map(([state, value]) => {
          return { labels: { state }, value }
        }),
      },
      {
        name: 'oap_build_info',
        type: 'gauge',
        help: 'Versions; the value is always 1.',
        values: [{ labels: { version, node: process.versions.node }, value: 1 }],
      },
    ]
  }
}

const unlabelled = (type: 'counter' | 'gauge') => (name: string, help: string, value: number) => {
  return { name, type, help, values: [{ labels: {}, value }] }
}
const count = unlabelled('counter')
const gauge = unlabelled('gauge')

/** Undefined if the service did not reject the token. A repeat without an answer, or for which the proxy got no token, has failed. */
function outcomeOfRepeat({ rejection, isRepeated }: RequestRecord): (typeof REPLAYS)[number] | undefined {
  switch (rejection) {
    case 'repeated':
      return 'accepted'
    case 'useless':
      return 'rejected'
    case 'not_kept':
      return 'refused'
    case 'passed':
      return isRepeated ? 'rejected' : 'passed'
    case undefined:
      return isRepeated ? 'failed' : undefined
  }
}

/**
 * An opened WebSocket (101) is a success. Status 0 stands for a request that the proxy broke off when it stopped, and one above 599
 * counts as a failure of the service (RFC 9110 §15).
 */
function statusClassOf(status: number): StatusClass {
  if (status < 100 || status >= 500) return '5xx'
  if (status >= 400) return '4xx'
  return status >= 300 ? '3xx' : '2xx'
}
