/**
 * The store in Redis or Valkey. Each operation is one script and takes at most `timeoutMs`, whatever the server does. After
 * some failures the server is left alone and a probe looks after it, so that requests pay for an outage only at its start.
 */

import type { Secret } from '../secret.ts'
import { type Link, type LinkOptions, openLink } from './redis-link.ts'
import * as scripts from './scripts.ts'
import type {
  Board,
  ClaimReply,
  ClaimRequest,
  FleetStore,
  PermitReply,
  PermitRequest,
  PublishReply,
  PublishRequest,
  ReleaseNote,
  StoreError,
} from './store.ts'

export interface FleetStoreOptions extends Pick<LinkOptions, 'address' | 'isCluster' | 'username' | 'secureContext'> {
  /** Asked for each connection. */
  readonly password: () => Secret | undefined
  readonly prefix: string
  readonly timeoutMs: number
  readonly connectTimeoutMs?: number
  readonly observer: StoreObserver
  readonly now: () => number
  readonly random: () => number
}

type StoreOperation = 'claim' | 'publish' | 'release' | 'forget' | 'permit' | 'board' | 'note' | 'probe'

/** The answer of the store; or `skipped`, because it failed a moment ago and was not asked. */
type StoreOutcome =
  | Exclude<ClaimReply['kind'] | PublishReply['kind'] | PermitReply['kind'], 'error'>
  | 'ok'
  | 'timeout'
  | 'error'
  | 'skipped'

/** Must not throw. */
export interface StoreObserver {
  storeAsked(operation: StoreOperation, outcome: StoreOutcome, durationMs: number): void
  storeLost(reason: string): void
  /** Also after the first connection. */
  storeBack(): void
}

export type StoreState = 'connecting' | 'available' | 'lost'

/** Failures in a row after which the store is left alone. Each began after the one before was known. */
const MAX_FAILURES = 3
const FIRST_PAUSE_MS = 250
/** Together with an attempt to connect, it decides how soon a recovery is seen. */
const LONGEST_PAUSE_MS = 2_000
/** A store that is lost after it was available for this long gets the first pause again. */
const STEADY_MS = 10_000
const CONNECT_TIMEOUT_MS = 1_000
/** In a cluster, one node may be gone while the others answer. Then the map of slots is fetched again, at most this often. */
const RENEWAL_MS = 1_000

class StoreTimeout extends Error {
  override readonly message = 'no answer in time'
}

class StoreSkipped extends Error {}

class StoreNonsense extends Error {
  override readonly message = 'an answer that makes no sense'
}

export class RedisStore implements FleetStore {
  readonly #options: FleetStoreOptions
  #state: StoreState = 'connecting'
  #link: Promise<Link>
  #failures = 0
  #failedAt = Number.NEGATIVE_INFINITY
  #pauseMs = FIRST_PAUSE_MS
  #availableSince = Number.NEGATIVE_INFINITY
  #renewedAt = Number.NEGATIVE_INFINITY
  #timer: NodeJS.Timeout | undefined
  #isClosed = false
  #lossReason = ''

  constructor(options: FleetStoreOptions) {
    this.#options = options
    this.#link = this.#open()
    // A connection alone shows nothing: the server may refuse writes, or be no store at all.
    const probed = this.#link.then((link) => within(this.#probe(link), this.#connectTimeoutMs))
    probed.then(
      () => this.#recovered(),
      (error: unknown) => this.#lose(error),
    )
  }

  get state(): StoreState {
    return this.#state
  }

  /** Why it was lost last; empty while it is there. For people: it holds no secret. */
  get lossReason(): string {
    return this.#state === 'lost' ? this.#lossReason : ''
  }

  async claim(name: string, request: ClaimRequest, limitMs: number): Promise<ClaimReply> {
    const { owner, leaseMs, except, maxAgeMs } = request
    const args = [owner, String(leaseMs), whole(maxAgeMs), ...except]
    return await this.#ask('claim', scripts.CLAIM, this.#keys(name, 't', 'l'), args, limitMs)
  }

  async publish(name: string, { owner, token, ageMs }: PublishRequest): Promise<PublishReply> {
    const args = [owner, scripts.storedValue(token), whole(token.spanMs - ageMs), whole(ageMs)]
    return await this.#ask('publish', scripts.PUBLISH, this.#keys(name, 't', 'l'), args)
  }

  async release(name: string, owner: string, note?: ReleaseNote): Promise<void> {
    const args = note === undefined ? [owner] : [owner, note.text, whole(note.noteMs)]
    await this.#ask('release', scripts.RELEASE, this.#keys(name, 'l'), args)
  }

  async forget(name: string): Promise<void> {
    await this.#ask('forget', scripts.FORGET, this.#keys(name, 't', 'l'), [])
  }

  async permit(name: string, { calls, windowMs }: PermitRequest, limitMs: number): Promise<PermitReply> {
    const args = [whole(calls), whole(windowMs)]
    return await this.#ask('permit', scripts.PERMIT, this.#keys(name, 'calls', 'limit'), args, limitMs)
  }

