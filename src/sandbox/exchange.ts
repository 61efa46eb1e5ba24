/** One request to the sandbox and its response. Handlers use it to answer and to wait. */

import type { IncomingMessage, OutgoingHttpHeaders, ServerResponse } from 'node:http'

export interface ServiceExchange {
  readonly request: IncomingMessage
  readonly response: ServerResponse
  /** As received, without the base path and the query. */
  readonly path: string
  /** As received, without the question mark. */
  readonly query: string
  /** The first bytes after an upgrade request; undefined if the client asked for no upgrade. */
  readonly upgradeHead: Buffer | undefined
}

export interface OrgExchange extends ServiceExchange {
  /** The org of the token. */
  readonly org: string
}

export interface Reply {
  readonly status: number
  /** Sent as JSON. */
  readonly value: unknown
  readonly fields?: OutgoingHttpHeaders
}

export function refusal(status: number, error: string, message: string, fields: OutgoingHttpHeaders = {}): Reply {
  return { status, value: { error, message }, fields }
}

export function methodRefusal(allowed: string): Reply {
  return refusal(405, 'method_not_allowed', `Use ${allowed}.`, { allow: allowed })
}

export function send(response: ServerResponse, { status, value, fields }: Reply): void {
  const content = `${JSON.stringify(value, null, 2)}\n`
  response.writeHead(status, {
    'content-type': 'application/json',
    'content-length': Buffer.byteLength(content),
    ...fields,
  })
  response.end(content)
}

/** The longest delay `setTimeout` takes; it fires at once for anything longer. */
const MAX_TIMER_MS = 2 ** 31 - 1

/** Resolves after `ms`, or as soon as the client goes away. The result is false if the client is gone. */
export function pause(ms: number, response: ServerResponse): Promise<boolean> {
  if (ms <= 0 || response.closed) return Promise.resolve(!response.closed)
  return new Promise((resolve) => {
    const settle = (): void => {
      clearTimeout(timer)
      response.off('close', settle)
      resolve(!response.closed)
    }
    const timer = setTimeout(settle, Math.min(ms, MAX_TIMER_MS))
    response.on('close', settle)
  })
}
