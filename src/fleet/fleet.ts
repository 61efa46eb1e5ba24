/**
 * One replica's part in a fleet. A mint asks the store first for a token other than the one that is to be replaced. If there
 * is none, one replica gets the lease and mints, and the others take what it publishes. See docs/fleet.md.
 */

import { randomBytes } from 'node:crypto'
import { setMaxListeners } from 'node:events'
import { performance } from 'node:perf_hooks'
import { setTimeout as sleep } from 'node:timers/promises'
import { LRUCache } from 'lru-cache'
import { TokenError } from '../errors.ts'
import type { OrgId } from '../http/org-id.ts'
import type { Secret } from '../secret.ts'
import { AccessToken, MintGoesOn, type MintOptions, type TokenSource } from '../token/token-source.ts'
import { RedisStore, type StoreObserver, type StoreOptions } from './redis-store.ts'
import type { FoundToken } from './scripts.ts'
import { type FleetIdentity, FleetKeys } from './sealing.ts'

interface FleetOptions extends FleetIdentity {
  readonly store: Omit<StoreOptions, 'observer'>
  /** How long a request waits for a mint. */
  readonly mintTimeoutMs: number
  readonly maxOrgs: number
  readonly observer: FleetObserver
}

/** Must not throw. */
export interface FleetObserver extends StoreObserver {
  /** The store held a value that no replica with this secret has put there. */
  valueUnusable(): void
}

/** A lease lasts for this share of the time that a request has, so that time for a mint is left after the lease of a dead replica. */
const LEASE_SHARE = 1 / 2
/** Where mints are slow, a lease lasts so many times as long as the last one took. */
const SLOW_FACTOR = 2
/** After so many times of what a request has, a replica mints without a lease. Then it finds out itself what the trouble is. */
const WAIT_FACTOR = 2
const MIN_POLL_MS = 50
const MAX_POLL_MS = 150
/** A token of which nobody knows the life stays in the store for this time. */
const MAX_SPAN_MS = 24 * 3_600_000
/** With more tokens than this that are no answer, a mint does without the store. */
const MAX_EXCEPT = 3
const BEARER = 'Bearer '

/** One mint that goes through the store. */
interface SharedMint {
  readonly source: TokenSource
  readonly org: OrgId
  readonly options: MintOptions
  readonly keys: FleetKeys
  /** Stands in the lease. */
  readonly owner: string
  /** Marks of tokens that are no answer: the one to be replaced, and ones that could not be used. */
  readonly except: string[]
  /** The time that the store may still cost the request. */
  budgetMs: number
  /** The store's clock when it first answered. */
  askedAtMs: number | undefined
}

/** What is sealed. Times that nobody knows are null; lives begin at the mint. */
type TokenContent = readonly [
  spanMs: number,
  askedAtMs: number,
  statedLifeMs: number | null,
  expectedLifeMs: number | null,
  token: string,
]

export class Fleet {
  readonly store: RedisStore
  readonly #options: FleetOptions
  readonly #closing = new AbortController()
  /** What is told to other replicas while no request waits for it. */
  readonly #behind = new Set<Promise<void>>()
  /** Tokens minted before these instants are not wanted, even if the store could not delete them. */
  readonly #purgedAt: LRUCache<OrgId, number>
  #allPurgedAt = Number.NEGATIVE_INFINITY
  #keys: FleetKeys
  /** How long the last mint took, here or at the replica that was waited for. */
  #mintMs = 0

