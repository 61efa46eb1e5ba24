/** The service: a bounded pool of connections to it, and the queue of attempts that wait for one. */

import assert from 'node:assert/strict'
import * as clock from '../clock.ts'
import { type Limit, OriginError } from '../errors.ts'
import { pathOf, routeOf } from '../http1/target.ts'
import { named, type PartWarnings, type Status, type Unanswered } from '../part.ts'
import type { Attempt, AttemptHolder } from './attempt.ts'
import { Connection, type Pool, type TimeLimits } from './connection.ts'
import { Connector, type ConnectorOptions } from './connector.ts'

/** No time limit if it is left out. */
export interface PoolOptions extends ConnectorOptions, Partial<TimeLimits> {
  readonly connections: number
  /** An idle connection is kept for so long, or for as long as the service states if that is less. Not at all if left out. */
  readonly keepAliveTimeoutMs?: number | undefined
  /** An older connection takes no further request. No limit if left out. */
  readonly maxConnectionAgeMs?: number | undefined
}

/** The service's clock started earlier, and our next request takes time to arrive. */
const KEEP_ALIVE_MARGIN_MS = 1_000
/** Time limits end this much later, or a quarter of the limit if that is less. An idle connection is not used again in that time. */
const SWEEP_MS = 500
const LEAST_SWEEP_MS = 20

/** A silence of the service is told after so long, or so much of `responseTimeoutMs` if that is less. */
const OVERDUE_MS = 40_000
const OVERDUE_SHARE = 2 / 3

/** The part of the connections that one org may hold. */
const SHARE = 3 / 4

export class ConnectionPool implements AttemptHolder, Pool {
  readonly #options: PoolOptions
  readonly #connector: Connector
  readonly #share: number
  readonly #open = new Set<Connection>()
  readonly tunnelBuffer = Buffer.allocUnsafeSlow(64 * 1024)
  spareBuffer: Buffer | undefined
  /** A stack: the connection that was used last is reused first, so that surplus ones expire. */
  readonly #idle: Connection[] = []
  readonly #waiting: Attempt[] = []
  /** Those that began to look in this turn of the event loop. */
  #looking: Connection[] = []
  readonly #limits: TimeLimits
  readonly #sweep: clock.Timer
  #isClosed = false

  constructor(options: PoolOptions) {
    const { responseTimeoutMs = Number.POSITIVE_INFINITY, idleTimeoutMs = Number.POSITIVE_INFINITY } = options
    this.#options = options
    this.#limits = { responseTimeoutMs, idleTimeoutMs }
    const sweepMs = Math.max(LEAST_SWEEP_MS, Math.min(responseTimeoutMs / 4, idleTimeoutMs / 4, SWEEP_MS))
    this.#sweep = clock.every(sweepMs, () => this.#checkAll())
    this.#connector = new Connector(options)
    this.#share = Math.max(1, Math.floor(options.connections * SHARE))
  }

