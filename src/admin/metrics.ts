/** What is counted, under the names that Prometheus sees. No label ever holds anything that a client or an Org chose. */

import type { ErrorCode } from '../errors.ts'
import type { GatewayObserver, ReplayOutcome, RequestRecord, TokenResult } from '../gateway/request-record.ts'
import { PROBLEMS } from '../http/problem.ts'
import { LabelledCounter, PairCounter } from './counters.ts'
import { histogramFamily, type MetricFamily, single } from './exposition.ts'
import { Histogram, type HistogramSnapshot } from './histogram.ts'
import { ResponseCounter } from './response-counter.ts'

/** Read when somebody asks, instead of being kept up to date. */
export interface Gauges {
  readonly version: string
  requestsInFlight(): number
  cachedTokens(): number
  lifetimeEstimateMs(): number
  /** By state. */
  originConnections(): Readonly<Record<string, number>>
}

export interface MintReport {
  /** Why it was made: a closed set of the token cache's. */
  readonly reason: string
  /** `ok`, or the code of the failure. */
  readonly outcome: string
  readonly durationMs: number
}

export interface Totals {
  readonly requests: number
  /** Answered by the proxy itself instead of the service. */
  readonly refused: number
  /** Answered by the service with a 5xx. */
  readonly serviceErrors: number
  readonly mints: number
  readonly failedMints: number
  readonly rejections: number
  readonly evictions: number
  readonly replays: number
  readonly lookups: Readonly<Record<LookupResult, number>>
  readonly durations: HistogramSnapshot
}

export type LookupResult = Exclude<TokenResult, 'none'>

const LOOKUP_RESULTS: readonly LookupResult[] = ['hit', 'refreshing', 'miss', 'joined', 'stale', 'replayed']
const REPLAY_OUTCOMES: readonly ReplayOutcome[] = ['accepted', 'rejected', 'failed', 'refused', 'passed']

const REQUEST_BOUNDS_MS = [0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000]
const OVERHEAD_BOUNDS_MS = [0.05, 0.1, 0.25, ...REQUEST_BOUNDS_MS]

/** A tunnel's length is that of a conversation, not of an answer. */
const SWITCHING_PROTOCOLS = 101

export class Metrics implements GatewayObserver {
  readonly #responses = new ResponseCounter()
  readonly #durations = new Histogram(REQUEST_BOUNDS_MS)
  readonly #overheads = new Histogram(OVERHEAD_BOUNDS_MS)
  readonly #refused = new LabelledCounter<ErrorCode>('code', Object.keys(PROBLEMS) as ErrorCode[])
  readonly #lookups = new LabelledCounter<LookupResult>('result', LOOKUP_RESULTS)
  readonly #replays = new LabelledCounter<ReplayOutcome>('outcome', REPLAY_OUTCOMES)
  readonly #mints = new PairCounter<string, string>(['reason', 'outcome'], [], [])
  readonly #mintDurations = new Histogram(REQUEST_BOUNDS_MS)
  readonly #secretReloads = new LabelledCounter<string>('outcome', [])
  #serviceErrors = 0
  #failedMints = 0
  #rejections = 0
  #evictions = 0

  requestEnded(record: RequestRecord): void {
    const { status, code, token } = record
    const durationMs = record.endedAt - record.startedAt
    this.#responses.add(record.method, status)
    this.#durations.record(durationMs)
    if (status !== SWITCHING_PROTOCOLS) this.#overheads.record(durationMs - waitedForOriginMs(record))
    if (token !== 'none') this.#lookups.add(token)
    if (code === undefined) {
      if (status >= 500) this.#serviceErrors++
    } else if (code !== 'client_closed') this.#refused.add(code)
  }

  replaySettled(outcome: ReplayOutcome): void {
    this.#replays.add(outcome)
  }

  mintEnded({ reason, outcome, durationMs }: MintReport): void {
    this.#mints.add(reason, outcome)
    this.#mintDurations.record(durationMs)
    if (outcome !== 'ok') this.#failedMints++
  }

  tokenRejected(): void {
    this.#rejections++
  }

  tokenEvicted(): void {
    this.#evictions++
  }

  secretReloaded(outcome: string): void {
    this.#secretReloads.add(outcome)
  }

