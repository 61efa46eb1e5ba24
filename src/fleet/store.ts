/**
 * The operations that the replicas need of a store. They are few, each of them atomic and on keys of one hash slot. No operation
 * rejects: an outage is an answer (`error`), never to be mistaken for another replica at work (`held`).
 */

/** `error`: no answer in time, or none that can be used. The store may have done the operation or not. */
export interface StoreError {
  readonly kind: 'error'
}

/** A token as the store holds it. The seal authenticates everything but the time left. */
export interface StoredToken {
  /** See `FleetKeys.markOf`. */
  readonly mark: string
  /** Its remaining time when it was new. Its age is this minus the remaining time now, so the replicas need no common clock. */
  readonly spanMs: number
  readonly sealed: string
}

export interface ClaimRequest {
  /** Drawn at random for each mint. */
  readonly owner: string
  readonly leaseMs: number
  /** Marks of tokens that the caller does not want: its own, and ones that it could not open. */
  readonly except: readonly string[]
  /** The caller does not want a token that is this old or older. */
  readonly maxAgeMs: number
}

export type ClaimReply =
  | { readonly kind: 'token'; readonly token: StoredToken; readonly ageMs: number }
  /** The caller should mint. All other claimers wait until the lease ends. */
  | { readonly kind: 'acquired' }
  /** Another replica mints; its lease ends by itself after `restMs`. */
  | { readonly kind: 'held'; readonly restMs: number }
  /** The last mint has ended without a new token; `note` tells how, for a short while. */
  | { readonly kind: 'noted'; readonly note: string }
  | StoreError

export interface PublishRequest {
  readonly owner: string
  readonly token: StoredToken
  readonly ageMs: number
}

/** `lost`: a younger token is there. */
export type PublishReply = { readonly kind: 'published' | 'lost' } | StoreError

/** The facts that every replica reads every few seconds. */
export interface Board {
  readonly kind: 'ok'
  /** Sealed. Undefined if no replica has learned a lifetime. */
  readonly lifetime: string | undefined
  readonly limit: Limit | undefined
  /** Later than `since`, oldest first. */
  readonly purges: readonly Purge[]
  /** Pass it as `since` the next time. */
  readonly until: string
}

export interface Purge {
  readonly sealed: string
  readonly ageMs: number
}

/** The token endpoint wants no call for `restMs`. */
export interface Limit {
  readonly sealed: string
  readonly restMs: number
}

export interface PermitRequest {
  /** At most so many calls of the token endpoint in any stretch of one window. */
  readonly calls: number
  readonly windowMs: number
}

export type PermitReply =
  | { readonly kind: 'granted' }
  /** All calls of the window are taken. */
  | { readonly kind: 'wait'; readonly waitMs: number }
  | { readonly kind: 'limited'; readonly limit: Limit }
  | StoreError

/** `name` is that of an org or of the App: see `FleetKeys`. `limitMs` bounds the wait for the answer. */
export interface FleetStore {
  claim(name: string, request: ClaimRequest, limitMs: number): Promise<ClaimReply>
  publish(name: string, request: PublishRequest): Promise<PublishReply>
  /** Ends the lease if it is still the owner's. With a note, the next claims get that for `noteMs`. */
  release(name: string, owner: string, note?: ReleaseNote): Promise<void>
  /** Deletes the token and a note, not the lease of a mint under way. */
  forget(name: string): Promise<void>

  permit(name: string, request: PermitRequest, limitMs: number): Promise<PermitReply>
  /** Without `since`, no purges, only the place to read on from. */
  readBoard(name: string, since: string | undefined): Promise<Board | StoreError>
  setLifetime(name: string, sealed: string): Promise<void>
  setLimit(name: string, sealed: string, limitMs: number): Promise<void>
  addPurge(name: string, sealed: string): Promise<void>
}

export interface ReleaseNote {
  readonly text: string
  readonly noteMs: number
}

/** A lease with more than this left, or without an end, was not written by a replica. */
export const MAX_LEASE_MS = 60_000
