/**
 * One replica's part in a fleet. It shares tokens with the others, and more: the rate of mints and a limit of the token
 * endpoint apply to all replicas together, a replica that starts takes over the learned lifetime, and a purge reaches all.
 */

import { randomBytes } from 'node:crypto'
import { setMaxListeners } from 'node:events'
import { performance } from 'node:perf_hooks'
import { setTimeout as sleep } from 'node:timers/promises'
import type { OrgId } from '../http/org-id.ts'
import type { Secret } from '../secret.ts'
import { MintNotSent, type MintOptions, OverBudget, type TokenSource } from '../token/token-source.ts'
import { type FleetStoreOptions, RedisStore, type StoreObserver, type StoreState } from './redis-store.ts'
import { type FleetIdentity, FleetKeys } from './sealing.ts'
import { SharedTokens } from './shared-tokens.ts'
import type { Board, Limit, Purge } from './store.ts'

interface FleetOptions extends FleetIdentity {
  readonly store: Omit<FleetStoreOptions, 'observer' | 'now' | 'random'>
  readonly mintTimeoutMs: number
  /** Calls of the token endpoint per second, of all replicas together. */
  readonly mintRate: number
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

/** Receives the findings of the other replicas. Must not throw. */
interface FleetNews {
  /** No call of the token endpoint before `until`: monotonic milliseconds. */
  limited(until: number): void
  lifetimeLearned(lifetimeMs: number): void
  /** Without an org: all. */
  purged(org: OrgId | undefined): void
}

interface FleetStatus {
  readonly state: StoreState
  /** Why the store was lost; empty while it is there. */
  readonly reason: string
}

/** The interval for reading the news of the other replicas. The loss of an idle store is noticed in that time, too. */
const BOARD_MS = 2_000
/** Of the time that a mint has, this share may be spent on waiting for the rate. */
const RATE_WAIT_SHARE = 0.5
/** Smaller differences of a limit or a lifetime are not passed on. */
const SAME_LIMIT_MS = 250
const SAME_LIFETIME_SHARE = 0.01

export class Fleet {
  readonly #options: FleetOptions
  readonly #store: RedisStore
  readonly #now: () => number
  readonly #random: () => number
  /** Distinguishes this replica's own purges from those of others. */
  readonly #replica = randomBytes(9).toString('base64url')
  readonly #closing = new AbortController()
  #keys: FleetKeys
  #guard: TokenSource | undefined
  #shared: SharedTokens | undefined
  /** The secret before the present one, for as long as its tokens may live. */
  #previous: SharedTokens | undefined
  #previousTimer: NodeJS.Timeout | undefined
  #news: FleetNews | undefined
  #boardTimer: NodeJS.Timeout | undefined
  #readUntil: string | undefined
  #lifetimeSeen: string | undefined
  #lifetimeMs: number | undefined
  #limitedUntil = Number.NEGATIVE_INFINITY
  #purgedAt = Number.NEGATIVE_INFINITY

  constructor(options: FleetOptions) {
    const { now = () => performance.now(), random = Math.random, observer } = options
    this.#options = options
    setMaxListeners(0, this.#closing.signal) // each wait listens: Node warns of a leak from the eleventh on
    this.#now = now
    this.#random = random
    this.#keys = this.#keysOf(options.appSecret)
    this.#store = new RedisStore({
      ...options.store,
      now,
      random,
      observer: {
        storeAsked: (...asked) => observer.storeAsked(...asked),
        storeLost: (reason) => observer.storeLost(reason),
        storeBack: () => {
          observer.storeBack()
          this.#scheduleBoard(0)
        },
      },
    })
  }

