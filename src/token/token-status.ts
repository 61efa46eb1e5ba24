/** What can be told of an org's token to people who look after the proxy: never the token. */

import type { LifetimeEstimator } from './lifetime.ts'
import type { Refusal } from './refusals.ts'
import type { TokenEntry, TokenPhase } from './token-entry.ts'

export interface OrgStatus {
  readonly org: string
  /** `refused`: the token endpoint gives none. */
  readonly state: TokenPhase | 'refused'
  readonly ageMs: number | undefined
  /** Assumed for the present token. */
  readonly lifetimeMs: number | undefined
  readonly lastRefusal: LastRefusal | undefined
}

export interface LastRefusal {
  readonly tokenEndpointStatus: number | undefined
  readonly agoMs: number
}

export function describeEntry(
  entry: TokenEntry,
  refusal: Refusal | undefined,
  shared: LifetimeEstimator,
  now: number,
): OrgStatus {
  return {
    org: entry.org,
    state: entry.phaseAt(now, shared),
    ageMs: now - entry.token.mintedAt,
    lifetimeMs: entry.lifeMs(shared),
    lastRefusal: refusal && describeRefusal(refusal, now),
  }
}

export function describeRefused(org: string, refusal: Refusal, now: number): OrgStatus {
  return {
    org,
    state: 'refused',
    ageMs: undefined,
    lifetimeMs: undefined,
    lastRefusal: describeRefusal(refusal, now),
  }
}

function describeRefusal({ error, refusedAt }: Refusal, now: number): LastRefusal {
  return { tokenEndpointStatus: error.tokenEndpointStatus, agoMs: now - refusedAt }
}
