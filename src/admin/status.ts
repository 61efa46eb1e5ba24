/** What `/status` says: the state of the program as one JSON document. It never holds a token. */

import type { ReadinessCheck } from './health.ts'
import type { History, Series } from './history.ts'
import type { Gauges, Metrics, Totals } from './metrics.ts'
import type { ErrorReport, RecentErrors } from './recent-errors.ts'

/** One Org as the token cache knows it. */
export interface OrgReport {
  readonly orgId: string
  readonly state: string
  /** Undefined where no token is held. */
  readonly ageMs: number | undefined
  readonly estimateMs: number | undefined
  readonly lastRefusal: RefusalReport | undefined
}

export interface RefusalReport {
  readonly code: string
  /** Status with which the token endpoint refused. */
  readonly status: number | undefined
  readonly agoMs: number
}

export interface StatusSources {
  readonly readiness: () => readonly ReadinessCheck[]
  readonly metrics: Metrics
  readonly gauges: Gauges
  readonly errors: RecentErrors
  readonly orgs: () => readonly OrgReport[]
}

export interface StatusDocument {
  readonly program: {
    readonly version: string
    readonly node: string
    /** ISO 8601; another one says that the program was restarted. */
    readonly startedAt: string
    readonly uptimeMs: number
  }
  readonly isReady: boolean
  readonly checks: readonly ReadinessCheck[]
  readonly totals: Omit<Totals, 'durations'> & {
    readonly requestsInFlight: number
    readonly cachedTokens: number
    readonly lifetimeEstimateMs: number
  }
  readonly history: Series
  /** Those that match, those in trouble first, then the latest tokens; at most as many as were asked for. */
  readonly orgs: readonly OrgReport[]
  /** How many match in all. */
  readonly orgCount: number
  readonly errors: readonly ErrorReport[]
}

export interface StatusQuery {
  readonly maxOrgs: number
  /** Part of an org id; empty: all. */
  readonly search: string
}

/** `now` in monotonic milliseconds since the start of the process. */
export function statusDocument(
  sources: StatusSources,
  history: History,
  query: StatusQuery,
  now: number,
): StatusDocument {
  const { metrics, gauges } = sources
  const checks = sources.readiness()
  const { durations: _, ...totals } = metrics.totals()
  const orgs = sources.orgs().filter(({ orgId }) => orgId.includes(query.search))
  return {
    program: {
      version: gauges.version,
      node: process.versions.node,
      startedAt: new Date(performance.timeOrigin).toISOString(),
      uptimeMs: Math.round(now),
    },
    isReady: checks.every(({ isOk }) => isOk),
    checks,
    totals: {
      ...totals,
      requestsInFlight: gauges.requestsInFlight(),
      cachedTokens: gauges.cachedTokens(),
      lifetimeEstimateMs: gauges.lifetimeEstimateMs(),
    },
    history: history.series(),
    orgs: orgs.sort(byNeedForAttention).slice(0, query.maxOrgs),
    orgCount: orgs.length,
    errors: sources.errors.reports(now),
  }
}

function byNeedForAttention(a: OrgReport, b: OrgReport): number {
  const troubles = Number(b.lastRefusal !== undefined) - Number(a.lastRefusal !== undefined)
  return troubles !== 0 ? troubles : (a.ageMs ?? 0) - (b.ageMs ?? 0)
}
