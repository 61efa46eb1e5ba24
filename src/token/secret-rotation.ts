/**
 * A changed App secret takes over only after a mint has proved it: a half-written or wrong file leaves the old one in
 * use. Where no org is known to mint for, it waits until there is one, or until the old secret is rejected.
 */

import { performance } from 'node:perf_hooks'
import { TokenError } from '../errors.ts'
import type { OrgId } from '../http/org-id.ts'
import type { Secret } from '../secret.ts'
import type { AppCredentials } from './app-credentials.ts'
import type { SecretReloadOutcome, TokenObserver } from './token-observer.ts'

export interface SecretRotationOptions {
  readonly credentials: AppCredentials
  /** One mint with the candidate. @throws {TokenError} */
  readonly prove: (candidate: AppCredentials, org: OrgId) => Promise<unknown>
  /** Orgs that tokens were had for, most recently used first. */
  readonly knownOrgs: () => readonly OrgId[]
  /** Reads the secret again; what is found comes back through `offer` before it resolves. */
  readonly reread?: (() => Promise<void>) | undefined
  /** No call of the token endpoint may be made before this instant. */
  readonly limitedUntil: () => number
  readonly onReplaced: () => void
  readonly observer?: TokenObserver | undefined
  readonly now?: () => number
}

/** One org may have been unlinked since; this many rejections are no coincidence. */
const MAX_WITNESSES = 3
const FIRST_RETRY_MS = 1_000
const MAX_RETRY_MS = 30_000

export class SecretRotation {
  readonly #options: SecretRotationOptions
  readonly #now: () => number
  #candidate: Secret | undefined
  #reported: { readonly secret: Secret; readonly outcome: SecretReloadOutcome } | undefined
  #work: Promise<void> | undefined
  #retry: NodeJS.Timeout | undefined
  #retryMs = FIRST_RETRY_MS
  /** The secret in use has been rejected. */
  #isUrgent = false
  #replacedAt = Number.NEGATIVE_INFINITY

  constructor(options: SecretRotationOptions) {
    this.#options = options
    this.#now = options.now ?? (() => performance.now())
  }

  /** A secret that may be the new one. Offered again, it is tried again. */
  offer(candidate: Secret): void {
    const isInUse = this.#options.credentials.holds(candidate)
    this.#candidate = isInUse ? undefined : candidate
    this.#retryMs = FIRST_RETRY_MS
    this.#start()
  }

  /**
   * For who was told at a call of that instant that the secret in use is no longer good: looks for a new one. Resolves
   * with true where there has been one since; never rejects.
   */
  async recover(calledAt: number): Promise<boolean> {
    if (this.#replacedAt > calledAt) return true
    this.#isUrgent = true
    try {
      await this.#work // whatever it is at may be the answer already
      if (this.#replacedAt <= calledAt) await this.#options.reread?.()
      await this.#work
    } catch {
      // What cannot be read has been reported where it was read.
    } finally {
      this.#isUrgent = false
    }
    return this.#replacedAt > calledAt
  }

  close(): void {
    clearTimeout(this.#retry)
    this.#candidate = undefined
  }

  #start(): void {
    clearTimeout(this.#retry)
    this.#work ??= this.#decide().finally(() => {
      this.#work = undefined
    })
  }

  async #decide(): Promise<void> {
    while (this.#candidate !== undefined) {
      const secret = this.#candidate
      const outcome = await this.#judge(secret)
      if (this.#candidate !== secret) continue // a newer one has come meanwhile
      this.#report(secret, outcome)
      if (outcome === 'undecided') {
        this.#scheduleRetry()
        return
      }
      this.#candidate = undefined
      if (outcome === 'proved' || outcome === 'unproved') this.#replace(secret)
    }
  }

  async #judge(secret: Secret): Promise<SecretReloadOutcome> {
    const { credentials, knownOrgs, limitedUntil, prove } = this.#options
    const orgs = knownOrgs().slice(0, MAX_WITNESSES)
    if (orgs.length === 0) return this.#isUrgent ? 'unproved' : 'undecided'
    const candidate = credentials.withSecret(secret)
    for (const org of orgs) {
      if (this.#now() < limitedUntil()) return 'undecided'
      try {
        await prove(candidate, org)
        return 'proved'
      } catch (error) {
        if (!(error instanceof TokenError)) return 'undecided'
        if (error.code === 'app_credentials_rejected') return 'rejected'
        if (error.code !== 'org_access_refused') return 'undecided'
      }
    }
    return 'rejected'
  }

  #replace(secret: Secret): void {
    this.#options.credentials.replace(secret)
    this.#replacedAt = this.#now()
    this.#options.onReplaced()
  }

  /** A candidate that stays the same is reported once, however often it is tried. */
  #report(secret: Secret, outcome: SecretReloadOutcome): void {
    if (this.#reported?.outcome === outcome && this.#reported.secret.equals(secret)) return
    this.#reported = { secret, outcome }
    this.#options.observer?.secretReloaded?.(outcome)
  }

  #scheduleRetry(): void {
    this.#retry = setTimeout(() => this.#start(), this.#retryMs).unref()
    this.#retryMs = Math.min(this.#retryMs * 2, MAX_RETRY_MS)
  }
}
