/** All metrics of the program: counts that the events add to, and gauges that are read at a scrape. No label holds an org. */

import {
  MINT_REASONS,
  type MintReason,
  REJECTION_KINDS,
  SECRET_RELOAD_OUTCOMES,
  type SettledMint,
} from '../token/token-source.ts'
import { Histogram, keysOf, LabelledCounter, type MetricFamily, PairCounter, single } from './counts.ts'
import { BOUNDS_MS, RequestMetrics, type RequestTotals } from './request-metrics.ts'

/** Values that are read at a scrape. */
export interface Gauges {
  readonly version: string
  requestsInFlight(): number
  requestsWaitingForToken(): number
  /** Since the start. */
  connectionsRefused(): number
  lifetimeEstimateMs(): number
  cachedTokens(): number
  /** 0 unless the mints of all orgs are paused. */
  mintsPausedMs(): number
  logLinesDropped(): number
  /** Number of connections by state. */
  originConnections(): Readonly<Record<string, number>>
}

/** `failed`: the configuration is good, but could not be applied. */
export type ReloadOutcome = (typeof RELOAD_OUTCOMES)[number]
const RELOAD_OUTCOMES = ['applied', 'unchanged', 'refused', 'failed'] as const

type MintOutcome = SettledMint['outcome']

const MINT_OUTCOMES: Readonly<Record<MintOutcome, 0>> = {
  ok: 0,
  org_access_refused: 0,
  app_credentials_rejected: 0,
  token_response_invalid: 0,
  token_endpoint_unavailable: 0,
  token_endpoint_rate_limited: 0,
  token_endpoint_timeout: 0,
}

export interface Totals extends RequestTotals {
  readonly mints: number
  /** The token endpoint refused the org. */
  readonly refusedMints: number
  /** Every other failure. */
  readonly failedMints: number
}

export class Metrics {
  readonly requests = new RequestMetrics()
  readonly #mints = new PairCounter<MintReason, MintOutcome>(
    { name: 'oap_mints_total', help: 'Calls of the token endpoint, by reason and outcome.' },
    ['reason', 'outcome'],
  )
  readonly #mintDurations = new Histogram(
    { name: 'oap_mint_duration_seconds', help: 'Duration of one call of the token endpoint.' },
    BOUNDS_MS,
  )
  readonly secretReloads = new LabelledCounter(
    { name: 'oap_secret_reloads_total', help: 'Changes of the secret file, by outcome.' },
    'outcome',
    SECRET_RELOAD_OUTCOMES,
  )
  readonly reloads = new LabelledCounter(
    { name: 'oap_config_reloads_total', help: 'Reloads of the configuration, by outcome.' },
    'outcome',
    RELOAD_OUTCOMES,
  )
  readonly rejections = new LabelledCounter(
    { name: 'oap_token_rejection_kinds_total', help: 'Rejections by the service, by what they turned out to be.' },
    'kind',
    REJECTION_KINDS,
  )
  evictions = 0
  /** Undefined for a proxy that shares no tokens: it has no metrics of a fleet. */
  readonly fleet: FleetMetrics | undefined

  constructor({ hasFleet = false }: { readonly hasFleet?: boolean } = {}) {
    this.fleet = hasFleet ? new FleetMetrics() : undefined
    for (const reason of MINT_REASONS) this.#mints.open(reason, keysOf(MINT_OUTCOMES))
  }

  mintSettled({ reason, outcome, durationMs }: SettledMint): void {
    this.#mints.add(reason, outcome)
    this.#mintDurations.record(durationMs)
  }

  totals(): Totals {
    const outcomes = keysOf(MINT_OUTCOMES).map((outcome) => this.#mints.totalWith(outcome))
    const [mints, refusedMints] = [outcomes.reduce((a, b) => a + b), this.#mints.totalWith('org_access_refused')]
    const failedMints = mints - refusedMints - this.#mints.totalWith('ok')
    return { ...this.requests.totals(), mints, refusedMints, failedMints }
  }

  families(gauges: Gauges): MetricFamily[] {
    const count = (name: string, help: string, value: number) => single(name, 'counter', help, value)
    const gauge = (name: string, help: string, value: number) => single(name, 'gauge', help, value)
    return [
      ...this.requests.families(),
      this.#mints.family(),
      this.#mintDurations.family(),
      count('oap_token_rejections_total', 'Rejections by the service.', this.rejections.total),
      this.rejections.family(),
      count('oap_token_evictions_total', 'Tokens evicted from a full cache.', this.evictions),
      this.secretReloads.family(),
      this.reloads.family(),
      ...(this.fleet?.families() ?? []),
      gauge('oap_requests_in_flight', 'Requests in progress.', gauges.requestsInFlight()),
      gauge(
        'oap_mints_paused_seconds',
        'If no Org gets a token, time to the next mint.',
        gauges.mintsPausedMs() / 1000,
      ),
      count('oap_log_lines_dropped_total', 'Lines of the log that nobody read in time.', gauges.logLinesDropped()),
      count('oap_connections_refused_total', 'Client connections beyond a limit.', gauges.connectionsRefused()),
      gauge('oap_cached_tokens', 'Tokens in the cache.', gauges.cachedTokens()),
      gauge(
        'oap_token_lifetime_estimate_seconds',
        'Estimated lifetime of a token.',
        gauges.lifetimeEstimateMs() / 1000,
      ),
      {
        name: 'oap_origin_connections',
        type: 'gauge',
        help: 'Connections to the service, by state.',
        values: Object.entries(gauges.originConnections()).map(([state, value]) => ({ labels: { state }, value })),
      },
      {
        name: 'oap_build_info',
        type: 'gauge',
        help: 'Versions; the value is always 1.',
        values: [{ labels: { version: gauges.version, node: process.versions.node }, value: 1 }],
      },
    ]
  }
}

/** Outcomes that an operation on the store can have, beside those that all can have. */
const ANSWERS = {
  claim: ['token', 'acquired', 'held'],
  publish: ['published', 'lost'],
  release: ['ok', 'lost'],
  forget: ['ok'],
  probe: ['ok'],
} as const
const FAILURES = ['timeout', 'error', 'skipped'] as const

type Operation = keyof typeof ANSWERS
type Outcome = (typeof ANSWERS)[Operation][number] | (typeof FAILURES)[number]

/** Counts of the operations on the fleet's store, and its availability. */
export class FleetMetrics {
  readonly #asked = new PairCounter<Operation | 'open', Outcome | 'unusable'>(
    { name: 'oap_fleet_requests_total', help: "Operations on the fleet's store, by operation and outcome." },
    ['operation', 'outcome'],
  )
  readonly #durations = new Histogram(
    { name: 'oap_fleet_request_duration_seconds', help: "Duration of one operation on the fleet's store." },
    BOUNDS_MS,
  )
  isAvailable = false

  constructor() {
    for (const operation of keysOf(ANSWERS)) this.#asked.open(operation, [...ANSWERS[operation], ...FAILURES])
    this.#asked.open('open', ['unusable'])
  }

  storeAsked(operation: Operation, outcome: Outcome, durationMs: number): void {
    this.#asked.add(operation, outcome)
    if (outcome !== 'skipped') this.#durations.record(durationMs)
  }

  valueUnusable(): void {
    this.#asked.add('open', 'unusable')
  }

  families(): MetricFamily[] {
    const help = "1 if the fleet's store answers, 0 if this replica mints for itself."
    return [
      this.#asked.family(),
      this.#durations.family(),
      single('oap_fleet_available', 'gauge', help, this.isAvailable ? 1 : 0),
    ]
  }
}
