/** All metrics of the program: counts kept by the parts below, and gauges read at a scrape. */

import { Histogram, keysOf, LabelledCounter, type MetricFamily, PairCounter, single } from './counts.ts'
import { BOUNDS_MS, RequestMetrics, type RequestTotals } from './request-metrics.ts'
import { TokenMetrics, type TokenTotals } from './token-metrics.ts'

/** Values that are read at a scrape. */
export interface Gauges {
  readonly version: string
  requestsInFlight(): number
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

export interface Totals extends RequestTotals, TokenTotals {}

export class Metrics {
  readonly requests = new RequestMetrics()
  readonly tokens = new TokenMetrics()
  readonly #reloads = new LabelledCounter<ReloadOutcome>(
    { name: 'oap_config_reloads_total', help: 'Reloads of the configuration, by outcome.' },
    'outcome',
    RELOAD_OUTCOMES,
  )
  /** Undefined for a proxy that shares no tokens: it has no metrics of a fleet. */
  readonly fleet: FleetMetrics | undefined

  constructor({ hasFleet = false }: { readonly hasFleet?: boolean } = {}) {
    this.fleet = hasFleet ? new FleetMetrics() : undefined
  }

  configReloaded(outcome: ReloadOutcome): void {
    this.#reloads.add(outcome)
  }

  totals(): Totals {
    return { ...this.requests.totals(), ...this.tokens.totals() }
  }

  families(gauges: Gauges): MetricFamily[] {
    return [
      ...this.requests.families(),
      ...this.tokens.families(),
      this.#reloads.family(),
      ...(this.fleet?.families() ?? []),
      ...gaugeFamilies(gauges),
    ]
  }
}

function gaugeFamilies(gauges: Gauges): MetricFamily[] {
  const connections = Object.entries(gauges.originConnections())
  const build = { version: gauges.version, node: process.versions.node }
  return [
    single('oap_requests_in_flight', 'gauge', 'Requests in progress.', gauges.requestsInFlight()),
    single(
      'oap_mints_paused_seconds',
      'gauge',
      'Time until the next call of the token endpoint, if no Org gets a token; otherwise 0.',
      gauges.mintsPausedMs() / 1000,
    ),
    single(
      'oap_log_lines_dropped_total',
      'counter',
      'Lines of the log that were lost because nobody read them.',
      gauges.logLinesDropped(),
    ),
    single(
      'oap_connections_refused_total',
      'counter',
      'Client connections that were refused, because too many were open.',
      gauges.connectionsRefused(),
    ),
    single('oap_cached_tokens', 'gauge', 'Tokens in the cache.', gauges.cachedTokens()),
    single(
      'oap_token_lifetime_estimate_seconds',
      'gauge',
      'Estimated lifetime of a token.',
      gauges.lifetimeEstimateMs() / 1000,
    ),
    {
      name: 'oap_origin_connections',
      type: 'gauge',
      help: 'Connections to the service, by state.',
      values: connections.map(([state, value]) => ({ labels: { state }, value })),
    },
    {
      name: 'oap_build_info',
      type: 'gauge',
      help: 'Versions; the value is always 1.',
      values: [{ labels: build, value: 1 }],
    },
  ]
}

/** Outcomes that an operation on the store can have, beside those that all can have. */
const ANSWERS = {
  claim: ['token', 'acquired', 'held', 'unchanged'],
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
  #isAvailable = false

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

  storeLost(): void {
    this.#isAvailable = false
  }

  storeBack(): void {
    this.#isAvailable = true
  }

  families(): MetricFamily[] {
    const help = "1 if the fleet's store answers, 0 if this replica mints for itself."
    return [
      this.#asked.family(),
      this.#durations.family(),
      single('oap_fleet_available', 'gauge', help, this.#isAvailable ? 1 : 0),
    ]
  }
}
