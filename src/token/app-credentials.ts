/**
 * The App's id and secret, and how a changed secret replaces the one in use: only after a mint has proved it. A half-written
 * or wrong file leaves the old secret in use. If no org is known to mint for, the new secret waits for an org, unless the
 * endpoint has rejected the old one.
 */

import { performance } from 'node:perf_hooks'
import { TokenError } from '../errors.ts'
import type { OrgId } from '../http/org-id.ts'
import { Redacted, type Secret } from '../secret.ts'
import type { SecretReloadOutcome, TokenObserver } from './token-source.ts'

/** Renders the Basic scheme (RFC 7617) once for each secret. */
export class AppCredentials extends Redacted {
  readonly #appId: string
  #secret: Secret
  #authorization: string

  constructor(appId: string, secret: Secret) {
    super()
    this.#appId = appId
    this.#secret = secret
    this.#authorization = renderBasic(appId, secret)
  }

  /** The value of the `Authorization` field. */
  authorization(): string {
    return this.#authorization
  }

  replace(secret: Secret): void {
    this.#secret = secret
    this.#authorization = renderBasic(this.#appId, secret)
  }

  /** The same App with another secret, to try it out. */
  withSecret(secret: Secret): AppCredentials {
    return new AppCredentials(this.#appId, secret)
  }

  holds(secret: Secret): boolean {
    return this.#secret.equals(secret)
  }
}

function renderBasic(appId: string, secret: Secret): string {
  return `Basic ${Buffer.from(`${appId}:${secret.reveal()}`, 'utf8').toString('base64')}`
}

export interface SecretRotationOptions {
  readonly credentials: AppCredentials
  /** One mint with the candidate. @throws {TokenError} */
  readonly prove: (candidate: AppCredentials, org: OrgId) => Promise<unknown>
  /** Orgs with a token, most recently used first. */
  readonly knownOrgs: () => readonly OrgId[]
  /** True if the token endpoint's last answer about the secret in use was a 401. */
  readonly isRejected: () => boolean
  /** Reads the secret again. Calls `offer` with it before it resolves. */
  readonly reread?: (() => Promise<void>) | undefined
  /** No call of the token endpoint may be made for the org before this instant. */
  readonly limitedUntil: (org: OrgId) => number
  readonly onReplaced: (secret: Secret) => void
  readonly observer?: TokenObserver | undefined
  readonly now?: () => number
}

/** An org that has been unlinked is refused. The next ones are asked too, because a token is the better proof. */
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

  /** `candidate` may be the new secret. If it is offered again, it is tried again. */
  offer(candidate: Secret): void {
    const isInUse = this.#options.credentials.holds(candidate)
    this.#candidate = isInUse ? undefined : candidate
    this.#retryMs = FIRST_RETRY_MS
    this.#start()
  }

  /**
   * Looks for a new secret after the endpoint rejected the present one in a call made at `calledAt`. Resolves with true if
   * the secret has been replaced since then. Never rejects.
   */
  async recover(calledAt: number): Promise<boolean> {
    if (this.#replacedAt > calledAt) return true
    this.#isUrgent = true
    try {
      await this.#work // a candidate that is being tried may be the new secret
      if (this.#replacedAt <= calledAt) await this.#options.reread?.()
      await this.#work
    } catch {
      // A file that cannot be read has been reported by its reader.
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
    const { credentials, isRejected, knownOrgs, limitedUntil, prove } = this.#options
    const orgs = knownOrgs().slice(0, MAX_WITNESSES)
    // A rejected secret is worth nothing, so the new one is used at once. To wait for a request could be to wait for ever:
    // a pod that is not ready gets none.
    if (orgs.length === 0) return this.#isUrgent || isRejected() ? 'unproved' : 'undecided'
    const candidate = credentials.withSecret(secret)
    let rejections = 0
    for (const org of orgs) {
      if (this.#now() < limitedUntil(org)) return 'undecided'
      try {
        await prove(candidate, org)
        return 'proved'
      } catch (error) {
        if (!(error instanceof TokenError)) return 'undecided'
        if (error.code === 'app_credentials_rejected') rejections += 1
        else if (error.code !== 'org_access_refused') return 'undecided'
      }
    }
    // A 401 may be one org's trouble. A refusal of an org is no rejection of the App: it proves the credentials.
    return rejections === orgs.length ? 'rejected' : 'proved'
  }

  #replace(secret: Secret): void {
    this.#options.credentials.replace(secret)
    this.#replacedAt = this.#now()
    this.#options.onReplaced(secret)
  }

  /** Reports a candidate once for each outcome, however often it is tried. */
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
