/** All metrics of the program under the names that Prometheus sees: what was counted, and what is read when asked for. */

import { labelled, type MetricFamily, single } from './exposition.ts'
import { RequestMetrics, type RequestTotals } from './request-metrics.ts'
import { TokenMetrics, type TokenTotals } from './token-metrics.ts'

/** How things stand at the moment of asking. */
export interface Gauges {
  readonly version: string
  requestsInFlight(): number
  lifetimeEstimateMs(): number
  cachedTokens(): number
  /** By state. */
  originConnections(): Readonly<Record<string, number>>
}

export interface Totals extends RequestTotals, TokenTotals {}

export class Metrics {
  /** To be told of requests, … */
  readonly requests = new RequestMetrics()
  /** … and of tokens. */
  readonly tokens = new TokenMetrics()

  totals(): Totals {
    return { ...this.requests.totals(), ...this.tokens.totals() }
  }

  families(gauges: Gauges): MetricFamily[] {
    return [...this.requests.families(), ...this.tokens.families(), ...gaugeFamilies(gauges)]
  }
}

function gaugeFamilies(gauges: Gauges): MetricFamily[] {
  const connections = Object.entries(gauges.originConnections())
  const build = { version: gauges.version, node: process.versions.node }
  return [
    single('oap_requests_in_flight', 'gauge', 'Requests at this moment.', gauges.requestsInFlight()),
    single('oap_cached_tokens', 'gauge', 'Tokens held.', gauges.cachedTokens()),
    single(
      'oap_token_lifetime_estimate_seconds',
      'gauge',
      'How long a token is assumed to live.',
      gauges.lifetimeEstimateMs() / 1000,
    ),
    labelled(
      'oap_origin_connections',
      'gauge',
      'Connections to the service, by state.',
      connections.map(([state, value]) => ({ labels: { state }, value })),
    ),
    labelled('oap_build_info', 'gauge', 'Versions; always 1.', [{ labels: build, value: 1 }]),
  ]
}