  constructor(options: FleetOptions) {
    this.#options = options
    setMaxListeners(0, this.#closing.signal) // each wait listens: Node warns of a leak from the eleventh on
    this.#purgedAt = new LRUCache({ max: options.maxOrgs })
    this.#keys = new FleetKeys(options)
    this.store = new RedisStore({ ...options.store, observer: options.observer })
  }

  /** Returns a source that asks the store before `source`. */
  inFrontOf(source: TokenSource): TokenSource {
    return { mint: (org, options = {}) => this.#mint(source, org, options) }
  }

  /** Deletes the shared token. This replica takes no token of the org from the store again that is older than the purge. */
  purge(org: OrgId): void {
    this.#purgedAt.set(org, performance.now())
    this.#runBehind(this.#forget([org]))
  }

  /** The same for all orgs. Deletes the shared tokens of those that this replica knows. */
  purgeAll(knownOrgs: readonly OrgId[]): void {
    this.#allPurgedAt = performance.now()
    this.#runBehind(this.#forget(knownOrgs))
  }

  /** From now on, this replica shares with those that have this secret, and with no others. */
  secretReplaced(appSecret: Secret): void {
    this.#keys = new FleetKeys({ ...this.#options, appSecret })
  }

  /** Resolves when everything for the other replicas was sent or given up. Waits for other replicas end at once. */
  async close(): Promise<void> {
    this.#closing.abort()
    await Promise.all(this.#behind)
    this.store.close()
  }

  async #mint(source: TokenSource, org: OrgId, options: MintOptions): Promise<AccessToken> {
    const { mintTimeoutMs, store } = this.#options
    const { replaces } = options
    const mint: SharedMint = {
      source,
      org,
      options,
      keys: this.#keys,
      owner: randomBytes(12).toString('base64url'),
      except: replaces === undefined ? [] : [this.#keys.markOf(org, textOf(replaces))],
      budgetMs: store.timeoutMs,
      askedAtMs: undefined,
    }
    const startedAt = performance.now()
    for (let hasWaited = false; ; hasWaited = true) {
      const found = await this.#claim(mint)
      const waitedMs = performance.now() - startedAt
      if (found instanceof AccessToken) {
        if (hasWaited) this.#mintMs = waitedMs
        return found
      }
      if (found === 'mint' || waitedMs > mintTimeoutMs * WAIT_FACTOR)
        return hasWaited ? this.#mintAfterWait(mint) : this.#mintAndTell(mint)
      await this.#pause(found.heldMs + 1)
    }
  }

  /** Returns `mint` if this replica has the lease or the store is of no use; `heldMs` is for how long another one has the lease. */
  async #claim(mint: SharedMint): Promise<AccessToken | 'mint' | { readonly heldMs: number }> {
    const { org, keys, owner, except } = mint
    const leaseMs = Math.max(this.#options.mintTimeoutMs * LEASE_SHARE, this.#mintMs * SLOW_FACTOR)
    while (mint.budgetMs > 0 && except.length <= MAX_EXCEPT) {
      const askedAt = performance.now()
      const maxAgeMs = this.#maxAgeOf(mint, askedAt)
      const reply = await this.store.claim(keys.nameOf(org), { owner, leaseMs, maxAgeMs, except }, mint.budgetMs)
      // Time in which another replica mints is not lost to the store.
      if (reply.kind !== 'held') mint.budgetMs -= performance.now() - askedAt
      switch (reply.kind) {
        case 'error':
          return 'mint'
        case 'acquired':
          mint.askedAtMs ??= reply.storeTimeMs
          return 'mint'
        case 'held':
          mint.askedAtMs ??= reply.storeTimeMs
          return { heldMs: reply.restMs }
        case 'token': {
          const token = this.#open(mint, reply, askedAt)
          if (token !== undefined && askedAt - token.mintedAt < maxAgeMs) return token
          except.push(reply.mark)
        }
      }
    }
    return 'mint'
  }

  /** A token of this age has probably ended, was purged, or is no younger than the one to be replaced. */
  #maxAgeOf({ org, options }: SharedMint, now: number): number {
    const { replaces, expectedLifeMs = Number.POSITIVE_INFINITY } = options
    const purgedAt = Math.max(this.#allPurgedAt, this.#purgedAt.peek(org) ?? Number.NEGATIVE_INFINITY)
    return Math.min(expectedLifeMs, now - Math.max(purgedAt, replaces?.mintedAt ?? Number.NEGATIVE_INFINITY))
  }

  /**
   * This replica has waited for another one, which may be dead, or only slow. So it goes on asking the store while it mints:
   * the token of the slow one may come first.
   */
  async #mintAfterWait(mint: SharedMint): Promise<AccessToken> {
    let hasEnded = false
    const minted = this.#mintAndTell(mint).finally(() => {
      hasEnded = true
    })
    const publishedByAnother = async () => {
      mint.budgetMs = this.#options.store.timeoutMs // these questions delay nobody
      while (mint.budgetMs > 0) {
        await this.#pause(MAX_POLL_MS)
        const found = hasEnded ? undefined : await this.#claim(mint)
        if (found instanceof AccessToken) return found
        if (hasEnded) break
      }
      return await minted
    }
    return await Promise.race([minted, publishedByAnother()])
  }

