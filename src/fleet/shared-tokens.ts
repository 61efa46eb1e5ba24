/**
 * A token source for one replica of many. It asks the store for a token other than the one that the caller wants replaced.
 * If there is none, one replica gets the lease and mints, and the others take what it publishes. See docs/fleet.md.
 */

import { randomBytes } from 'node:crypto'
import { setMaxListeners } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import { LRUCache } from 'lru-cache'
import { TokenError } from '../errors.ts'
import type { OrgId } from '../http/org-id.ts'
import { AccessToken, MintGoesOn, type MintOptions, OverBudget, type TokenSource } from '../token/token-source.ts'
import type { FleetKeys } from './sealing.ts'
import type { ClaimReply, FleetStore, ReleaseNote, StoredToken } from './store.ts'

interface SharedTokensOptions {
  readonly store: FleetStore
  readonly keys: FleetKeys
  /** Longest wait for the store that a request which needs a mint may have on top of the mint. */
  readonly timeoutMs: number
  /** Of a whole mint. A lease lasts half of it, so that a replica that waited for a dead one has time for a mint of its own. */
  readonly mintTimeoutMs: number
  /** A token stays in the store for this time. */
  readonly maxLifetimeMs: number
  readonly maxOrgs: number
  /** An older token is not worth taking. */
  readonly lifetimeMs: () => number
  /** Tokens minted before this instant are no longer wanted: monotonic milliseconds. */
  readonly purgedAt: () => number
  /** A value in the store could not be opened. */
  readonly onUnusable: () => void
  readonly now: () => number
  readonly random: () => number
  readonly wait?: ((ms: number, signal: AbortSignal) => Promise<void>) | undefined
}

/** The time that the store may still cost the request. */
interface StoreBudget {
  leftMs: number
}

/** Of the time that a mint has, this share may be spent on waiting for another replica. The rest is for a mint without a lease. */
const WAIT_SHARE = 0.7
const LEASE_SHARE = 0.5
const MIN_POLL_MS = 50
const MAX_POLL_MS = 150
/** After more values than this that cannot be opened, a mint does without the store. */
const MAX_UNUSABLE = 2
/** Marks kept of each org's earlier tokens. If one of these tokens is in the store, somebody has put it back. */
const MARKS_KEPT = 3
/** Waiting replicas can read the refusal of an org for this time. Each of them then remembers it by itself. */
const REFUSAL_NOTE_MS = 1_000
/** If the endpoint issued the same token again, the other replicas do not ask it for this long. */
const SAME_NOTE_MS = 5_000
const BEARER = 'Bearer '

export class SharedTokens implements TokenSource {
  readonly #options: SharedTokensOptions
  readonly #source: TokenSource
  readonly #wait: (ms: number, signal: AbortSignal) => Promise<void>
  readonly #closing = new AbortController()
  readonly #retired: LRUCache<OrgId, readonly string[]>
  /** The time that the mints under way have waited for the store. */
  readonly #budgets = new Map<OrgId, StoreBudget>()
  readonly #behind = new Set<Promise<void>>()

