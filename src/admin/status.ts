/** `/status`: the state of the program as one JSON document. It never holds a token. */

import { hostname } from 'node:os'
import { performance } from 'node:perf_hooks'
import type { OrgStatus, TokenCache } from '../token/token-cache.ts'
import type { History, RecentTotals, Series } from './history.ts'
import type { Gauges, Metrics, ReloadOutcome, Totals } from './metrics.ts'
import type { ErrorReport, RecentErrors } from './recent-errors.ts'
import type { Warning, Warnings } from './warnings.ts'

export interface ReadinessCheck {
  readonly name: string
  readonly isOk: boolean
  /** The reason, true for this value of `isOk`. It names no org, because probes may come from anywhere. */
  readonly detail?: string | undefined
}

/** The service that the proxy calls, and the App it calls as. */
export interface ServiceIdentity {
  readonly baseUrl: string
  readonly appId: string
}

/** The configuration in use. */
export interface ConfigurationStatus {
  /** ISO 8601: the start, or the last reload that changed something. */
  readonly takenOverAt: string
  /** Outcome of the last reload, if there was one. */
  readonly lastReload: ReloadOutcome | undefined
  /** Every setting as it was written; secrets are masked. */
  readonly settings: Readonly<Record<string, string>>
}

export interface CallerStatus {
  readonly name: string
  /** Since the start. */
  readonly requests: number
  readonly requestsInFlight: number
}

/** The store through which replicas share their tokens. */
export interface FleetStatus {
  readonly state: 'connecting' | 'available' | 'lost'
  /** Why the store was lost; empty while it is available. */
  readonly reason: string
}

/** The parts of the program that the admin listener shows, and the tokens that it purges. */
export interface AdminSources {
  readonly service: ServiceIdentity
  readonly configuration: () => ConfigurationStatus
  readonly callers: () => readonly CallerStatus[]
  readonly readiness: () => readonly ReadinessCheck[]
  readonly metrics: Metrics
  readonly gauges: Gauges
  readonly errors: RecentErrors
  readonly tokens: Pick<TokenCache, 'status' | 'purge' | 'purgeAll'>
  /** Ends the pauses and limits of mints. */
  readonly resumeMints: () => void
  readonly warnings: Warnings
  /** Undefined for a proxy that shares no tokens. */
  readonly fleet?: { readonly status: FleetStatus } | undefined
}

export interface StatusDocument {
  readonly program: {
    readonly version: string
    readonly node: string
    readonly host: string
    readonly pid: number
    /** ISO 8601. A new value means that the program was restarted. */
    readonly startedAt: string
    readonly uptimeMs: number
  }
  readonly service: ServiceIdentity
  readonly configuration: ConfigurationStatus
  /** Empty if no callers are configured. */
  readonly callers: readonly CallerStatus[]
  readonly isReady: boolean
  readonly checks: readonly ReadinessCheck[]
  /** Missing for a proxy that shares no tokens. */
  readonly fleet?: FleetStatus | undefined
  /** The bad states that are present, each with what to do. */
  readonly warnings: readonly Warning[]
  /** Since the start, and as of now. */
  readonly totals: Totals & {
    readonly requestsInFlight: number
    /** Of those in flight: they wait for a connection to the service. */
    readonly requestsWaiting: number
    /** Of those in flight: they wait for a token. */
    readonly requestsWaitingForToken: number
    readonly cachedTokens: number
    readonly lifetimeEstimateMs: number
  }
  readonly recent: RecentTotals
  readonly history: Series
  /** The matching orgs: those in trouble first, then the newest tokens. At most as many as the query asked for. */
  readonly orgs: readonly OrgStatus[]
  /** Number of all matching orgs. */
  readonly orgCount: number
  readonly errors: readonly ErrorReport[]
}

export interface StatusQuery {
  readonly maxOrgs: number
  /** Part of an org id; all orgs if empty. */
  readonly search: string
}

/** `now` in monotonic milliseconds since the start of the process. */
export function statusDocument(
  sources: AdminSources,
  history: History,
  query: StatusQuery,
  now: number,
): StatusDocument {
  const { metrics, gauges, service } = sources
  const checks = sources.readiness()
  const recent = history.recent(now)
  const orgs = sources.tokens.status().filter(({ org }) => org.includes(query.search))
  return {
    program: {
      version: gauges.version,
      node: process.versions.node,
      host: hostname(),
      pid: process.pid,
      startedAt: new Date(performance.timeOrigin).toISOString(),
      uptimeMs: Math.round(now),
    },
    service,
    configuration: sources.configuration(),
    callers: sources.callers(),
    isReady: checks.every(({ isOk }) => isOk),
    checks,
    fleet: sources.fleet?.status,
    warnings: sources.warnings.present(),
    totals: {
      ...metrics.totals(),
      requestsInFlight: gauges.requestsInFlight(),
      requestsWaiting: gauges.originConnections()['pending'] ?? 0,
      requestsWaitingForToken: gauges.requestsWaitingForToken(),
      cachedTokens: gauges.cachedTokens(),
      lifetimeEstimateMs: gauges.lifetimeEstimateMs(),
    },
    recent,
    history: history.series(),
    orgs: orgs.toSorted(byNeedForAttention).slice(0, query.maxOrgs).map(inWholeMs),
    orgCount: orgs.length,
    errors: sources.errors.reports(now),
  }
}

const TROUBLE: Readonly<Record<OrgStatus['state'], number>> = {
  refused: 0,
  rejected: 1,
  refreshing: 2,
  new: 2,
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