  /** Asks the source behind. Tells the others the outcome, without making the request wait for that. */
  async #mintAndTell(mint: SharedMint): Promise<AccessToken> {
    try {
      const token = await mint.source.mint(mint.org, mint.options)
      this.#tell(mint, token)
      return token
    } catch (error) {
      const late = error instanceof MintGoesOn ? error.token : Promise.reject(error)
      late.then(
        (token) => this.#tell(mint, token),
        () => this.#release(mint),
      )
      throw error
    }
  }

  #tell(mint: SharedMint, token: AccessToken): void {
    const { org, options, owner, askedAtMs } = mint
    const { replaces, expectedLifeMs } = options
    const { statedLifeMs } = token
    const spanMs = Math.floor(Math.min(statedLifeMs, expectedLifeMs ?? statedLifeMs, MAX_SPAN_MS))
    const ageMs = Math.max(0, Math.ceil(performance.now() - token.mintedAt))
    const restMs = Math.max(0, spanMs - ageMs)
    this.#mintMs = ageMs
    // A store that did not answer may take the token much later, and nothing would tell how old it is then.
    if (askedAtMs === undefined || restMs === 0 || replaces?.equals(token)) {
      this.#release(mint)
      return
    }
    const keys = this.#keys
    // The secret was replaced meanwhile. Whoever holds the old one must not learn the token.
    if (keys !== mint.keys) this.#release(mint)
    const text = textOf(token)
    const statedMs = Number.isFinite(statedLifeMs) ? statedLifeMs : null
    const content: TokenContent = [spanMs, askedAtMs, statedMs, expectedLifeMs ?? null, text]
    const stored = { mark: keys.markOf(org, text), spanMs, sealed: keys.seal(org, JSON.stringify(content)) }
    this.#runBehind(this.store.publish(keys.nameOf(org), owner, stored, ageMs))
  }

  /** A lease that a store gave without an answer ends by itself. */
  #release({ keys, org, owner, askedAtMs }: SharedMint): void {
    if (askedAtMs === undefined) return
    this.#runBehind(this.store.release(keys.nameOf(org), owner))
  }

  /** Undefined for a value that no replica with this secret has sealed for this org. */
  #open({ keys, org }: SharedMint, found: FoundToken, askedAt: number): AccessToken | undefined {
    const { ageMs, storeTimeMs } = found
    const opened = keys.open(org, found.sealed)
    // Only a replica with this secret and format can have sealed it, so its shape needs no check.
    const content: TokenContent | undefined = opened && JSON.parse(opened)
    if (content?.[0] !== found.spanMs || keys.markOf(org, content[4]) !== found.mark) {
      this.#options.observer.valueUnusable()
      return undefined
    }
    const [, askedAtMs, statedLifeMs, expectedLifeMs, text] = content
    // A token that the store took late, or that somebody has put back, looks young by its expiry. The store's clock tells its age.
    const mintedAt = askedAt - Math.max(ageMs, storeTimeMs - askedAtMs)
    const expiresAt = statedLifeMs === null ? undefined : mintedAt + statedLifeMs
    return new AccessToken(text, mintedAt, expiresAt, expectedLifeMs ?? undefined)
  }

  async #forget(orgs: readonly OrgId[]): Promise<void> {
    const keys = this.#keys
    for (const org of orgs) {
      if (this.#closing.signal.aborted || !(await this.store.forget(keys.nameOf(org)))) return
    }
  }

  /** Nothing of this rejects: the store does not. */
  #runBehind(work: Promise<void>): void {
    this.#behind.add(work)
    work.finally(() => this.#behind.delete(work))
  }

  async #pause(mostMs: number): Promise<void> {
    const pollMs = MIN_POLL_MS + Math.random() * (MAX_POLL_MS - MIN_POLL_MS)
    try {
      await sleep(Math.max(0, Math.min(pollMs, mostMs)), undefined, { signal: this.#closing.signal })
    } catch {
      throw new TokenError('token_endpoint_unavailable', 'stopped while another replica was minting')
    }
  }
}

function textOf(token: AccessToken): string {
  return token.reveal().slice(BEARER.length)
}
