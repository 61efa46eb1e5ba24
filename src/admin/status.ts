/** `/status`: the state of the program as one JSON document. It never holds a token. */

import { hostname } from 'node:os'
import * as clock from '../clock.ts'
import type { OrgId } from '../org-id.ts'
import { inspect, type Telling, type Unanswered } from '../part.ts'
import type { Org, OrgState } from '../token/org.ts'
import type { Orgs } from '../token/orgs.ts'
import { MAX_SHOWN } from './busiest.ts'
import type { History } from './history.ts'
import type { Metrics } from './metrics.ts'
import type { Warnings } from './warnings.ts'

export interface ReloadReport {
  readonly outcome: 'applied' | 'unchanged' | 'refused'
  /** One line each. */
  readonly problems: readonly string[]
  readonly needRestart: readonly string[]
}

/** What the admin listener shows, and what it can do. */
export interface AdminSources {
  readonly version: string
  /** The service that the proxy calls, and the App it calls as. */
  readonly service: {
    readonly baseUrl: string
    /** Undefined for a sidecar, which has the URL of its minter instead. */
    readonly appId: string | undefined
    readonly minter: string | undefined
  }
  readonly parts: readonly Telling[]
  readonly metrics: Metrics
  readonly orgs: Orgs
  /** Of one org, or of all. Returns the number of tokens that it has dropped. */
  readonly purgeTokens: (org?: OrgId) => number
  /** Ends the pauses and limits of mints. */
  readonly resumeMints: () => void
  /** Reads configuration and secret again. */
  readonly reload: () => Promise<ReloadReport>
  /** Begins to stop, and resolves with the number of connections that were broken off. Undefined unless `admin.quit`. */
  readonly quit: (() => Promise<number>) | undefined
}

export type StatusDocument = ReturnType<typeof statusOf>

/** At most `maxOrgs` of the orgs whose id contains `search`: those in trouble first, then the newest tokens. */
export function statusOf(sources: AdminSources, history: History, warnings: Warnings, maxOrgs: number, search: string) {
  const { version, service, parts, metrics } = sources
  const {
    takenOverAt,
    checks,
    callers,
    fleet,
    orgsInFlight,
    unanswered,
    orgsOfTunnels,
    originConnections,
    ...counted
  } = inspect(parts)
  const now = clock.now()
  const [ofOrgs, ofCallers] = [metrics.orgs.shown(now), metrics.callers.shown(now)]
  const orgs = orgStatuses(sources.orgs).filter(({ org }) => org.includes(search))
  return {
    program: { version, node: process.versions.node, host: hostname(), pid: process.pid, uptimeMs: now },
    service,
    configuration: { takenOverAt: takenOverAt.toISOString() },
    callers: callers.map(({ name, requestsInFlight }) => {
      return { name, requests: metrics.requests.callers.total(name), requestsInFlight }
    }),
    isReady: checks.every(({ isOk }) => isOk),
    checks,
    fleet,
    warnings: warnings.present(),
    /** Since the start, and as of now. `requestsWaiting` of those in flight wait for a connection to the service. */
    totals: { ...metrics.totals(), ...counted, requestsWaiting: originConnections.pending },
    recent: history.recent(now),
    history: history.series(),
    /** In the last two and a half to five minutes. */
    busiest: { orgs: ofOrgs.busiest, callers: ofCallers.busiest },
    mostErrors: { orgs: ofOrgs.failing, callers: ofCallers.failing },
    /** The Orgs that hold most of them now, each with the request for which the service has been silent for longest. */
    inFlight: {
      orgs: mostHeld(orgsInFlight).map((held) => ({ ...held, longest: longestOf(held.name, unanswered) })),
    },
    tunnels: { count: counted.tunnels, orgs: mostHeld(orgsOfTunnels.map((org) => [org, 1])) },
    orgs: orgs.sort(byNeedForAttention).slice(0, maxOrgs),
    /** Number of all matching orgs, and of those that are refused now. */
    orgCount: orgs.length,
    refusedOrgCount: orgs.filter(({ state }) => state === 'refused').length,
    errors: metrics.errors.reports(now),
  }
}

function mostHeld(held: readonly (readonly [org: string, count: number])[]) {
  const counts = new Map<string, number>()
  for (const [org, count] of held) counts.set(org, (counts.get(org) ?? 0) + count)
  const sorted = [...counts].sort(([, a], [, b]) => b - a).slice(0, MAX_SHOWN)
  return sorted.map(([name, count]) => ({ name, count }))
}

function longestOf(name: string, unanswered: readonly Unanswered[]) {
  const [longest] = unanswered.filter(({ org }) => org === name).sort((a, b) => b.silentMs - a.silentMs)
  return longest && { route: longest.route, silentMs: longest.silentMs }
}

type OrgStatus = ReturnType<typeof statusOfOrg>

/** Those with a token first, the last used before the others; then those without. */
export function orgStatuses(orgs: Orgs) {
  const told: OrgStatus[] = []
  orgs.forEach((org) => {
    if (org.state !== 'none') told.push(statusOfOrg(org))
  })
  return told
}

function statusOfOrg(org: Org) {
  const pause = org.pause?.error
  return {
    org: org.id,
    state: org.state,
    ageMs: org.current && org.ageMs,
    /** The known life of the token, stated or configured; undefined if there is none. */
    lifetimeMs: org.current && finite(org.lifeMs),
    /** What the calls were answered for which it is refused or pauses. */
    lastRefusal: pause && { code: pause.code, tokenEndpointStatus: pause.tokenEndpointStatus },
  }
}

/** JSON has no `Infinity`. */
const finite = (ageMs: number): number | undefined => (ageMs === Number.POSITIVE_INFINITY ? undefined : ageMs)

const TROUBLED: readonly OrgState[] = ['refused', 'paused', 'rejected']

function byNeedForAttention(a: OrgStatus, b: OrgStatus): number {
  const isTroubled = ({ state }: OrgStatus) => TROUBLED.includes(state)
  return Number(isTroubled(b)) - Number(isTroubled(a)) || (a.ageMs ?? 0) - (b.ageMs ?? 0)
}
