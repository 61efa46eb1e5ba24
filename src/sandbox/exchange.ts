/** One request to the service and the response to it, as the parts of the sandbox hand it on. */

import type { IncomingMessage, ServerResponse } from 'node:http'

export interface ServiceExchange {
  readonly request: IncomingMessage
  readonly response: ServerResponse
  /** As it was received, without the base path and the query. */
  readonly path: string
  /** As it was received, without the question mark. */
  readonly query: string
  /** Bytes that came behind an upgrade request; undefined where no upgrade was asked for. */
  readonly upgradeHead: Buffer | undefined
}

export interface OrgExchange extends ServiceExchange {
  /** The org that the token stands for. */
  readonly org: string
}