  /** Returns the source for the cache. It asks the store before the guard. */
  inFrontOf(guard: TokenSource): TokenSource {
    this.#guard = guard
    this.#shared = this.#share(this.#keys, guard)
    return { mint: (org, options) => (this.#shared ?? guard).mint(org, options) }
  }

  /** Returns the source for the guard. Each call of the token endpoint needs a permit of the store. */
  rationing(endpoint: TokenSource): TokenSource {
    return {
      mint: async (org, options = {}) => {
        await this.#awaitPermit(org, options)
        return await endpoint.mint(org, options)
      },
    }
  }

  /** From now on, `news` is told what other replicas have found out. */
  listen(news: FleetNews): void {
    this.#news = news
  }

  get status(): FleetStatus {
    return { state: this.#store.state, reason: this.#store.lossReason }
  }

  /** The token endpoint wants no call before `until`: monotonic milliseconds. */
  limited(until: number): void {
    if (until <= this.#limitedUntil + SAME_LIMIT_MS) return
    this.#limitedUntil = until
    const lengthMs = Math.ceil(until - this.#now())
    const sealed = this.#keys.seal('limit', undefined, Buffer.from(String(lengthMs)))
    this.#store.setLimit(this.#keys.appName, sealed, lengthMs)
  }

  lifetimeLearned(lifetimeMs: number): void {
    const knownMs = this.#lifetimeMs
    if (knownMs !== undefined && Math.abs(lifetimeMs - knownMs) <= knownMs * SAME_LIFETIME_SHARE) return
    this.#lifetimeMs = lifetimeMs
    this.#tellLifetime(lifetimeMs)
  }

  /** Without an org: all. A purged token is not taken from the store again, either. */
  purge(org: OrgId | undefined): void {
    if (org === undefined) this.#purgedAt = this.#now()
    else this.#store.forget(this.#keys.orgName(org))
    const content = JSON.stringify({ replica: this.#replica, org: org ?? null })
    this.#store.addPurge(this.#keys.appName, this.#keys.seal('purge', undefined, Buffer.from(content)))
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
    this.#readUntil = undefined
    const alone = this.#share(this.#keys, guard)
    this.#previous = old
    this.#shared = this.#share(this.#keys, old)
    this.#previousTimer = setTimeout(() => {
      this.#dropPrevious()
      this.#shared = alone
    }, this.#options.maxLifetimeMs).unref()
    if (this.#lifetimeMs !== undefined) this.#tellLifetime(this.#lifetimeMs)
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
    this.#closing.abort()
    clearTimeout(this.#boardTimer)
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

  /** @throws {MintNotSent} in a limit, and `OverBudget` if the turn of this call would come too late */
  async #awaitPermit(org: OrgId, { deadlineAt = Number.POSITIVE_INFINITY }: MintOptions): Promise<void> {
    const calls = Math.max(1, Math.floor(this.#options.mintRate))
    const windowMs = Math.ceil((calls / this.#options.mintRate) * 1_000)
    const budget = this.#shared?.budgetOf(org) ?? { leftMs: this.#options.store.timeoutMs }
    const startedAt = this.#now()
    const waitUntil =
      startedAt + (Math.min(deadlineAt, startedAt + this.#options.mintTimeoutMs) - startedAt) * RATE_WAIT_SHARE
    for (;;) {
      if (budget.leftMs <= 0) return
      const askedAt = this.#now()
      const reply = await this.#store.permit(this.#keys.appName, { calls, windowMs }, budget.leftMs)
      switch (reply.kind) {
        case 'granted':
          budget.leftMs -= this.#now() - askedAt
          return
        case 'error':
          budget.leftMs = 0
          return
        case 'limited': {
          const until = this.#readLimit(reply.limit)
          if (until === undefined) return
          const message = 'not called: it has told another replica to wait'
          throw new MintNotSent('token_endpoint_rate_limited', message, {
            retryAfterSeconds: secondsUntil(until, this.#now()),
          })
        }
        case 'wait': {
          const nextAt = this.#now() + reply.waitMs * (1 + this.#random() / 4)
          if (nextAt > waitUntil) {
            throw new OverBudget('token_endpoint_unavailable', 'not called: over the budget of the fleet for mints', {
              retryAfterSeconds: secondsUntil(nextAt, this.#now()),
              hint: 'The replicas have used up their common budget for the token endpoint: see tokens.mintRate.',
            })
          }
          await sleep(nextAt - this.#now(), undefined, { signal: this.#closing.signal }).catch(() => undefined)
        }
      }
    }
  }

  #scheduleBoard(delayMs: number): void {
    clearTimeout(this.#boardTimer)
    if (this.#closing.signal.aborted) return
    this.#boardTimer = setTimeout(() => {
      this.#readBoard().catch(() => undefined)
    }, delayMs).unref()
  }

  /** Goes on while the store is available, and starts again when it is back. */
  async #readBoard(): Promise<void> {
    const keys = this.#keys
    const receivedAt = this.#now()
    const reply = await this.#store.readBoard(keys.appName, this.#readUntil)
    if (reply.kind === 'ok' && keys === this.#keys) this.#take(reply, receivedAt)
    if (this.#store.state === 'available') this.#scheduleBoard(BOARD_MS * (0.75 + this.#random() / 2))
  }

  #take({ lifetime, limit, purges, until }: Board, askedAt: number): void {
    this.#readUntil = until
    this.#takeLifetime(lifetime)
    if (limit !== undefined) this.#readLimit(limit)
    for (const purge of purges) this.#takePurge(purge, askedAt)
  }

  #takeLifetime(sealed: string | undefined): void {
    if (sealed === undefined) {
      // The store has lost it.
      if (this.#lifetimeMs !== undefined) this.#tellLifetime(this.#lifetimeMs)
      return
    }
    if (sealed === this.#lifetimeSeen) return
    this.#lifetimeSeen = sealed
    const lifetimeMs = Number(this.#open('lifetime', sealed) ?? Number.NaN)
    if (!Number.isFinite(lifetimeMs)) return
    this.#lifetimeMs = lifetimeMs // first: taking it over comes back as `lifetimeLearned`
    this.#news?.lifetimeLearned(lifetimeMs)
  }

  #tellLifetime(lifetimeMs: number): void {
    const sealed = this.#keys.seal('lifetime', undefined, Buffer.from(String(Math.round(lifetimeMs))))
    this.#lifetimeSeen = sealed
    this.#store.setLifetime(this.#keys.appName, sealed)
  }

  /** When the limit ends; undefined for one that no replica has set. */
  #readLimit({ sealed, restMs }: Limit): number | undefined {
    const lengthMs = Number(this.#open('limit', sealed) ?? Number.NaN)
    // Only a stranger can have made it longer than its sealed length.
    if (!Number.isFinite(lengthMs) || restMs > lengthMs) return undefined
    const until = this.#now() + restMs
    if (until > this.#limitedUntil + SAME_LIMIT_MS) {
      this.#limitedUntil = until
      this.#news?.limited(until)
    }
    return until
  }

  #takePurge({ sealed, ageMs }: Purge, askedAt: number): void {
    const content: unknown = JSON.parse(this.#open('purge', sealed)?.toString() ?? 'null')
    if (typeof content !== 'object' || content === null) return
    const { replica, org } = content as { readonly replica?: unknown; readonly org?: unknown }
    if (replica === this.#replica) return
    if (typeof org === 'string') {
      this.#news?.purged(org as OrgId)
      return
    }
    this.#purgedAt = Math.max(this.#purgedAt, askedAt - ageMs)
    this.#news?.purged(undefined)
  }

  #open(kind: 'lifetime' | 'limit' | 'purge', sealed: string): Buffer | undefined {
    const content = this.#keys.open(kind, undefined, sealed)
    if (content === undefined) this.#options.observer.valueUnusable()
    return content
  }
}

function secondsUntil(at: number, now: number): number {
  return Math.max(1, Math.ceil((at - now) / 1_000))
}
