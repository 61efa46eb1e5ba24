/** One replica's part in a fleet: it shares its tokens with the other replicas, and takes theirs. */

import { performance } from 'node:perf_hooks'
import type { OrgId } from '../http/org-id.ts'
import type { Secret } from '../secret.ts'
import type { TokenSource } from '../token/token-source.ts'
import { type FleetStoreOptions, RedisStore, type StoreObserver, type StoreState } from './redis-store.ts'
import { type FleetIdentity, FleetKeys } from './sealing.ts'
import { SharedTokens } from './shared-tokens.ts'

interface FleetOptions extends FleetIdentity {
  readonly store: Omit<FleetStoreOptions, 'observer' | 'now' | 'random'>
  readonly mintTimeoutMs: number
  readonly maxLifetimeMs: number
  readonly maxOrgs: number
  /** The lifetime of a token, as far as this replica knows. */
  readonly lifetimeMs: () => number
  readonly observer: FleetObserver
  readonly now?: () => number
  readonly random?: () => number
}

/** Must not throw. */
export interface FleetObserver extends StoreObserver {
  /** The store held something that no replica with this secret has put there. */
  valueUnusable(): void
}

interface FleetStatus {
  readonly state: StoreState
  /** Why the store was lost; empty while it is there. */
  readonly reason: string
}

export class Fleet {
  readonly #options: FleetOptions
  readonly #store: RedisStore
  readonly #now: () => number
  readonly #random: () => number
  #keys: FleetKeys
  #guard: TokenSource | undefined
  #shared: SharedTokens | undefined
  /** The secret before the present one, for as long as its tokens may live. */
  #previous: SharedTokens | undefined
  #previousTimer: NodeJS.Timeout | undefined
  #purgedAt = Number.NEGATIVE_INFINITY

  constructor(options: FleetOptions) {
    const { now = () => performance.now(), random = Math.random } = options
    this.#options = options
    this.#now = now
    this.#random = random
    this.#keys = this.#keysOf(options.appSecret)
    this.#store = new RedisStore({
      ...options.store,
      now,
      random,
      observer: options.observer,
    })
  }

  /** Returns the source for the cache. It asks the store before the guard. */
  inFrontOf(guard: TokenSource): TokenSource {
    this.#guard = guard
    this.#shared = this.#share(this.#keys, guard)
    return { mint: (org, options) => (this.#shared ?? guard).mint(org, options) }
  }

  get status(): FleetStatus {
    return { state: this.#store.state, reason: this.#store.lossReason }
  }

  /** Without an org: all. A purged token is not taken from the store again, either. */
  purge(org: OrgId | undefined): void {
    if (org === undefined) this.#purgedAt = this.#now()
    else this.#store.forget(this.#keys.orgName(org))
  }

  /**
   * From now on this replica shares with those that have the new secret. For one lifetime it also asks and tells those that
   * have the old one: replicas that know only one of the two learn from each other through it.
   */
  secretReplaced(secret: Secret): void {
    const guard = this.#guard
    const old = this.#shared
    if (guard === undefined || old === undefined) return
    this.#dropPrevious()
    this.#keys = this.#keysOf(secret)
    const alone = this.#share(this.#keys, guard)
    this.#previous = old
    this.#shared = this.#share(this.#keys, old)
    this.#previousTimer = setTimeout(() => {
      this.#dropPrevious()
      this.#shared = alone
    }, this.#options.maxLifetimeMs).unref()
  }

  /** The password of the store has changed, or its certificates. */
  reconnect(): void {
    this.#store.renew()
  }

  /** For `check`: the problem, or undefined if the store can be used. */
  tryOut(): Promise<string | undefined> {
    return this.#store.tryOut()
  }

  async close(): Promise<void> {
    clearTimeout(this.#previousTimer)
    await Promise.all([this.#shared?.close(), this.#previous?.close()])
    this.#store.close()
  }

  #keysOf(appSecret: Secret): FleetKeys {
    const { appId, baseUrl } = this.#options
    return new FleetKeys({ appId, baseUrl, appSecret })
  }

  #share(keys: FleetKeys, source: TokenSource): SharedTokens {
    const { store, mintTimeoutMs, maxLifetimeMs, maxOrgs, lifetimeMs, observer } = this.#options
    return new SharedTokens(
      {
        store: this.#store,
        keys,
        timeoutMs: store.timeoutMs,
        mintTimeoutMs,
        maxLifetimeMs,
        maxOrgs,
        lifetimeMs,
        purgedAt: () => this.#purgedAt,
        onUnusable: () => observer.valueUnusable(),
        now: this.#now,
        random: this.#random,
      },
      source,
    )
  }

  #dropPrevious(): void {
    clearTimeout(this.#previousTimer)
    this.#previous?.close().catch(() => undefined)
    this.#previous = undefined
  }
}
