/** What can be told of the tokens in hand to people who look after the proxy: never the tokens. */

import type { OrgId } from '../http/org-id.ts'
import type { LifetimeEstimator } from './lifetime.ts'
import type { Refusals } from './refusals.ts'
import type { TokenEntry } from './token-entry.ts'

export interface OrgStatus {
  readonly org: string
  /** `rejected`: by the origin, not yet replaced. `refused`: the token endpoint gives none. */
  readonly state: 'fresh' | 'refreshing' | 'stale' | 'rejected' | 'refused'
  readonly ageMs: number | undefined
  /** Assumed for the present token. */
  readonly lifetimeMs: number | undefined
  readonly lastRefusal: { readonly tokenEndpointStatus: number | undefined; readonly agoMs: number } | undefined
}

export function listStatus(
  entries: Iterable<[OrgId, TokenEntry]>,
  refusals: Refusals,
  shared: LifetimeEstimator,
  now: number,
): OrgStatus[] {
  const list: OrgStatus[] = []
  const seen = new Set<OrgId>()
  for (const [org, entry] of entries) {
    seen.add(org)
    const ageMs = now - entry.token.mintedAt
    const lifetimeMs = entry.lifeMs(shared)
    const state = entry.isRejected ? 'rejected' : stateAt(entry, ageMs, lifetimeMs)
    list.push({ org, state, ageMs, lifetimeMs, lastRefusal: lastRefusal(refusals, org, now) })
  }
  for (const [org] of refusals.entries()) {
    if (seen.has(org) || refusals.standing(org, now) === undefined) continue
    const refusal = lastRefusal(refusals, org, now)
    list.push({ org, state: 'refused', ageMs: undefined, lifetimeMs: undefined, lastRefusal: refusal })
  }
  return list
}

function stateAt(entry: TokenEntry, ageMs: number, lifetimeMs: number): 'fresh' | 'refreshing' | 'stale' {
  if (ageMs >= lifetimeMs) return 'stale'
  return entry.shouldRefresh(ageMs, lifetimeMs) ? 'refreshing' : 'fresh'
}

function lastRefusal(refusals: Refusals, org: OrgId, now: number): OrgStatus['lastRefusal'] {
  const refusal = refusals.last(org)
  if (refusal === undefined) return undefined
  return { tokenEndpointStatus: refusal.error.tokenEndpointStatus, agoMs: now - refusal.refusedAt }
}