  async readBoard(name: string, since: string | undefined): Promise<Board | StoreError> {
    const args = since === undefined ? [] : [since]
    return await this.#ask('board', scripts.READ_BOARD, this.#keys(name, 'life', 'limit', 'purges'), args)
  }

  async setLifetime(name: string, sealed: string): Promise<void> {
    await this.#ask('note', scripts.SET_LIFETIME, this.#keys(name, 'life'), [sealed])
  }

  async setLimit(name: string, sealed: string, limitMs: number): Promise<void> {
    await this.#ask('note', scripts.SET_LIMIT, this.#keys(name, 'limit'), [sealed, whole(limitMs)])
  }

  async addPurge(name: string, sealed: string): Promise<void> {
    await this.#ask('note', scripts.ADD_PURGE, this.#keys(name, 'purges'), [sealed])
  }

  /** Connects anew, with a changed password for example. What is under way goes on with the old connection. */
  renew(): void {
    if (this.#state === 'available') this.#renew()
    else this.#scheduleProbe(0)
  }

  /** For `check`. Resolves with the problem, or undefined. */
  async tryOut(): Promise<string | undefined> {
    try {
      await within(this.#link, this.#connectTimeoutMs + this.#options.timeoutMs)
      await within(this.#probe(await this.#link), this.#options.timeoutMs)
      return undefined
    } catch (error) {
      return reasonOf(error)
    }
  }

  close(): void {
    this.#isClosed = true
    clearTimeout(this.#timer)
    dispose(this.#link)
  }

  async #ask<T extends { readonly kind: StoreOutcome }>(
    operation: StoreOperation,
    script: scripts.Script<T>,
    keys: readonly string[],
    args: readonly string[],
    limitMs: number = this.#options.timeoutMs,
  ): Promise<T | StoreError> {
    const { now, timeoutMs, observer } = this.#options
    const startedAt = now()
    const link = this.#link
    try {
      if (this.#state === 'lost' || this.#isClosed) throw new StoreSkipped()
      const answer = link.then((opened) => opened.run(script, keys, args))
      const reply = script.parse(await within(answer, Math.min(limitMs, timeoutMs)))
      if (reply === undefined) throw new StoreNonsense()
      this.#failures = 0
      observer.storeAsked(operation, reply.kind, now() - startedAt)
      return reply
    } catch (error) {
      const outcome = error instanceof StoreSkipped ? 'skipped' : error instanceof StoreTimeout ? 'timeout' : 'error'
      observer.storeAsked(operation, outcome, now() - startedAt)
      // The remaining time of a request may have been too short for any server.
      const isTooShort = outcome === 'timeout' && limitMs < timeoutMs / 2
      if (outcome !== 'skipped' && !isTooShort && link === this.#link) this.#noteFailure(error, startedAt)
      return { kind: 'error' }
    }
  }

  #noteFailure(error: unknown, startedAt: number): void {
    if (this.#state !== 'available') return
    // One short stall of the store fails a whole burst of questions. That is one failure.
    if (startedAt >= this.#failedAt) {
      this.#failures += 1
      this.#failedAt = this.#options.now()
    }
    // A server that was demoted stays up and answers reads: only another connection can lead to its successor.
    if (this.#failures >= MAX_FAILURES || isReadOnly(error)) this.#lose(error)
    else if (this.#options.isCluster) this.#renew()
  }

  #lose(reason: unknown): void {
    if (this.#isClosed || this.#state === 'lost') return
    const { now, observer } = this.#options
    if (now() - this.#availableSince >= STEADY_MS) this.#pauseMs = FIRST_PAUSE_MS
    this.#state = 'lost'
    this.#lossReason = reasonOf(reason)
    dispose(this.#link)
    observer.storeLost(this.#lossReason)
    this.#scheduleProbe(this.#pauseMs)
  }

  #recovered(): void {
    if (this.#isClosed || this.#state === 'available') return
    this.#state = 'available'
    this.#failures = 0
    this.#availableSince = this.#options.now()
    this.#options.observer.storeBack()
  }

  #scheduleProbe(delayMs: number): void {
    if (this.#isClosed || this.#state !== 'lost') return
    clearTimeout(this.#timer)
    const jittered = delayMs * (0.75 + this.#options.random() / 4)
    this.#timer = setTimeout(() => {
      this.#tryAgain().catch(() => undefined)
    }, jittered).unref()
  }

  /** One at a time: the next is scheduled when this one has failed. */
  async #tryAgain(): Promise<void> {
    const { now, observer } = this.#options
    const startedAt = now()
    const link = this.#open()
    try {
      await within(this.#probe(await link), this.#options.timeoutMs)
    } catch (error) {
      dispose(link)
      observer.storeAsked('probe', error instanceof StoreTimeout ? 'timeout' : 'error', now() - startedAt)
      this.#lossReason = reasonOf(error)
      this.#pauseMs = Math.min(this.#pauseMs * 2, LONGEST_PAUSE_MS)
      this.#scheduleProbe(this.#pauseMs)
      return
    }
    if (this.#isClosed) {
      dispose(link)
      return
    }
    observer.storeAsked('probe', 'ok', now() - startedAt)
    this.#link = link
    this.#recovered()
  }

  async #probe(link: Link): Promise<void> {
    const reply = await link.run(scripts.PROBE, this.#keys('probe', 'p'), [])
    if (scripts.PROBE.parse(reply) === undefined) throw new StoreNonsense()
  }

  /** Puts another connection in place of this one as soon as it is there. */
  #renew(): void {
    const { now } = this.#options
    if (now() - this.#renewedAt < RENEWAL_MS) return
    this.#renewedAt = now()
    const link = this.#open()
    link.then(
      () => {
        if (this.#isClosed || this.#state !== 'available') return dispose(link)
        const old = this.#link
        this.#link = link
        // Its last answers may still be on their way.
        setTimeout(() => dispose(old), this.#options.timeoutMs).unref()
      },
      () => undefined,
    )
  }

  #open(): Promise<Link> {
    const opening: Promise<Link> = this.#connect((cause) => {
      if (this.#link === opening) this.#lose(cause)
    })
    return opening
  }

  /** Rejects after a time even if the server never ends its greeting. */
  async #connect(onLost: (cause: unknown) => void): Promise<Link> {
    if (this.#isClosed) throw new StoreSkipped()
    const connectTimeoutMs = this.#connectTimeoutMs
    const link = openLink({ ...this.#options, password: this.#options.password(), connectTimeoutMs, onLost })
    try {
      return await within(link, connectTimeoutMs)
    } catch (error) {
      dispose(link)
      throw error
    }
  }

  get #connectTimeoutMs(): number {
    return this.#options.connectTimeoutMs ?? Math.max(CONNECT_TIMEOUT_MS, this.#options.timeoutMs)
  }

  #keys(name: string, ...parts: string[]): string[] {
    return parts.map((part) => `${this.#options.prefix}:{${name}}:${part}`)
  }
}

/** Scripts take whole numbers. Infinity stands for "whatever it is". */
function whole(value: number): string {
  return String(Math.max(0, Math.floor(Math.min(value, Number.MAX_SAFE_INTEGER))))
}

/**
 * A burst of requests can keep this process busy for longer than the limit. That must not count against the store, so the
 * limit begins when the client writes the command, which is at the end of this turn of the event loop. And after the limit
 * the immediate leaves time to read an answer that has arrived.
 * @throws {StoreTimeout}
 */
async function within<T>(work: Promise<T>, limitMs: number): Promise<T> {
  let timer: NodeJS.Timeout | undefined
  let start: NodeJS.Immediate | undefined
  const limit = new Promise<never>((_, reject) => {
    const expire = () => setImmediate(() => reject(new StoreTimeout()))
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

/** Also closes a connection that is still being opened. */
function dispose(link: Promise<Link>): void {
  link.then(
    (opened) => opened.close(),
    () => undefined,
  )
}

function isReadOnly(error: unknown): boolean {
  return error instanceof Error && error.message.startsWith('READONLY')
}

/** Never the message of the error: the server wrote it, and it may repeat what was sent. */
function reasonOf(error: unknown): string {
  if (error instanceof StoreTimeout || error instanceof StoreNonsense) return error.message
  if (!(error instanceof Error)) return 'unknown'
  if ('code' in error && typeof error.code === 'string') return error.code
  const [, code] = /^([A-Z]{3,16})\b/.exec(error.message) ?? []
  if (code === undefined) return NAMES[error.constructor.name] ?? error.constructor.name
  const meaning = code === 'ERR' ? meaningOf(error.message) : MEANINGS[code]
  return meaning === undefined ? code : `${meaning} (${code})`
}

/** Only texts that are known: others may quote what was sent. */
function meaningOf(message: string): string {
  if (/DB index/.test(message)) return 'it has no database of this number'
  if (/cluster support disabled/.test(message)) return 'it is no cluster, but fleet.cluster is true'
  if (/SELECT is not allowed in cluster mode/.test(message))
    return 'it is a cluster, so set fleet.cluster and no database'
  return 'it refuses a command'
}

const NAMES: Readonly<Record<string, string>> = {
  ConnectionTimeoutError: 'no answer in time',
  SocketClosedUnexpectedlyError: 'the connection has ended',
}

const MEANINGS: Readonly<Record<string, string>> = {
  CLUSTERDOWN: 'the cluster is incomplete',
  LOADING: 'it is loading its data',
  MISCONF: 'it cannot save its data and refuses writes',
  MOVED: 'it is a cluster, so set fleet.cluster',
  NOAUTH: 'it asks for a password',
  NOPERM: 'the ACL does not permit what the proxy needs',
  NOREPLICAS: 'it has too few replicas and refuses writes',
  OOM: 'it is full',
  READONLY: 'it is a replica or read-only',
  WRONGPASS: 'it rejects the user name or password',
}
