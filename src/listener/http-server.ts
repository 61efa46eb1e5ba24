/** Node's HTTP server, strict where it can be, and with its own answers switched off: they are ours to give. */

import { createServer, type IncomingMessage, type Server, type ServerOptions } from 'node:http'
import { isWebSocketHandshake, UpgradableMessage } from './upgradable-message.ts'

export interface HttpServerLimits {
  /** A whole request head. */
  readonly headersTimeoutMs: number
}

/** Request line and fields together. */
const MAX_HEAD_BYTES = 16 * 1024

export function newHttpServer({ headersTimeoutMs }: HttpServerLimits): Server {
  const options: ServerOptions & { shouldUpgradeCallback: (message: IncomingMessage) => boolean } = {
    IncomingMessage: UpgradableMessage,
    shouldUpgradeCallback: isWebSocketHandshake,
    insecureHTTPParser: false,
    requireHostHeader: false, // answered by admission, in our own form
    maxHeaderSize: MAX_HEAD_BYTES,
    headersTimeout: headersTimeoutMs,
    requestTimeout: 0, // a slow but moving upload of any size goes through
    connectionsCheckingInterval: Math.min(1_000, Math.max(20, headersTimeoutMs / 4)),
    keepAliveTimeout: 0, // a timer armed and cleared for each request; the sweep sees idle connections too
    highWaterMark: 64 * 1024,
    noDelay: true,
  }
  const server = createServer(options)
  // Node drops fields beyond a count without a word, a late Content-Length among them: the size limit decides instead.
  server.maxHeadersCount = 0
  // Undocumented, as old as the module: without it the end of a client's input ends our output too.
  return Object.assign(server, { httpAllowHalfOpen: true })
}
