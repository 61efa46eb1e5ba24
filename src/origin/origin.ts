/** The origin server: a bounded pool of connections, and a connection of its own for a repeat that must not meet a stale one. */

import { performance } from 'node:perf_hooks'
import { OriginError } from '../errors.ts'
import type { ResponseHeadOptions } from '../http/response-head.ts'
import type { Attempt, AttemptPlace } from './attempt.ts'
import { Connection, type ConnectionHost } from './connection.ts'
import { Connector, type ConnectorOptions } from './connector.ts'

export interface OriginOptions extends ConnectorOptions, ResponseHeadOptions {
  readonly connections: number
}

export interface OriginStats {
  readonly connected: number
  readonly free: number
  /** Attempts without a connection. */
  readonly pending: number
}

/** How long an idle connection is kept where the origin announces nothing: shorter than any server in common use keeps its own. */
const KEEP_ALIVE_MS = 4_000
const MAX_KEEP_ALIVE_MS = 600_000
/** An announced time is an upper bound: the origin's clock began earlier, and our request takes its time. */
const KEEP_ALIVE_MARGIN_MS = 1_000
/** How late an idle connection may be closed; it is not used any more by then. */
const SWEEP_MS = 500

export class Origin implements AttemptPlace {
  readonly #options: OriginOptions
  readonly #connector: Connector
  readonly #pooled: ConnectionHost = {
    freed: (connection, keepAliveSeconds) => this.#freed(connection, keepAliveSeconds),
    closed: (connection) => this.#closed(connection),
  }
  readonly #single: ConnectionHost = {
    freed: () => undefined,
    closed: (connection) => this.#singles.delete(connection),
  }
  readonly #open = new Set<Connection>()
  readonly #singles = new Set<Connection>()
  /** The one that was used last comes last, and is used next: the others may grow old. */
  readonly #free: Connection[] = []
  readonly #waiting: Attempt[] = []
  #sweep: NodeJS.Timeout | undefined
  #isClosed = false

  constructor(options: OriginOptions) {
    this.#options = options
    this.#connector = new Connector(options)
  }

  /** Sends it on a free connection, a new one, or the next that is free. */
  dispatch(attempt: Attempt): void {
    if (this.#isClosed) {
      attempt.sink.attemptFailed(attempt, CLOSED)
      return
    }
    const connection = this.#takeFree()
    if (connection !== undefined) connection.take(attempt)
    else if (this.#open.size < this.#options.connections) this.#openFor(attempt)
    else {
      attempt.place = this
      this.#waiting.push(attempt)
    }
  }

  /** On a connection opened for this attempt and closed after it. */
  dispatchFresh(attempt: Attempt): void {
    if (this.#isClosed) {
      attempt.sink.attemptFailed(attempt, CLOSED)
      return
    }
    this.#singles.add(new Connection(this.#connector, this.#options, this.#single, attempt, true))
  }

  /** Of an attempt that waits. */
  abort(attempt: Attempt, reason: Error): void {
    const at = this.#waiting.indexOf(attempt)
    if (at === -1) return
    this.#waiting.splice(at, 1)
    attempt.place = undefined
    attempt.sink.attemptFailed(attempt, reason)
  }

  resume(): void {}

  #takeFree(): Connection | undefined {
    const connection = this.#free.pop()
    if (connection === undefined || connection.expiresAt > performance.now()) return connection
    // It was used last. Others may have been promised longer; that they are opened again costs little.
    this.#free.push(connection)
    for (const old of this.#free.splice(0)) old.destroy(EXPIRED)
    return undefined
  }

  #openFor(attempt: Attempt): void {
    this.#sweep ??= setInterval(() => this.#closeExpired(), SWEEP_MS).unref()
    this.#open.add(new Connection(this.#connector, this.#options, this.#pooled, attempt, false))
  }

  #freed(connection: Connection, keepAliveSeconds: number | undefined): void {
    const next = this.#waiting.shift()
    if (next !== undefined) {
      connection.take(next)
      return
    }
    const keptMs =
      keepAliveSeconds === undefined
        ? KEEP_ALIVE_MS
        : Math.min(keepAliveSeconds * 1_000, MAX_KEEP_ALIVE_MS) - KEEP_ALIVE_MARGIN_MS
    if (keptMs <= 0) {
      connection.destroy(EXPIRED)
      return
    }
    connection.expiresAt = performance.now() + keptMs
    this.#free.push(connection)
  }

  #closed(connection: Connection): void {
    this.#open.delete(connection)
    const at = this.#free.indexOf(connection)
    if (at !== -1) this.#free.splice(at, 1)
    const next = this.#isClosed ? undefined : this.#waiting.shift()
    if (next !== undefined) this.#openFor(next)
  }

  #closeExpired(): void {
    const now = performance.now()
    for (const connection of [...this.#free]) {
      if (connection.expiresAt <= now) connection.destroy(EXPIRED)
    }
    if (this.#open.size > 0) return
    clearInterval(this.#sweep)
    this.#sweep = undefined
  }

  get stats(): OriginStats {
    let connected = 0
    for (const connection of this.#open) if (connection.isConnected) connected++
    return { connected, free: this.#free.length, pending: this.#waiting.length + this.#open.size - connected }
  }

  close(): void {
    this.#isClosed = true
    clearInterval(this.#sweep)
    this.#sweep = undefined
    for (const attempt of this.#waiting.splice(0)) attempt.sink.attemptFailed(attempt, CLOSED)
    for (const connection of [...this.#open, ...this.#singles]) connection.destroy(CLOSED)
  }
}

const EXPIRED = new OriginError('connection_terminated', 'idle for too long')
const CLOSED = new OriginError('connection_terminated', 'the proxy has closed its connections')
