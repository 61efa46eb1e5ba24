/**
 * One replica's part in a fleet. A mint asks the store first for a token other than the one that is to be replaced. If there
 * is none, one replica gets the lease and mints, and the others take what it publishes. See docs/fleet.md.
 */

import { randomBytes } from 'node:crypto'
import { LRUCache } from 'lru-cache'
import * as clock from '../clock.ts'
import type { OrgId } from '../org-id.ts'
import type { PartWarnings, Status } from '../part.ts'
import type { Secret } from '../secret.ts'
import { AccessToken, type MintOptions, type TokenSource } from '../token/token-source.ts'
import { RedisStore, type StoreOptions } from './redis-store.ts'
import { CLAIM, FORGET, PUBLISH, RELEASE, type StoredToken, storedValue } from './scripts.ts'
import { type FleetIdentity, FleetKeys } from './sealing.ts'

interface FleetOptions extends FleetIdentity {
  readonly store: StoreOptions
  readonly mintTimeoutMs: number
  /** Names the Org among the replicas: those to which it is another one do not share its tokens. */
  readonly sharedAs: (org: OrgId) => string
}

/**
 * Of the time that a request has. A call of the token endpoint takes no longer, so what has this lease for longer is dead, and its
 * Org has a fifth of the time left for another mint. A longer lease is a stranger's, and counts as none.
 */
const LEASE_SHARE = 4 / 5
/** Of the same: so long a replica waits for others. Then it mints without a lease, because leases that follow each other are a stranger's. */
const WAIT_SHARE = 9 / 10
/** Jittered by half of it. */
const POLL_MS = 100
const RELEASE_AGAIN_MS = 250
/** A token that states no end stays in the store for this time. */
const MAX_SPAN_MS = 24 * 3_600_000
const MAX_PURGED = 10_000

interface SharedMint {
  readonly source: TokenSource
  readonly org: OrgId
  readonly options: MintOptions
  /** `sharedAs` it, when the mint began. */
  readonly shared: string
  readonly keys: FleetKeys
  /** Stands in the lease. */
  readonly owner: string
  /** Mark of the token to be replaced. */
  readonly except: string
  /** How far the store's clock is ahead of the monotonic one, or a little less. Undefined until it has answered. */
  storeAheadMs: number | undefined
  /** The store was asked for it, and may not have answered yet. */
  mayHaveLease: boolean
}

/** What is sealed. The life begins at the mint; it is null if none is stated, as JSON writes `Infinity`. */
type TokenContent = [mintedAtMs: number, statedLifeMs: number | null, token: string]

export class Fleet {
  readonly store: RedisStore
  readonly #options: FleetOptions
  /** What is told to other replicas while no request waits for it. */
  readonly #behind = new Set<Promise<unknown>>()
  /** Tokens minted before the purge of their Org, or of all, are not taken, even if the store could not delete them. */
  readonly #purgedAt = new LRUCache<OrgId, number>({ max: MAX_PURGED })
  #allPurgedAt = Number.NEGATIVE_INFINITY
  #keys: FleetKeys
  #isClosing = false
  readonly #leaseMs: number

  constructor(options: FleetOptions) {
    this.#options = options
    this.#leaseMs = Math.ceil(options.mintTimeoutMs * LEASE_SHARE)
    this.#keys = new FleetKeys(options)
    this.store = new RedisStore(options.store)
  }