  constructor(options: SharedTokensOptions, source: TokenSource) {
    this.#options = options
    this.#source = source
    setMaxListeners(0, this.#closing.signal) // each wait listens: Node warns of a leak from the eleventh on
    this.#wait = options.wait ?? ((ms, signal) => sleep(ms, undefined, { signal }))
    this.#retired = new LRUCache({ max: options.maxOrgs })
  }

  mint(org: OrgId, options: MintOptions = {}): Promise<AccessToken> {
    return this.mintWithin(org, options, { leftMs: this.#options.timeoutMs })
  }

  /** The `SharedTokens` in front of this one passes on what is left of its time for the store. */
  async mintWithin(org: OrgId, options: MintOptions, budget: StoreBudget): Promise<AccessToken> {
    const { now, mintTimeoutMs } = this.#options
    const startedAt = now()
    const deadlineAt = Math.min(options.deadlineAt ?? Number.POSITIVE_INFINITY, startedAt + mintTimeoutMs)
    const owner = randomBytes(12).toString('base64url')
    const mint: SharedMint = { org, options: { ...options, deadlineAt }, budget, owner, unusable: [] }
    if (options.replaces !== undefined) this.#retire(org, options.replaces)
    const waitUntil = startedAt + (deadlineAt - startedAt) * WAIT_SHARE
    let hasWaited = false
    for (let unusable = 0; unusable <= MAX_UNUSABLE; ) {
      const askedAt = now()
      const reply = await this.#claim(mint, askedAt)
      switch (reply.kind) {
        case 'token': {
          const token = this.#openFor(mint, reply, askedAt)
          if (token !== undefined) return token
          unusable += 1
          break
        }
        case 'noted':
          return this.#readNote(org, reply.note, options.replaces) ?? (await this.#mint(mint))
        case 'held':
          if (now() >= waitUntil) return this.#mintAfterWait(mint)
          hasWaited = true
          await this.#pause(Math.min(reply.restMs + 1, waitUntil - now()))
          break
        case 'acquired':
          return hasWaited ? this.#mintAfterWait(mint) : this.#mint(mint)
        case 'error':
          return this.#mint(mint)
      }
    }
    return this.#mint(mint)
  }

  /** The time that the running mint for `org` may still wait for the store. */
  budgetOf(org: OrgId): StoreBudget | undefined {
    return this.#budgets.get(org)
  }

  /** Resolves when every answer for the other replicas was sent or given up. Waits for other replicas end at once. */
  async close(): Promise<void> {
    this.#closing.abort()
    await Promise.all(this.#behind)
  }

  async #claim(mint: SharedMint, askedAt: number, budget = mint.budget): Promise<ClaimReply> {
    const { store, keys, lifetimeMs, mintTimeoutMs, purgedAt, now } = this.#options
    const { org, owner } = mint
    if (budget.leftMs <= 0) return { kind: 'error' }
    const heldAgeMs = askedAt - (mint.options.replaces?.mintedAt ?? Number.NEGATIVE_INFINITY)
    const request = {
      owner,
      leaseMs: Math.ceil(mintTimeoutMs * LEASE_SHARE),
      except: [...(this.#retired.peek(org) ?? []), ...mint.unusable],
      maxAgeMs: Math.ceil(Math.min(lifetimeMs(), heldAgeMs, askedAt - purgedAt())),
    }
    const reply = await store.claim(keys.orgName(org), request, budget.leftMs)
    // Time in which another replica mints is not lost to the store.
    if (reply.kind !== 'held') budget.leftMs -= now() - askedAt
    return reply
  }

  /**
   * This replica has waited for another one, which may be dead, or only slow. So it goes on asking the store while it mints:
   * the token of the slow one may come first.
   */
  async #mintAfterWait(mint: SharedMint): Promise<AccessToken> {
    const ended = new AbortController()
    const minted = this.#mint(mint).catch(async (error: unknown) => {
      // Another replica may have room in its budget, and time is left.
      if (error instanceof OverBudget) await this.#waitForDeadline(mint, ended.signal)
      throw error
    })
    try {
      return await Promise.race([minted, this.#awaitPublished(mint, ended.signal)])
    } finally {
      ended.abort()
    }
  }

  async #waitForDeadline({ options }: SharedMint, ended: AbortSignal): Promise<void> {
    const leftMs = Math.max(0, options.deadlineAt - this.#options.now())
    await this.#wait(leftMs, ended).catch(() => undefined)
  }

  /** Does not resolve if no other replica publishes a token before the signal. */
  async #awaitPublished(mint: SharedMint, ended: AbortSignal): Promise<AccessToken> {
    const { now, timeoutMs } = this.#options
    // A budget of its own: these questions delay nobody.
    const budget = { leftMs: timeoutMs }
    while (!ended.aborted && budget.leftMs > 0) {
      await this.#pause(MAX_POLL_MS)
      const askedAt = now()
      const reply = await this.#claim(mint, askedAt, budget)
      const token = reply.kind === 'token' ? this.#openFor(mint, reply, askedAt) : undefined
      if (token !== undefined) return token
    }
    return await new Promise(() => undefined)
  }

  /** Asks the source behind. Tells the others the outcome, without making the request wait for that. */
  async #mint(mint: SharedMint): Promise<AccessToken> {
    const { org, options, budget } = mint
    this.#budgets.set(org, budget)
    let token: AccessToken
    try {
      const source = this.#source
      token = await (source instanceof SharedTokens
        ? source.mintWithin(org, options, budget)
        : source.mint(org, options))
    } catch (error) {
      if (error instanceof MintGoesOn) this.#awaitLate(mint, error.token)
      else this.#release(mint, this.#noteOf(org, error))
      throw error
    } finally {
      this.#budgets.delete(org)
    }
    this.#tell(mint, token)
    return token
  }

  /** The request has been answered, but the mint goes on. */
  #awaitLate(mint: SharedMint, late: Promise<AccessToken>): void {
    late.then(
      (token) => this.#tell(mint, token),
      (error: unknown) => this.#release(mint, this.#noteOf(mint.org, error)),
    )
  }

  #tell(mint: SharedMint, token: AccessToken): void {
    if (mint.options.replaces?.equals(token)) this.#release(mint, this.#noteOfSame(mint.org, token))
    else this.#publish(mint, token)
  }

