/** All metrics of the program: counts kept by the parts below, and gauges read at a scrape. */

import { LabelledCounter } from './counters.ts'
import { labelled, type MetricFamily, single } from './exposition.ts'
import { FleetMetrics } from './fleet-metrics.ts'
import { RequestMetrics, type RequestTotals } from './request-metrics.ts'
import { TokenMetrics, type TokenTotals } from './token-metrics.ts'

/** Values that are read at a scrape. */
export interface Gauges {
  readonly version: string
  requestsInFlight(): number
  lifetimeEstimateMs(): number
  cachedTokens(): number
  /** Number of connections by state. */
  originConnections(): Readonly<Record<string, number>>
}

/** `failed`: the configuration is good, but could not be put in use. */
export type ReloadOutcome = 'applied' | 'unchanged' | 'refused' | 'failed'

const NO_RELOADS: Readonly<Record<ReloadOutcome, number>> = { applied: 0, unchanged: 0, refused: 0, failed: 0 }

export interface Totals extends RequestTotals, TokenTotals {}

export class Metrics {
  readonly requests = new RequestMetrics()
  readonly tokens = new TokenMetrics()
  readonly #reloads = new LabelledCounter<ReloadOutcome>('outcome', NO_RELOADS)
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
    const reloads = labelled(
      'oap_config_reloads_total',
      'counter',
      'Reloads of the configuration, by outcome.',
      this.#reloads.samples(),
    )
    return [
      ...this.requests.families(),
      ...this.tokens.families(),
      reloads,
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
    single('oap_cached_tokens', 'gauge', 'Tokens in the cache.', gauges.cachedTokens()),
    single(
      'oap_token_lifetime_estimate_seconds',
      'gauge',
      'Estimated lifetime of a token.',
      gauges.lifetimeEstimateMs() / 1000,
    ),
    labelled(
      'oap_origin_connections',
      'gauge',
      'Connections to the service, by state.',
      connections.map(([state, value]) => ({ labels: { state }, value })),
    ),
    labelled('oap_build_info', 'gauge', 'Versions; the value is always 1.', [{ labels: build, value: 1 }]),
  ]
}