  totals(): Totals {
    const lookups = { hit: 0, refreshing: 0, miss: 0, joined: 0, stale: 0, replayed: 0 }
    for (const result of LOOKUP_RESULTS) lookups[result] = this.#lookups.of(result)
    return {
      requests: this.#responses.total,
      refused: this.#refused.total,
      serviceErrors: this.#serviceErrors,
      mints: this.#mintDurations.snapshot().count,
      failedMints: this.#failedMints,
      rejections: this.#rejections,
      evictions: this.#evictions,
      replays: this.#replays.of('accepted') + this.#replays.of('rejected'),
      lookups,
      durations: this.#durations.snapshot(),
    }
  }

  families(gauges: Gauges): MetricFamily[] {
    return [...this.#requestFamilies(gauges), ...this.#tokenFamilies(gauges), ...processFamilies(gauges)]
  }

  #requestFamilies(gauges: Gauges): MetricFamily[] {
    return [
      {
        name: 'oap_requests_total',
        type: 'counter',
        help: 'Requests that have ended, by method and by status sent; 499 where the client had gone before.',
        samples: this.#responses.samples(),
      },
      histogramFamily(
        'oap_request_duration_seconds',
        'From the head of a request to the last byte of its response.',
        this.#durations.snapshot(),
      ),
      histogramFamily(
        'oap_overhead_seconds',
        'The same without the wait for the head of the response of the service. Tunnels are left out.',
        this.#overheads.snapshot(),
      ),
      single('oap_requests_in_flight', 'gauge', 'Requests at this moment.', gauges.requestsInFlight()),
      {
        name: 'oap_refused_total',
        type: 'counter',
        help: 'Requests that the proxy answered itself, by problem code.',
        samples: this.#refused.samples(),
      },
      {
        name: 'oap_origin_connections',
        type: 'gauge',
        help: 'Connections to the service, by state.',
        samples: Object.entries(gauges.originConnections()).map(([state, value]) => ({ labels: { state }, value })),
      },
    ]
  }

  #tokenFamilies(gauges: Gauges): MetricFamily[] {
    return [
      {
        name: 'oap_token_lookups_total',
        type: 'counter',
        help: 'Requests that needed a token, by how it was come by.',
        samples: this.#lookups.samples(),
      },
      {
        name: 'oap_mints_total',
        type: 'counter',
        help: 'Tokens asked for at the token endpoint, by reason and outcome.',
        samples: this.#mints.samples(),
      },
      histogramFamily(
        'oap_mint_duration_seconds',
        'One mint, with its retries and its wait for a place in the budget.',
        this.#mintDurations.snapshot(),
      ),
      single(
        'oap_token_lifetime_estimate_seconds',
        'gauge',
        'How long a token is assumed to live.',
        gauges.lifetimeEstimateMs() / 1000,
      ),
      single('oap_token_rejections_total', 'counter', 'Tokens that the service rejected.', this.#rejections),
      {
        name: 'oap_replays_total',
        type: 'counter',
        help: 'Requests whose token was rejected, by what came of repeating them.',
        samples: this.#replays.samples(),
      },
      single('oap_cached_tokens', 'gauge', 'Tokens held.', gauges.cachedTokens()),
      single(
        'oap_token_evictions_total',
        'counter',
        'Tokens dropped to make room; raise tokens.maxOrgs if it grows.',
        this.#evictions,
      ),
      {
        name: 'oap_secret_reloads_total',
        type: 'counter',
        help: 'Changes of the secret file, by outcome.',
        samples: this.#secretReloads.samples(),
      },
    ]
  }
}

/** No longer than the record tells: of an origin that never answered, the wait lasted until the end. */
function waitedForOriginMs({ dispatchedAt, respondedAt, endedAt }: RequestRecord): number {
  return dispatchedAt === undefined ? 0 : (respondedAt ?? endedAt) - dispatchedAt
}

function processFamilies(gauges: Gauges): MetricFamily[] {
  const labels = { version: gauges.version, node: process.versions.node }
  return [{ name: 'oap_build_info', type: 'gauge', help: 'Versions; always 1.', samples: [{ labels, value: 1 }] }]
}
