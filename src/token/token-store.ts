/** What is known of each org, in bounded room: entries with tokens, and refusals apart from them. */

import type { TokenError } from '../errors.ts'
import type { OrgId } from '../http/org-id.ts'
import type { LifetimeEstimator } from './lifetime.ts'
import { RecentEntries } from './recent-entries.ts'
import { Refusals } from './refusals.ts'
import type { TokenEntry } from './token-entry.ts'
import type { TokenObserver } from './token-observer.ts'
import { describeEntry, describeRefused, type OrgStatus } from './token-status.ts'

export interface TokenStoreOptions {
  readonly maxOrgs: number
  readonly refusalTtlMs: number
  readonly observer: TokenObserver
}

export class TokenStore {
  readonly #entries: RecentEntries
  readonly #refusals: Refusals

  constructor({ maxOrgs, refusalTtlMs, observer }: TokenStoreOptions) {
    this.#entries = new RecentEntries({ max: maxOrgs, onEvict: (org) => observer.tokenEvicted?.(org) })
    this.#refusals = new Refusals({ maxOrgs, ttlMs: refusalTtlMs })
  }

  /** Counts as a use. */
  find(org: OrgId): TokenEntry | undefined {
    return this.#entries.get(org)
  }

  /** Does not. */
  peek(org: OrgId): TokenEntry | undefined {
    return this.#entries.peek(org)
  }

  add(entry: TokenEntry): void {
    this.#entries.add(entry)
  }

  standingRefusal(org: OrgId, now: number): TokenError | undefined {
    return this.#refusals.standing(org, now)
  }

  refuse(org: OrgId, error: TokenError, now: number): void {
    this.#refusals.remember(org, error, now)
  }

  /** The org is no longer refused. */
  pardon(org: OrgId): void {
    this.#refusals.forget(org)
  }

  delete(org: OrgId): boolean {
    this.#refusals.forget(org)
    return this.#entries.delete(org)
  }

  clear(): void {
    this.#refusals.clear()
    this.#entries.clear()
  }

  get size(): number {
    return this.#entries.size
  }

  /** Most recently used first. */
  orgs(): OrgId[] {
    return this.#entries.list().map((entry) => entry.org)
  }

  /** Most recently used first; then those that have no token because they are refused. */
  status(shared: LifetimeEstimator, now: number): OrgStatus[] {
    const held = this.#entries.list().map((entry) => describeEntry(entry, this.#refusals.last(entry.org), shared, now))
    const refused = [...this.#refusals.entries()]
      .filter(([org]) => !this.#entries.has(org) && this.#refusals.standing(org, now) !== undefined)
      .map(([org, refusal]) => describeRefused(org, refusal, now))
    return [...held, ...refused]
  }
}
