/**
 * The store in Redis or Valkey. Each operation is one script and takes at most `timeoutMs`, whatever the server does. After
 * some failures the server is left alone and a probe looks after it, so that requests pay for an outage only at its start.
 */

import { performance } from 'node:perf_hooks'
import type { Secret } from '../secret.ts'
import { type Link, type LinkOptions, openLink } from './redis-link.ts'
import * as scripts from './scripts.ts'

export interface StoreOptions extends Pick<LinkOptions, 'address' | 'isCluster' | 'username' | 'secureContext'> {
  /** Asked for each connection. */
  readonly password: () => Secret | undefined
  readonly prefix: string
  readonly timeoutMs: number
  readonly observer: StoreObserver
}

export type StoreOperation = 'claim' | 'publish' | 'release' | 'forget' | 'probe'
type Answer = scripts.ClaimReply['kind'] | 'published' | 'lost' | 'ok'
/** The answer of the store; or `skipped`, because it failed a moment ago and was not asked. */
export type StoreOutcome = Answer | 'timeout' | 'error' | 'skipped'

/** Must not throw. */
export interface StoreObserver {
  storeAsked(operation: StoreOperation, outcome: StoreOutcome, durationMs: number): void
  storeLost(reason: string): void
  /** Also after the first connection. */
  storeBack(): void
  /** A new connection is not possible. Told once until there is one. */
  passwordRejected(reason: string): void
}

export interface StoreStatus {
  readonly state: 'connecting' | 'available' | 'lost'
  /** Why it was lost; empty while it is there. For people: it holds no secret. */
  readonly reason: string
}

/** No answer in time, or none that can be used. The store may have done the operation or not. */
const ERROR = { kind: 'error' } as const

/** Failures in a row after which the store is left alone. Each began after the one before was known. */
const MAX_FAILURES = 3
const FIRST_PAUSE_MS = 250
/** Together with an attempt to connect, it decides how soon a recovery is seen. */
const LONGEST_PAUSE_MS = 2_000
const CONNECT_TIMEOUT_MS = 1_000
/** In a cluster, one node may be gone while the others answer. Then the map of slots is fetched again, at most this often. */
const RENEWAL_MS = 1_000

/** Failures of the store that are no error of the client. The message is for people. */
class Unusable extends Error {}
const timedOut = () => new Unusable('no answer in time')
const nonsense = () => new Unusable('an answer that makes no sense')

/** No operation rejects: an outage is an answer (`error`), and never mistaken for another replica that mints (`held`). */
export class RedisStore {
  readonly #options: StoreOptions
  readonly #connectTimeoutMs: number
  #status: StoreStatus = { state: 'connecting', reason: '' }
  #link: Link
  #failures = 0
  #failedAt = Number.NEGATIVE_INFINITY
  #pauseMs = FIRST_PAUSE_MS
  #renewedAt = Number.NEGATIVE_INFINITY
  #probeTimer: NodeJS.Timeout | undefined
  #isRejectionTold = false
  #isClosed = false

  constructor(options: StoreOptions) {
    this.#options = options
    this.#connectTimeoutMs = Math.max(CONNECT_TIMEOUT_MS, options.timeoutMs)
    this.#link = this.#open()
    this.#try(this.#link)
  }

  get status(): StoreStatus {
    return this.#status
  }

  /** `name` is that of an org: see `FleetKeys`. Waits for the answer for `limitMs` at most. */
  claim(name: string, request: scripts.ClaimRequest, limitMs: number): Promise<scripts.ClaimReply | typeof ERROR> {
    return this.#ask('claim', scripts.CLAIM, this.#keys(name, 't', 'l'), scripts.claimArguments(request), limitMs)
  }

  async publish(name: string, owner: string, token: scripts.StoredToken, ageMs: number): Promise<void> {
    const args = [owner, scripts.storedValue(token), String(token.spanMs - ageMs), String(ageMs)]
    await this.#ask('publish', scripts.PUBLISH, this.#keys(name, 't', 'l'), args)
  }

  /** Ends the lease if it is still the owner's. */
  async release(name: string, owner: string): Promise<void> {
    await this.#ask('release', scripts.RELEASE, this.#keys(name, 'l'), [owner])
  }

