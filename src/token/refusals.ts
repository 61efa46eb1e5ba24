/**
 * Orgs that the token endpoint has refused, remembered for a short while. A store of its own, so that a flood of unknown
 * orgs pushes out no token.
 */

import { LRUCache } from 'lru-cache'
import type { TokenError } from '../errors.ts'
import type { OrgId } from '../http/org-id.ts'

export interface Refusal {
  readonly error: TokenError
  readonly refusedAt: number
}

export interface RefusalsOptions {
  readonly maxOrgs: number
  readonly ttlMs: number
}

export class Refusals {
  readonly #refusals: LRUCache<OrgId, Refusal>
  readonly #ttlMs: number

  constructor(options: RefusalsOptions) {
    this.#refusals = new LRUCache({ max: options.maxOrgs })
    this.#ttlMs = options.ttlMs
  }

  /** The refusal that still stands. */
  standing(org: OrgId, now: number): TokenError | undefined {
    const refusal = this.#refusals.get(org)
    if (refusal === undefined || now - refusal.refusedAt >= this.#ttlMs) return undefined
    return refusal.error
  }

  /** Also one that stands no longer. */
  last(org: OrgId): Refusal | undefined {
    return this.#refusals.peek(org)
  }

  remember(org: OrgId, error: TokenError, now: number): void {
    this.#refusals.set(org, { error, refusedAt: now })
  }

  forget(org: OrgId): void {
    this.#refusals.delete(org)
  }

  clear(): void {
    this.#refusals.clear()
  }

  entries(): Iterable<[OrgId, Refusal]> {
    return this.#refusals.entries()
  }
}