  /** Sends it on a free connection or on a new one, or queues it until there is one. */
  dispatch(attempt: Attempt): void {
    if (this.#isClosed) attempt.sink.attemptFailed(attempt, CLOSED)
    else if (this.#isAtShare(attempt) || !this.#connect(attempt)) this.#enqueue(attempt)
  }

  /** Returns false if all connections are busy. */
  #connect(attempt: Attempt): boolean {
    const { connections, maxConnectionAgeMs = Number.POSITIVE_INFINITY } = this.#options
    const now = clock.now()
    const free = attempt.request.needsNewConnection === true ? undefined : this.#takeIdle(now)
    if (free !== undefined) {
      free.carry(attempt)
      return true
    }
    if (this.#open.size >= connections) {
      const surplus = this.#idle.find(({ expiresAt }) => expiresAt <= now) ?? this.#idle[0]
      surplus?.destroy() // calls `closed`, which may give the place to an attempt that waits
    }
    if (this.#open.size >= connections) return false
    // Those that were opened together do not all close together.
    const retiresAt = now + maxConnectionAgeMs * (0.8 + 0.2 * clock.random())
    this.#open.add(new Connection(this.#connector, this, attempt, retiresAt))
    return true
  }

  #enqueue(attempt: Attempt): void {
    attempt.holder = this
    attempt.queuedAt = clock.runningTime() - attempt.queuedMs
    this.#waiting.push(attempt)
    attempt.sink.queued?.()
  }

  /** True if the org of `attempt` holds its share. No org does while few connections are busy. */
  #isAtShare({ request: { org } }: Attempt): boolean {
    if (org === undefined || this.#open.size - this.#idle.length < this.#share) return false
    let held = 0
    for (const { attempt } of this.#open) if (attempt?.request.org === org) held++
    return held >= this.#share
  }

  /** The attempt whose turn it is; undefined if none may have a connection now. */
  #next(): Attempt | undefined {
    const [first] = this.#waiting
    if (first === undefined || !this.#isAtShare(first)) return first
    // While a connection is left, no other org can be at its share.
    return this.#waiting.find(({ request }) => request.org !== first.request.org)
  }

  /** A connection has become free, or may be opened. */
  #serveNext(): void {
    const next = this.#next()
    if (next !== undefined && this.#connect(next)) this.#leaveQueue(next)
  }

  #leaveQueue(attempt: Attempt): void {
    const at = this.#waiting.indexOf(attempt)
    assert(at !== -1)
    this.#waiting.splice(at, 1)
    attempt.queuedMs = clock.runningTime() - attempt.queuedAt
  }

  freed(connection: Connection, keepAliveSeconds = Number.POSITIVE_INFINITY): void {
    const { keepAliveTimeoutMs = 0 } = this.#options
    const now = clock.now()
    const keptMs = Math.min(keepAliveTimeoutMs, keepAliveSeconds * 1_000 - KEEP_ALIVE_MARGIN_MS)
    connection.expiresAt = Math.min(now + keptMs, connection.retiresAt)
    this.returned(connection)
  }

  returned(connection: Connection): void {
    if (connection.expiresAt <= clock.now()) connection.destroy()
    else {
      this.#idle.push(connection)
      this.#serveNext()
    }
  }

  /** The connection takes no more attempts. It has not sent `unsent`, which has had its turn, and gets its place. */
  closed(connection: Connection, unsent?: Attempt): void {
    this.#open.delete(connection)
    const at = this.#idle.indexOf(connection)
    if (at !== -1) this.#idle.splice(at, 1)
    if (unsent !== undefined) this.dispatch(unsent)
    this.#serveNext()
  }

  look(connection: Connection): void {
    if (this.#looking.push(connection) === 1) setImmediate(this.#lookOnce)
  }

  /** The second immediate runs when the event loop has polled once more, and has read all that waited. */
  readonly #lookOnce = () => {
    setImmediate(endLooks, this.#looking)
    this.#looking = []
  }

  /** Responses state different times, so a connection that has expired may lie above a good one. */
  #takeIdle(now: number): Connection | undefined {
    for (let i = this.#idle.length - 1; i >= 0; i--) {
      const connection = this.#idle[i]
      if (connection === undefined || connection.expiresAt <= now) continue
      if (connection === this.#idle.at(-1)) this.#idle.pop()
      else this.#idle.splice(i, 1)
      return connection
    }
    return undefined
  }

  abort(attempt: Attempt, reason: Error): void {
    this.#leaveQueue(attempt)
    attempt.holder = undefined
    attempt.sink.attemptFailed(attempt, reason)
  }

  #checkAll(): void {
    const time = clock.runningTime()
    // Those that wait come first: a connection that is closed gives its place to one of them.
    for (const attempt of [...this.#waiting]) {
      if (time - attempt.queuedAt < this.#limits.responseTimeoutMs) continue
      // Named as it is now: others may hold the connections that its org held when it came.
      attempt.abort(overloaded(this.#isAtShare(attempt) ? 'org share' : 'origin.connections'))
    }
    for (const connection of [...this.#open]) connection.check(time, this.#limits)
    const now = clock.now() // by which the service counts
    for (const connection of [...this.#idle]) if (connection.expiresAt <= now) connection.destroy()
  }

  status(): Partial<Status> {
    const { connected, free, pending } = this.stats
    return { originConnections: { busy: connected - free, free, pending }, unanswered: this.#unanswered(0) }
  }

  warnings(): PartWarnings {
    const { responseTimeoutMs } = this.#limits
    const overdue = this.#unanswered(Math.min(OVERDUE_MS, responseTimeoutMs * OVERDUE_SHARE))
    if (overdue.length === 0) return {}
    const told = [...new Set(overdue.map(({ route }) => route))].map((route) => {
      const requests = overdue.filter((request) => request.route === route)
      const orgs = named([...new Set(requests.map(({ org = 'the App' }) => org))])
      const longestMs = Math.max(...requests.map(({ silentMs }) => silentMs))
      return `${route} for ${orgs} (${requests.length} in flight, the oldest for ${Math.floor(longestMs / 1_000)} s)`
    })
    return {
      answers_overdue: `The service does not answer ${named(told)}. Ask it why. Until then, have the apps send fewer of these requests: each keeps a connection for as long as origin.responseTimeout allows.`,
    }
  }

  /** For which the service has been silent for at least so long. */
  #unanswered(leastMs: number): Unanswered[] {
    const now = clock.runningTime()
    return [...this.#open].flatMap((connection) => {
      const silentMs = connection.silentMs(now)
      if (connection.attempt === undefined || silentMs === undefined || silentMs < leastMs) return []
      const { method, target, org } = connection.attempt.request
      return { org: org === '' ? undefined : org, route: routeOf(method, pathOf(target)), silentMs }
    })
  }

  /** `pending`: attempts without a connection. */
  get stats() {
    let connected = 0
    for (const connection of this.#open) if (connection.isConnected) connected++
    return { connected, free: this.#idle.length, pending: this.#waiting.length + this.#open.size - connected }
  }

  /** Tunnels end with the connections of their clients. */
  close(): void {
    this.#isClosed = true
    this.#sweep.cancel()
    for (const attempt of [...this.#waiting]) attempt.abort(CLOSED)
    for (const connection of [...this.#open]) connection.destroy(CLOSED)
  }
}

const CLOSED = new OriginError('connection_terminated', 'the proxy has closed its connections')

function overloaded(limit: Limit): OriginError {
  return new OriginError('overloaded', 'no connection became free in time', { limit })
}

function endLooks(connections: readonly Connection[]): void {
  for (const connection of connections) connection.send()
}