  /** Resolves with false if the store has failed. */
  async forget(name: string): Promise<boolean> {
    return (await this.#ask('forget', scripts.FORGET, this.#keys(name, 't'), [])) !== ERROR
  }

  /** Connects anew, with a changed password. What is under way goes on with the old connection. */
  reconnect(): void {
    if (this.#status.state === 'available') this.#renew()
  }

  /** For `check`. Resolves with the problem, or undefined. */
  async tryOut(): Promise<string | undefined> {
    try {
      await this.#test(this.#link)
      return undefined
    } catch (error) {
      return reasonOf(error)
    }
  }

  close(): void {
    this.#isClosed = true
    clearTimeout(this.#probeTimer)
    this.#link.close()
  }

  async #ask<T extends { readonly kind: Answer }>(
    operation: StoreOperation,
    script: scripts.Script<T>,
    keys: readonly string[],
    args: readonly string[],
    limitMs: number = this.#options.timeoutMs,
  ): Promise<T | typeof ERROR> {
    const { timeoutMs } = this.#options
    const startedAt = performance.now()
    const tell = this.#teller(operation)
    if (this.#status.state === 'lost' || this.#isClosed) {
      tell('skipped')
      return ERROR
    }
    const link = this.#link
    try {
      const answer = link.opened.then(() => link.run(script, keys, args))
      const reply = script.parse(await within(answer, Math.min(limitMs, timeoutMs)))
      if (reply === undefined) throw nonsense()
      this.#failures = 0
      this.#pauseMs = FIRST_PAUSE_MS
      tell(reply.kind)
      return reply
    } catch (error) {
      const outcome = outcomeOf(error)
      tell(outcome)
      // The remaining time of a request may have been too short for any server.
      const isTooShort = outcome === 'timeout' && limitMs < timeoutMs / 2
      if (!isTooShort && link === this.#link) this.#noteFailure(error, startedAt)
      return ERROR
    }
  }

  #noteFailure(error: unknown, startedAt: number): void {
    if (this.#status.state !== 'available') return
    // One short stall of the store fails a whole burst of questions. That is one failure.
    if (startedAt >= this.#failedAt) {
      this.#failures += 1
      this.#failedAt = performance.now()
    }
    // A server that was demoted stays up and answers reads: only another connection can lead to its successor.
    const isReadOnly = error instanceof Error && error.message.startsWith('READONLY')
    if (this.#failures >= MAX_FAILURES || isReadOnly) this.#lose(error)
    else if (this.#options.isCluster && performance.now() - this.#renewedAt >= RENEWAL_MS) this.#renew()
  }

  /** Schedules the next probe, so there is one at a time. */
  #lose(error: unknown): void {
    if (this.#isClosed) return
    this.#link.close()
    const reason = reasonOf(error)
    const isKnown = this.#status.state === 'lost'
    this.#status = { state: 'lost', reason }
    if (isKnown) this.#tellRejection(error)
    else this.#options.observer.storeLost(reason)
    this.#isRejectionTold ||= isRejection(error)
    const pauseMs = this.#pauseMs * (0.75 + Math.random() / 4)
    this.#pauseMs = Math.min(this.#pauseMs * 2, LONGEST_PAUSE_MS)
    this.#probeTimer = setTimeout(() => this.#try(this.#open()), pauseMs).unref()
  }

  #try(link: Link): void {
    const tell = this.#teller('probe')
    this.#test(link).then(
      () => {
        tell('ok')
        if (this.#use(link)) this.#options.observer.storeBack()
      },
      (error: unknown) => {
        link.close()
        tell(outcomeOf(error))
        this.#lose(error)
      },
    )
  }

  #use(link: Link): boolean {
    if (this.#isClosed) {
      link.close()
      return false
    }
    this.#link = link
    this.#status = { state: 'available', reason: '' }
    this.#failures = 0
    this.#isRejectionTold = false
    return true
  }

  /** A connection alone shows nothing: the server may refuse writes, or be no store at all. */
  async #test(link: Link): Promise<void> {
    await within(link.opened, this.#connectTimeoutMs)
    const reply = await within(link.run(scripts.PROBE, this.#keys('probe', 'p'), []), this.#options.timeoutMs)
    if (scripts.PROBE.parse(reply) === undefined) throw nonsense()
  }

  /** Puts another connection in place of this one as soon as it is there. */
  #renew(): void {
    this.#renewedAt = performance.now()
    const link = this.#open()
    within(link.opened, this.#connectTimeoutMs).then(
      () => {
        const old = this.#link
        // The last answers of the old one may still be on their way.
        if (this.#status.state === 'available') setTimeout(() => old.close(), this.#options.timeoutMs).unref()
        if (this.#status.state !== 'available' || !this.#use(link)) link.close()
      },
      (error: unknown) => {
        link.close()
        this.#tellRejection(error)
      },
    )
  }

  #tellRejection(error: unknown): void {
    if (this.#isClosed || this.#isRejectionTold || !isRejection(error)) return
    this.#isRejectionTold = true
    this.#options.observer.passwordRejected(reasonOf(error))
  }

  #open(): Link {
    const link: Link = openLink({
      ...this.#options,
      password: this.#options.password(),
      connectTimeoutMs: this.#connectTimeoutMs,
      onLost: (cause) => {
        if (this.#link === link && this.#status.state === 'available') this.#lose(cause)
      },
    })
    return link
  }

  /** Returns a function that tells the outcome of an operation that begins now. */
  #teller(operation: StoreOperation): (outcome: StoreOutcome) => void {
    const startedAt = performance.now()
    return (outcome) => this.#options.observer.storeAsked(operation, outcome, performance.now() - startedAt)
  }

  #keys(name: string, ...parts: string[]): string[] {
    return parts.map((part) => `${this.#options.prefix}:{${name}}:${part}`)
  }
}

/**
 * A burst of requests can keep this process busy for longer than the limit. That must not count against the store, so the
 * limit begins when the client writes the command, which is at the end of this turn of the event loop. And after the limit
 * the immediate leaves time to read an answer that has arrived.
 */
async function within<T>(work: Promise<T>, limitMs: number): Promise<T> {
  let timer: NodeJS.Timeout | undefined
  let start: NodeJS.Immediate | undefined
  const limit = new Promise<never>((_, reject) => {
    const expire = () => setImmediate(() => reject(timedOut()))
    start = setImmediate(() => {
      timer = setTimeout(expire, Math.max(0, limitMs))
    })
  })
  try {
    return await Promise.race([work, limit])
  } finally {
    clearImmediate(start)
    clearTimeout(timer)
  }
}

function outcomeOf(error: unknown): 'timeout' | 'error' {
  return error instanceof Unusable && error.message === timedOut().message ? 'timeout' : 'error'
}

function isRejection(error: unknown): boolean {
  return error instanceof Error && /^(?:WRONGPASS|NOAUTH|ERR AUTH)\b/.test(error.message)
}

/** Never the message of the error: the server wrote it, and it may repeat what was sent. */
function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return 'unknown'
  if (error instanceof Unusable) return error.message
  if ('code' in error && typeof error.code === 'string') return error.code
  const [code = error.constructor.name] = /^[A-Z]{3,16}\b/.exec(error.message) ?? []
  const meaning = MEANINGS.find(([pattern]) => pattern.test(`${error.constructor.name} ${error.message}`))?.[1]
  return meaning === undefined ? code : `${meaning} (${code})`
}

/** Tested in this order on the class and the message of an error. */
const MEANINGS: readonly (readonly [RegExp, string])[] = [
  [/^ConnectionTimeoutError/, 'no answer in time'],
  [/^SocketClosedUnexpectedlyError/, 'the connection has ended'],
  [/ CLUSTERDOWN/, 'the cluster is incomplete'],
  [/ MOVED/, 'it is a cluster, so set fleet.cluster'],
  [/ NOAUTH/, 'it asks for a password: set fleet.passwordFile'],
  [/ NOPERM|no permissions/, 'its ACL does not permit what the proxy needs: see docs/fleet.md'],
  [/ OOM/, 'it is full'],
  [/ READONLY/, 'it is a replica or read-only'],
  [/ WRONGPASS/, 'it rejects the user name or password: correct fleet.username or fleet.passwordFile'],
  [/ ERR AUTH/, 'it has no password: remove fleet.passwordFile'],
  [/DB index/, 'it has no database of this number'],
  [/cluster support disabled/, 'it is no cluster, but fleet.cluster is true'],
  [/SELECT is not allowed in cluster mode/, 'it is a cluster, so set fleet.cluster and no database'],
]
