/**
 * The store in Redis or Valkey. Each operation is one script and takes at most `timeoutMs`, whatever the server does. After
 * some failures the server is left alone and a probe looks after it, so that requests pay for an outage only at its start.
 */

import type { PeerCertificate } from 'node:tls'
import * as clock from '../clock.ts'
import type { Secret } from '../secret.ts'
import { type Link, type LinkOptions, openLink } from './redis-link.ts'
import { type ClaimReply, PROBE, type Script, type Told } from './scripts.ts'

export interface StoreOptions extends LinkOptions {
  readonly prefix: string
  readonly timeoutMs: number
  readonly observer: StoreObserver
}

type StoreReply = ClaimReply | Told
export type StoreOutcome = StoreReply['kind'] | 'timeout' | 'error'

/** Must not throw. */
export interface StoreObserver {
  storeAsked(operation: Script<unknown>['operation'], outcome: StoreOutcome, durationMs: number): void
  storeLost(reason: string): void
  /** Also after the first connection. */
  storeBack(): void
}

interface StoreStatus {
  readonly state: 'connecting' | 'available' | 'lost'
  /** Why it was lost, or why it rejects a changed password while the connection from before is in use. For people: it holds no secret. */
  readonly reason: string
}

/** No answer in time, or none that can be used. The store may have done the operation or not. */
const ERROR = { kind: 'error' } as const

/** Failures in a row after which the store is left alone. Each began after the one before was known. */
const MAX_FAILURES = 3
const FIRST_PAUSE_MS = 250
/** Together with an attempt to connect, it decides how soon a recovery is seen. */
const LONGEST_PAUSE_MS = 2_000
const CONNECT_TIMEOUT_MS = 2_000
/** In a cluster, one node may be gone while the others answer. Then the map of slots is fetched again, at most this often. */
const RENEWAL_MS = 1_000
/** Of the names in a certificate that are told. */
const MOST_NAMES_CHARS = 200

/** Failures of the store that are no error of the client. The message is for people. */
class Unusable extends Error {}
class TimedOut extends Unusable {}

/** No operation rejects: an outage is an answer (`error`), and never mistaken for another replica that mints (`held`). */
export class RedisStore {
  readonly #options: StoreOptions
  status: StoreStatus = { state: 'connecting', reason: '' }
  #link: Link
  /** Of the present connection. */
  #password: Secret | undefined
  #failures = 0
  #failedAt = Number.NEGATIVE_INFINITY
  #pauseMs = FIRST_PAUSE_MS
  #renewedAt = Number.NEGATIVE_INFINITY
  #probeTimer: clock.Timer | undefined
  #isClosed = false

  constructor(options: StoreOptions) {
    this.#options = options
    this.#password = options.password()
    this.#link = this.#connect()
  }

  /** Uses a changed password now: the connection may last for months, and a mistake would show only at its end. */
  passwordChanged(): void {
    if (this.status.state === 'available') this.#connect()
  }

  close(): void {
    this.#isClosed = true
    this.#probeTimer?.cancel()
    this.#link.close()
  }

