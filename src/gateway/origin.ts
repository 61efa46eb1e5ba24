/** The connections to the origin server: one bounded pool, and a connection of its own for a repeat that must not meet a stale one. */

import type { buildConnector as connector, Dispatcher } from 'undici'
import { buildConnector, Client, newProxyAgent, Pool, type ProxyVariables } from '../undici.ts'
import { Attempt, type ConnectionUse } from './attempt.ts'
import { dropContinue } from './interim-filter.ts'

export interface OriginOptions {
  /** Only its origin is used. */
  readonly baseUrl: URL
  readonly connections: number
  readonly connectTimeoutMs: number
  /** PEM; added to the CA certificates of the runtime. */
  readonly ca?: readonly string[] | undefined
  /** Proxies on the way to the origin, as the environment names them; undefined where they are not to be used. */
  readonly proxies?: ProxyVariables | undefined
}

/** How long an idle connection is kept where the origin announces nothing: shorter than any server in common use keeps its own. */
const KEEP_ALIVE_MS = 4_000

/** Heads larger than this are a fault of the origin. */
const MAX_RESPONSE_HEAD_BYTES = 64 * 1024

export interface OriginStats {
  readonly connected: number
  readonly free: number
  readonly pending: number
}

export class Origin {
  /** Scheme and authority: all dispatches go there, whatever the target says. */
  readonly url: string
  readonly #clientOptions: TrackedClientOptions
  readonly #pool: Dispatcher & { stats?: OriginStats }
  readonly #isProxied: boolean

  constructor(options: OriginOptions) {
    this.url = options.baseUrl.origin
    this.#isProxied = options.proxies !== undefined
    this.#clientOptions = {
      pipelining: 1,
      allowH2: false,
      // The exchange keeps the deadlines: they depend on which side is silent.
      headersTimeout: 0,
      bodyTimeout: 0,
      keepAliveTimeout: KEEP_ALIVE_MS,
      maxHeaderSize: MAX_RESPONSE_HEAD_BYTES,
      strictContentLength: true,
      connect: buildConnector({
        timeout: options.connectTimeoutMs,
        rejectUnauthorized: true,
        ...(options.ca === undefined ? {} : { ca: [...options.ca] }),
      }),
    }
    const pooled = { ...this.#clientOptions, connections: options.connections }
    this.#pool =
      options.proxies !== undefined
        ? newProxyAgent(options.proxies, pooled)
        : new Pool(this.url, {
            ...pooled,
            factory: (origin: URL) => new TrackedClient(origin, this.#clientOptions),
          })
  }

  dispatch(options: Dispatcher.DispatchOptions, attempt: Attempt): void {
    this.#pool.dispatch(options, attempt)
  }

  /** On a connection opened for this attempt and closed after it; behind a proxy, on whichever that gives. */
  dispatchFresh(options: Dispatcher.DispatchOptions, attempt: Attempt): void {
    if (this.#isProxied) {
      this.#pool.dispatch(options, attempt)
      return
    }
    const client = new TrackedClient(new URL(this.url), this.#clientOptions)
    client.dispatch({ ...options, reset: true }, attempt)
    client.close().catch(() => client.destroy())
  }

  get stats(): OriginStats {
    return this.#pool.stats ?? { connected: 0, free: 0, pending: 0 }
  }

  async close(): Promise<void> {
    await this.#pool.destroy()
  }
}

/** Tells its attempts about their connection: whether it is a reused one, and whether it was reset. */
class TrackedClient extends Client {
  readonly #use: ConnectionUse

  constructor(origin: URL, options: TrackedClientOptions) {
    const use: ConnectionUse = { exchanges: 0, wasReset: false, awaitsHead: false }
    const { connect, ...rest } = options
    super(origin, { ...rest, connect: watched(connect, use) })
    this.#use = use
  }

  override dispatch(options: Dispatcher.DispatchOptions, handler: Dispatcher.DispatchHandler): boolean {
    if (!(handler instanceof Attempt)) return super.dispatch(options, handler)
    handler.use = this.#use
    const isFree = super.dispatch(options, handler)
    // undici answers `false` for a request that it refused, as if it were busy; the pool would then wait for a drain that
    // never comes, and lose one connection for ever with every such request.
    return isFree || handler.isRefused
  }
}

interface TrackedClientOptions extends Client.Options {
  readonly connect: connector.connector
}

function watched(connect: connector.connector, use: ConnectionUse): connector.connector {
  return (options, callback) =>
    connect(options, (...outcome) => {
      const [error, socket] = outcome
      if (error === null) {
        use.exchanges = 0
        use.wasReset = false
        dropContinue(socket, use)
        socket.once('error', () => {
          use.wasReset = true
        })
        socket.once('end', () => {
          // A reset right behind data is told as a plain end; but no peer is left then, as there is behind a FIN.
          if (socket.remoteAddress === undefined) use.wasReset = true
        })
      }
      callback(...outcome)
    })
}
