/** The token side of the app: endpoint, guard, cache, and the rotation of the secret, built from the configuration. */

import { randomInt } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { hasOuterWhiteSpace, OUTER_WHITE_SPACE, parseSecretBytes } from '../config/files.ts'
import type { Config } from '../config/schema.ts'
import type { Fleet } from '../fleet/fleet.ts'
import type { OrgId } from '../http/org-id.ts'
import type { Origin } from '../origin/origin.ts'
import { AppCredentials, SecretRotation } from '../token/app-credentials.ts'
import { MintGuard } from '../token/mint-guard.ts'
import type { MintPauseStatus } from '../token/mint-pauses.ts'
import { TokenCache } from '../token/token-cache.ts'
import { OverBudget } from '../token/token-source.ts'
import { WatchedFile } from '../watched-file.ts'
import type { TokenEvents } from './events.ts'
import { openTokenEndpoint } from './origin.ts'

/** Few at once, so that a request for one of these orgs does not wait behind all the others. */
const WARM_AT_ONCE = 8

export class TokenSide {
  readonly credentials: AppCredentials
  readonly tokens: TokenCache
  readonly #warmOrgs: readonly OrgId[]
  readonly #origin: Origin
  readonly #events: TokenEvents
  readonly #guard: MintGuard
  readonly #rotation: SecretRotation
  readonly #secretFile: WatchedFile | undefined
  readonly #stopped = new AbortController()
  #probe: NodeJS.Timeout | undefined

  /** `origin` is for the calls of the token endpoint alone: no request waits for a place that a mint has, nor the other way round. */
  constructor(config: Config, origin: Origin, events: TokenEvents, fleet: Fleet | undefined) {
    const { tokens: settings, appSecretFile } = config
    this.#warmOrgs = settings.warm
    this.#origin = origin
    this.#events = events
    this.credentials = new AppCredentials(config.appId, config.appSecret)
    const endpoint = openTokenEndpoint(config, origin, this.credentials, events)
    this.#guard = new MintGuard(
      {
        mintTimeoutMs: settings.mintTimeout,
        mintConcurrency: settings.mintConcurrency,
        mintRate: settings.mintRate,
        recoverCredentials: (calledAt) => this.#rotation.recover(calledAt),
        observer: {
          mintRefused: (...refused) => events.mintRefused(...refused),
          mintsPaused: (code, pauseMs) => {
            events.mintsPaused(code, pauseMs)
            if (code === 'app_credentials_rejected') this.#probeAfter(pauseMs)
          },
          mintsResumed: () => events.mintsResumed(),
        },
      },
      endpoint,
    )
    this.tokens = new TokenCache(
      {
        maxOrgs: settings.maxOrgs,
        settleTimeMs: settings.settleTime,
        lifetimeMs: settings.lifetime,
        learns: settings.learn,
        rejectedStatuses: settings.rejectedStatuses,
        rejectedCooldownMs: settings.rejectedCooldown,
        refusalTtlMs: settings.refusalTtl,
        mintTimeoutMs: settings.mintTimeout,
        looksFarAhead: fleet === undefined,
        observer: events,
      },
      fleet?.inFrontOf(this.#guard) ?? this.#guard,
    )
    this.#rotation = new SecretRotation({
      credentials: this.credentials,
      prove: (candidate, org) => endpoint.mintAs(candidate, org, { reason: 'rotation' }),
      knownOrgs: () => this.tokens.knownOrgs(),
      isRejected: () => this.#guard.pauses.rejectedOrg !== undefined,
      reread: () => this.reloadSecret(),
      limitedUntil: (org) => this.#guard.pauses.limitedUntil(org),
      onReplaced: (secret) => {
        this.#guard.pauses.credentialsChanged()
        fleet?.secretReplaced(secret)
      },
      observer: events,
    })
    if (appSecretFile !== undefined) this.#secretFile = this.#watchSecret(appSecretFile)
  }

  /** The token endpoint rejects the App, and not just one org. */
  get areCredentialsRejected(): boolean {
    return this.#guard.pauses.areCredentialsRejected
  }

  /** Why and until when mints are paused, of all orgs and of single ones. */
  get mintPause(): MintPauseStatus {
    return this.#guard.pauses.status
  }

  /** Ends all pauses and limits of the token endpoint. The next call shows whether they were still needed. */
  resumeMints(): void {
    this.#guard.resume()
  }

  /**
   * Mints for each org of `tokens.warm` once, in random order: proxies that start together should not all begin with the same
   * org. Failures have been logged when it resolves. Never rejects.
   */
  async warm(): Promise<void> {
    if (this.#warmOrgs.length === 0) return
    const waiting = shuffle(this.#warmOrgs)
    let failed = 0
    const work = async () => {
      for (let org = waiting.pop(); org !== undefined && !this.#stopped.signal.aborted; org = waiting.pop()) {
        if (!(await this.#warmOne(org))) failed += 1
      }
    }
    await Promise.all(Array.from({ length: WARM_AT_ONCE }, work))
    this.#events.warmed(this.#warmOrgs.length, failed + waiting.length)
  }

  /** Returns true if there is a token. A mint that is over the budget waits and is tried again. */
  async #warmOne(org: OrgId): Promise<boolean> {
    const { signal } = this.#stopped
    for (;;) {
      try {
        await this.tokens.warm(org)
        return true
      } catch (error) {
        if (!(error instanceof OverBudget) || signal.aborted) return false
        await sleep((error.retryAfterSeconds ?? 1) * 1_000, undefined, { signal }).catch(() => undefined)
      }
    }
  }

  /** Reads the secret file again, if there is one. */
  async reloadSecret(): Promise<void> {
    await this.#secretFile?.reload()
  }

  close(): void {
    this.#stopped.abort()
    clearTimeout(this.#probe)
    this.#events.flush()
    this.#secretFile?.close()
    this.#rotation.close()
    this.tokens.close()
    this.#origin.close()
  }

  /** A proxy whose App is rejected is not ready, so it may get no request that finds out when the App is accepted again. */
  #probeAfter(pauseMs: number): void {
    clearTimeout(this.#probe)
    this.#probe = setTimeout(() => {
      const { areCredentialsRejected, rejectedOrg } = this.#guard.pauses
      if (!areCredentialsRejected || rejectedOrg === undefined) return
      this.#probeAfter(pauseMs) // unless another pause begins
      // Any of them: the trouble of one may be its own.
      const orgs = [...this.tokens.knownOrgs(), rejectedOrg]
      this.tokens.warm(orgs[randomInt(orgs.length)] ?? rejectedOrg).catch(() => undefined)
    }, pauseMs).unref()
  }

  #watchSecret(path: string): WatchedFile {
    return new WatchedFile({
      path,
      onContent: (bytes) => {
        const secret = parseSecretBytes(bytes)
        if (hasOuterWhiteSpace(secret) && !this.credentials.holds(secret)) this.#events.secretWarning(OUTER_WHITE_SPACE)
        this.#rotation.offer(secret)
      },
      onProblem: (problem) => this.#events.secretUnusable(path, problem),
    })
  }
}

function shuffle<T>(values: readonly T[]): T[] {
  return values
    .map((value) => ({ value, order: Math.random() }))
    .toSorted((a, b) => a.order - b.order)
    .map(({ value }) => value)
}