  /** Runs the script on the keys of an org: for `name` see `FleetKeys`. */
  async ask<T extends StoreReply>(
    script: Script<T>,
    name: string,
    args: readonly string[] = [],
  ): Promise<T | typeof ERROR> {
    const link = this.#link
    const startedAt = clock.now()
    if (this.status.state === 'lost' || this.#isClosed) return ERROR
    try {
      const reply = await this.#run(link, script, name, args)
      // A full store deletes a lease all the same.
      if (script.operation === 'release') return reply
      this.#failures = 0
      this.#pauseMs = FIRST_PAUSE_MS
      return reply
    } catch (error) {
      if (link === this.#link) this.#noteFailure(error, startedAt)
      return ERROR
    }
  }

  async #run<T extends StoreReply>(link: Link, script: Script<T>, name: string, args: readonly string[]) {
    const { operation, text, parse } = script
    const keys = ['t', 'l'].map((part) => `${this.#options.prefix}:{${name}}:${part}`)
    const startedAt = clock.now()
    let outcome: StoreOutcome = 'error'
    try {
      if (operation === 'probe') await within(link.opened, CONNECT_TIMEOUT_MS)
      const answer = link.opened.then(() => link.run(text, keys, args))
      const reply = parse(await within(answer, this.#options.timeoutMs))
      if (reply === undefined) throw new Unusable('an answer that makes no sense')
      outcome = reply.kind
      return reply
    } catch (error) {
      if (error instanceof TimedOut) outcome = 'timeout'
      throw error
    } finally {
      this.#options.observer.storeAsked(operation, outcome, clock.now() - startedAt)
    }
  }

  #noteFailure(error: unknown, startedAt: number): void {
    if (this.status.state !== 'available') return
    const now = clock.now()
    // One short stall of the store fails a whole burst of questions. That is one failure.
    if (startedAt >= this.#failedAt) {
      this.#failures += 1
      this.#failedAt = now
    }
    // A server that was demoted stays up and answers reads: only another connection can lead to its successor.
    const isReadOnly = error instanceof Error && error.message.startsWith('READONLY')
    if (this.#failures >= MAX_FAILURES || isReadOnly) this.#lose(error)
    else if (this.#options.cluster && now - this.#renewedAt >= RENEWAL_MS) {
      this.#renewedAt = now
      this.#connect()
    }
  }

  /** Schedules the next probe, so there is one at a time. */
  #lose(error: unknown): void {
    if (this.#isClosed) return
    this.#link.close()
    const { state } = this.status
    const reason = reasonOf(error)
    this.status = { state: 'lost', reason }
    if (state !== 'lost') this.#options.observer.storeLost(reason)
    const pauseMs = this.#pauseMs * (0.75 + clock.random() / 4)
    this.#pauseMs = Math.min(this.#pauseMs * 2, LONGEST_PAUSE_MS)
    this.#probeTimer?.cancel()
    this.#probeTimer = clock.after(pauseMs, () => this.#connect())
  }

  /** The store may learn the new password later than this replica. */
  #keepFormer(error: unknown): void {
    if (this.#isClosed) return
    this.status = { state: 'available', reason: reasonOf(error) }
    this.#probeTimer?.cancel()
    this.#probeTimer = clock.after(LONGEST_PAUSE_MS, () => this.#connect())
  }

  /** Opens a connection, and puts it in place of the present one if the server is good. */
  #connect(): Link {
    const password = this.#options.password()
    const link: Link = openLink(this.#options, CONNECT_TIMEOUT_MS, (cause) => {
      if (this.#link === link && this.status.state === 'available') this.#lose(cause)
    })
    // A connection alone shows nothing: the server may refuse writes, or be no store at all.
    this.#run(link, PROBE, 'probe', []).then(
      () => {
        if (this.#isClosed) return link.close()
        const [old, { state }] = [this.#link, this.status]
        // The last answers of the old one may still be on their way.
        if (link !== old) clock.after(this.#options.timeoutMs, () => old.close())
        this.#link = link
        this.status = { state: 'available', reason: '' }
        this.#failures = 0
        this.#probeTimer?.cancel()
        this.#password = password
        if (state !== 'available') this.#options.observer.storeBack()
        if (password !== this.#options.password()) this.#connect()
      },
      (error: unknown) => {
        link.close()
        if (this.status.state !== 'available') this.#lose(error)
        else if (this.#password !== this.#options.password()) this.#keepFormer(error)
      },
    )
    return link
  }
}

/**
 * A burst of requests can keep this process busy for longer than the limit. That must not count against the store, so the
 * limit begins when the client writes the command, which is at the end of this turn of the event loop.
 */
async function within<T>(work: Promise<T>, limitMs: number): Promise<T> {
  let timer: clock.Timer | undefined
  const late = new Promise<never>((_, reject) => {
    setImmediate(() => {
      timer = clock.after(limitMs, () => reject(new TimedOut('no answer in time')))
    })
  })
  return await Promise.race([work, late]).finally(() => timer?.cancel())
}

/** Never the message of the error: the server wrote it, and it may repeat what was sent. */
function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return 'unknown'
  if (error instanceof Unusable) return error.message
  if ('code' in error && typeof error.code === 'string') return otherCertificate(error) ?? error.code
  const [code = error.constructor.name] = /^[A-Z]{3,16}\b/.exec(error.message) ?? []
  const meaning = MEANINGS.find(([pattern]) => pattern.test(`${error.constructor.name} ${error.message}`))?.[1]
  return meaning === undefined ? code : `${meaning} (${code})`
}

/** What was expected and what was found, if the certificate is for another host. Quoted with care: the server chose its names. */
function otherCertificate(error: Error): string | undefined {
  if (!('code' in error && error.code === 'ERR_TLS_CERT_ALTNAME_INVALID' && 'host' in error)) return undefined
  const { subjectaltname, subject } = 'cert' in error ? (error.cert as Partial<PeerCertificate>) : {}
  const found = `${subjectaltname ?? subject?.CN ?? 'no name'}`.replace(/[^\w.:*, -]/g, '?').slice(0, MOST_NAMES_CHARS)
  return `its certificate is not for ${error.host} but for ${found}: correct fleet.serverName or the certificate (${error.code})`
}

/** Tested in this order on the class and the message of an error. */
const MEANINGS: readonly (readonly [RegExp, string])[] = [
  [/^SocketClosedUnexpectedlyError/, 'the connection has ended'],
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
