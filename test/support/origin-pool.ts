/** Connections to a scripted origin, without a proxy around them. */

import { ConnectionPool, type PoolOptions } from '../../src/origin/connection-pool.ts'
import { certificate } from './certificates.ts'
import { type Origin as Server, startOrigin } from './origin.ts'
import type { OriginConnection, OriginScript } from './origin-connection.ts'
import { Recorder, type Sent } from './recorder.ts'

/** A request on a new connection. */
export const FRESH = { needsNewConnection: true }

export class OriginPool implements AsyncDisposable {
  readonly pool: ConnectionPool
  readonly server: Server

  constructor(pool: ConnectionPool, server: Server) {
    this.pool = pool
    this.server = server
  }

  send(target: string, request: Sent = {}): Recorder {
    const recorder = new Recorder({ ...request, target })
    this.pool.dispatch(recorder.attempt)
    return recorder
  }

  /** The connection of the request for `target`. */
  connectionOf(target: string): OriginConnection | undefined {
    return this.server.requests.find((request) => request.target === target)?.connection
  }

  /** Resolves when this many requests have arrived. */
  seen(requests: number): Promise<void> {
    return this.server.waitFor((server) => server.requests.length >= requests, `${requests} requests`)
  }

  /** Resolves when our end of the connection has closed. The default deadline is shorter than the idle time. */
  left(connection: OriginConnection | undefined, deadlineMs = 15_000): Promise<void> {
    const isLeft = () => connection?.peerEnd !== undefined
    return this.server.waitFor(isLeft, 'the end of a connection', deadlineMs)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.pool.close()
    await this.server[Symbol.asyncDispose]()
  }
}

/** TLS if a CA is given. */
export async function startOriginPool(script?: OriginScript, options: Partial<PoolOptions> = {}): Promise<OriginPool> {
  const server = await startOrigin(script, options.secureContext === undefined ? {} : { tls: certificate('localhost') })
  const baseUrl = new URL(server.url)
  const basis = { baseUrl, connections: 8, connectTimeoutMs: 5_000, keepAliveTimeoutMs: 600_000 }
  return new OriginPool(new ConnectionPool({ ...basis, ...options }), server)
}

/** Answers with the target, when the test releases it. */
export function onCue(): { readonly script: OriginScript; answer(target: string): void } {
  const cues = new Map<string, () => void>()
  return {
    script: async ({ target }) => {
      await new Promise<void>((resolve) => cues.set(target, resolve))
      return { content: target }
    },
    answer: (target) => cues.get(target)?.(),
  }
}