  inFrontOf(source: TokenSource): TokenSource {
    return { mint: (org, options = {}) => this.#mint(source, org, options) }
  }

  /** Deletes the shared tokens of these orgs. This replica takes none of them from the store again; after `all`, none of any org. */
  purge(orgs: readonly OrgId[], all?: 'all'): void {
    const now = clock.now()
    if (all !== undefined) this.#allPurgedAt = now
    else for (const org of orgs) this.#purgedAt.set(org, now)
    this.#runBehind(this.#forget(orgs))
  }

  /** From now on, this replica shares with those that have this secret, and with no others. */
  secretReplaced(appSecret: Secret): void {
    this.#keys = new FleetKeys({ ...this.#options, appSecret })
  }

  warnings(): PartWarnings {
    const { state, reason } = this.store.status
    return {
      fleet_store_lost:
        state === 'lost'
          ? `The store of the fleet (fleet.store) cannot be used: ${reason}. Until it is back, this replica mints for itself.`
          : undefined,
      fleet_password_rejected:
        state === 'available' && reason !== ''
          ? `The changed password of fleet.passwordFile cannot be used: ${reason}. The connection from before is in use until it ends.`
          : undefined,
    }
  }

  status(): Partial<Status> {
    return { fleet: this.store.status }
  }

  /** Resolves when everything for the other replicas was sent or given up. */
  async close(): Promise<void> {
    this.#isClosing = true
    await Promise.all(this.#behind)
    this.store.close()
  }

  async #mint(source: TokenSource, org: OrgId, options: MintOptions): Promise<AccessToken> {
    const { replaces } = options
    const shared = this.#options.sharedAs(org)
    const mint: SharedMint = {
      source,
      org,
      shared,
      options,
      keys: this.#keys,
      owner: randomBytes(12).toString('base64url'),
      except: replaces === undefined ? '' : this.#keys.markOf(shared, replaces.reveal()),
      storeAheadMs: undefined,
      mayHaveLease: false,
    }
    const startedAt = clock.runningTime()
    for (;;) {
      const found = await this.#claim(mint)
      if (found instanceof AccessToken) return found
      const hasWaited = clock.runningTime() - startedAt >= this.#options.mintTimeoutMs * WAIT_SHARE
      if (found === 'mint' || hasWaited) return await this.#mintAndTell(mint)
      await clock.sleep(Math.min(POLL_MS * (0.5 + clock.random()), found.restMs + 1))
    }
  }

  /** Returns `mint` if this replica has the lease or the store is of no use; `restMs` is for how long another one has the lease. */
  async #claim(mint: SharedMint): Promise<AccessToken | 'mint' | { readonly restMs: number }> {
    const { org, shared, keys, owner, except, options } = mint
    const name = keys.nameOf(shared)
    const askedAt = clock.now()
    // An older token was purged, or is no younger than the one to be replaced.
    const bornAfter = Math.max(this.#lastPurgeOf(org), options.replaces?.mintedAt ?? Number.NEGATIVE_INFINITY)
    const maxAgeMs = Math.ceil(Math.min(MAX_SPAN_MS, askedAt - bornAfter))
    if (this.store.status.state !== 'lost') mint.mayHaveLease = true
    const reply = await this.store.ask(CLAIM, name, [owner, `${this.#leaseMs}`, `${maxAgeMs}`, except])
    if (reply.kind === 'error') return 'mint'
    mint.storeAheadMs = reply.storeTimeMs - clock.now()
    if (reply.kind !== 'token') return reply.kind === 'held' ? reply : 'mint'
    const token = open(mint, reply, Math.floor(askedAt - reply.ageMs))
    if (token !== undefined) return token
    // No replica has put it there. Another question could cost the request the time of the store once more.
    this.#runBehind(this.store.ask(FORGET, name))
    return 'mint'
  }

  /** Asks the source behind. Tells the others the outcome, without making the request wait for that. */
  async #mintAndTell(mint: SharedMint): Promise<AccessToken> {
    try {
      const startedAt = Math.floor(clock.now())
      const lastPurge = this.#lastPurgeOf(mint.org)
      const token = await mint.source.mint(mint.org, mint.options)
      // A token that came late, from an earlier call, is older than the others would take it for. One that a purge overtook serves
      // its request alone.
      if (token.mintedAt < startedAt || this.#lastPurgeOf(mint.org) !== lastPurge) this.#release(mint)
      else this.#tell(mint, token)
      return token
    } catch (error) {
      this.#release(mint)
      throw error
    }
  }

  #tell(mint: SharedMint, token: AccessToken): void {
    const { org, shared, options, owner, storeAheadMs } = mint
    const { replaces } = options
    const { statedLifeMs } = token
    const ageMs = Math.max(0, clock.now() - token.mintedAt)
    const restMs = Math.floor(Math.min(statedLifeMs, MAX_SPAN_MS) - ageMs)
    // A store that did not answer may take the token much later, and nothing would tell how old it is then.
    // The Org may be another one by now.
    const isOther = this.#options.sharedAs(org) !== shared
    if (storeAheadMs === undefined || restMs <= 0 || replaces?.equals(token) || isOther) {
      this.#release(mint)
      return
    }
    const keys = this.#keys
    // The secret was replaced meanwhile. Whoever holds the old one must not learn the token.
    if (keys.nameOf(shared) !== mint.keys.nameOf(shared)) this.#release(mint)
    const text = token.reveal()
    const mintedAtMs = Math.floor(token.mintedAt + storeAheadMs)
    const content: TokenContent = [mintedAtMs, statedLifeMs, text]
    const value = storedValue({
      mark: keys.markOf(shared, text),
      mintedAtMs,
      sealed: keys.seal(shared, JSON.stringify(content)),
    })
    const published = this.store.ask(PUBLISH, keys.nameOf(shared), [owner, value, String(restMs)])
    this.#runBehind(published.then(({ kind }) => (kind === 'error' ? this.#giveBack(mint) : undefined)))
  }

  #release(mint: SharedMint): void {
    this.#runBehind(this.#giveBack(mint))
  }

  /** Until the store has answered: it may give the lease late, and then others wait though nobody mints. */
  async #giveBack({ keys, shared, owner, mayHaveLease }: SharedMint): Promise<void> {
    while (mayHaveLease) {
      const { kind } = await this.store.ask(RELEASE, keys.nameOf(shared), [owner])
      if (kind !== 'error' || this.#isClosing) return
      await clock.sleep(RELEASE_AGAIN_MS)
    }
  }

  #lastPurgeOf(org: OrgId): number {
    return Math.max(this.#allPurgedAt, this.#purgedAt.get(org) ?? Number.NEGATIVE_INFINITY)
  }

  async #forget(orgs: readonly OrgId[]): Promise<void> {
    const keys = this.#keys
    for (const org of orgs) {
      if ((await this.store.ask(FORGET, keys.nameOf(this.#options.sharedAs(org)))).kind === 'error') return
    }
  }

  /** Nothing of this rejects: the store does not. */
  #runBehind(work: Promise<unknown>): void {
    this.#behind.add(work)
    work.finally(() => this.#behind.delete(work))
  }
}

/** Undefined for a value that no replica with this secret has sealed for this org. */
function open({ keys, shared }: SharedMint, found: StoredToken, mintedAt: number): AccessToken | undefined {
  const opened = keys.open(shared, found.sealed)
  if (opened === undefined) return undefined
  // Only a replica with this secret and format can have sealed it, so its shape needs no check.
  const [mintedAtMs, statedLifeMs, text]: TokenContent = JSON.parse(opened)
  if (mintedAtMs !== found.mintedAtMs || keys.markOf(shared, text) !== found.mark) return undefined
  return new AccessToken(text, mintedAt, statedLifeMs ?? undefined)
}
