/** What `/status` says: the state of the program as one JSON document. It never holds a token. */

import { performance } from 'node:perf_hooks'
import type { OrgStatus } from '../token/token-status.ts'
import type { ReadinessCheck } from './health.ts'
import type { History, Series } from './history.ts'
import type { Gauges, Metrics, Totals } from './metrics.ts'
import type { ErrorReport, RecentErrors } from './recent-errors.ts'

export interface StatusSources {
  readonly readiness: () => readonly ReadinessCheck[]
  readonly metrics: Metrics
  readonly gauges: Gauges
  readonly errors: RecentErrors
  readonly tokens: { status(): readonly OrgStatus[] }
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
  readonly totals: Totals & {
    readonly requestsInFlight: number
    readonly cachedTokens: number
    readonly lifetimeEstimateMs: number
  }
  readonly history: Series
  /** Those that match, those in trouble first, then the latest tokens; at most as many as were asked for. */
  readonly orgs: readonly OrgStatus[]
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
  const orgs = sources.tokens.status().filter(({ org }) => org.includes(query.search))
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
      ...metrics.totals(),
      requestsInFlight: gauges.requestsInFlight(),
      cachedTokens: gauges.cachedTokens(),
      lifetimeEstimateMs: gauges.lifetimeEstimateMs(),
    },
    history: history.series(),
    orgs: orgs.toSorted(byNeedForAttention).slice(0, query.maxOrgs).map(inWholeMs),
    orgCount: orgs.length,
    errors: sources.errors.reports(now),
  }
}

/** A token past its estimate is no trouble: nobody has needed it since. */
const TROUBLE: Readonly<Record<OrgStatus['state'], number>> = {
  refused: 0,
  rejected: 1,
  stale: 2,
  refreshing: 2,
  fresh: 2,
}

function byNeedForAttention(a: OrgStatus, b: OrgStatus): number {
  return TROUBLE[a.state] - TROUBLE[b.state] || (a.ageMs ?? 0) - (b.ageMs ?? 0)
}

function inWholeMs({ ageMs, lifetimeMs, lastRefusal, ...rest }: OrgStatus): OrgStatus {
  return {
    ...rest,
    ageMs: ageMs === undefined ? undefined : Math.round(ageMs),
    lifetimeMs: lifetimeMs === undefined ? undefined : Math.round(lifetimeMs),
    lastRefusal: lastRefusal === undefined ? undefined : { ...lastRefusal, agoMs: Math.round(lastRefusal.agoMs) },
  }
}