  #publish(mint: SharedMint, token: AccessToken): void {
    const { store, keys, maxLifetimeMs, now } = this.#options
    const spanMs = Math.floor(Math.min(maxLifetimeMs, token.statedLifeMs))
    const ageMs = Math.max(0, Math.ceil(now() - token.mintedAt))
    if (ageMs >= spanMs) {
      this.#release(mint)
      return
    }
    const value = tokenOf(token)
    const content: TokenContent = { span: spanMs, life: finite(token.statedLifeMs), token: value }
    const stored: StoredToken = {
      mark: keys.markOf(mint.org, value),
      spanMs,
      sealed: keys.seal('token', mint.org, Buffer.from(JSON.stringify(content))),
    }
    this.#runBehind(store.publish(keys.orgName(mint.org), { owner: mint.owner, token: stored, ageMs }))
  }

  #release(mint: SharedMint, note?: ReleaseNote): void {
    const { store, keys } = this.#options
    this.#runBehind(store.release(keys.orgName(mint.org), mint.owner, note))
  }

  #runBehind(work: Promise<unknown>): void {
    const done: Promise<void> = work.then(
      () => undefined,
      () => undefined,
    )
    this.#behind.add(done)
    done.finally(() => this.#behind.delete(done))
  }

  /** Remembers a value that cannot be opened: the next claim asks for another one. */
  #openFor(mint: SharedMint, { token, ageMs }: FoundToken, askedAt: number): AccessToken | undefined {
    const opened = this.#open(mint.org, token, askedAt - ageMs)
    if (opened === undefined) mint.unusable.push(token.mark)
    return opened
  }

  /** Undefined for a value that no replica with this secret has sealed for this org. */
  #open(org: OrgId, stored: StoredToken, mintedAt: number): AccessToken | undefined {
    const content = parseContent(this.#options.keys.open('token', org, stored.sealed))
    const isWhole =
      content !== undefined &&
      content.span === stored.spanMs &&
      this.#options.keys.markOf(org, content.token) === stored.mark
    if (!isWhole) {
      this.#options.onUnusable()
      return undefined
    }
    return new AccessToken(content.token, mintedAt, content.life === null ? undefined : mintedAt + content.life)
  }

  /** @throws {TokenError} where the note is a refusal of the org */
  #readNote(org: OrgId, note: string, replaces: AccessToken | undefined): AccessToken | undefined {
    const content = this.#options.keys.open('refusal', org, note)?.toString()
    const [kind, detail] = content?.split(' ') ?? []
    if (kind === 'refused') {
      const message = `the token endpoint answered ${detail} to another replica`
      throw new TokenError('org_access_refused', message, { tokenEndpointStatus: Number(detail) })
    }
    if (kind === 'same' && replaces !== undefined && detail === this.#options.keys.markOf(org, tokenOf(replaces))) {
      return replaces
    }
    if (kind === undefined) this.#options.onUnusable()
    return undefined
  }

  #noteOf(org: OrgId, error: unknown): ReleaseNote | undefined {
    if (!(error instanceof TokenError) || error.code !== 'org_access_refused') return undefined
    const text = `refused ${error.tokenEndpointStatus ?? 403}`
    return { text: this.#options.keys.seal('refusal', org, Buffer.from(text)), noteMs: REFUSAL_NOTE_MS }
  }

  #noteOfSame(org: OrgId, token: AccessToken): ReleaseNote {
    const { keys } = this.#options
    const text = `same ${keys.markOf(org, tokenOf(token))}`
    return { text: keys.seal('refusal', org, Buffer.from(text)), noteMs: SAME_NOTE_MS }
  }

  #retire(org: OrgId, token: AccessToken): void {
    const mark = this.#options.keys.markOf(org, tokenOf(token))
    const others = (this.#retired.peek(org) ?? []).filter((other) => other !== mark)
    this.#retired.set(org, [mark, ...others].slice(0, MARKS_KEPT))
  }

  async #pause(mostMs: number): Promise<void> {
    const pollMs = MIN_POLL_MS + this.#options.random() * (MAX_POLL_MS - MIN_POLL_MS)
    try {
      await this.#wait(Math.max(0, Math.min(pollMs, mostMs)), this.#closing.signal)
    } catch {
      throw new TokenError('token_endpoint_unavailable', 'stopped while another replica was minting')
    }
  }
}

type FoundToken = Extract<ClaimReply, { kind: 'token' }>

/** One mint that goes through the store. */
interface SharedMint {
  readonly org: OrgId
  readonly options: MintOptions & { readonly deadlineAt: number }
  readonly budget: StoreBudget
  readonly owner: string
  /** Marks of values that could not be opened. */
  readonly unusable: string[]
}

interface TokenContent {
  readonly span: number
  /** From the mint to the end that the token itself states, in milliseconds. */
  readonly life: number | null
  readonly token: string
}

function parseContent(bytes: Buffer | undefined): TokenContent | undefined {
  if (bytes === undefined) return undefined
  // Only a replica with this secret and format can have sealed it, so a check of its shape is enough.
  const content: unknown = JSON.parse(bytes.toString('utf8'))
  if (typeof content !== 'object' || content === null) return undefined
  const { span, life, token } = content as Partial<TokenContent>
  if (typeof span !== 'number' || !AccessToken.isUsable(token)) return undefined
  return { span, life: typeof life === 'number' ? life : null, token }
}

function tokenOf(token: AccessToken): string {
  return token.reveal().slice(BEARER.length)
}

function finite(ms: number): number | null {
  return Number.isFinite(ms) ? ms : null
}
