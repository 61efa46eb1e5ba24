/** One request to the sandbox and its response. Handlers use it to answer, to wait and to fail. */

import type { IncomingMessage, OutgoingHttpHeaders, ServerResponse } from 'node:http'
import type { Fault } from './switches.ts'

export interface Exchange {
  readonly request: IncomingMessage
  readonly response: ServerResponse
  /** As received, without the base path and the query. */
  readonly path: string
  /** As received, without the question mark. */
  readonly query: string
  /** The first bytes after an upgrade request; undefined if the client asked for no upgrade. */
  readonly upgradeHead: Buffer | undefined
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

const HTML = '<!doctype html><title>Bad gateway</title><h1>Something went wrong</h1>\n'
const JSON_CONTENT = JSON.stringify({ orgAccessToken: 'this-token-was-never-issued' })
const HALF_JSON = JSON_CONTENT.slice(0, JSON_CONTENT.length / 2)

export function commitFault(fault: Fault, response: ServerResponse): void {
  switch (fault.kind) {
    case 'status': {
      const fields = fault.retryAfterSeconds === undefined ? {} : { 'retry-after': `${fault.retryAfterSeconds}` }
      send(response, refusal(fault.status, 'sandbox_fault', 'The sandbox was told to fail this request.', fields))
      return
    }
    case 'html':
      response.writeHead(fault.status ?? 200, { 'content-type': 'text/html' }).end(HTML)
      return
    case 'truncated-json':
      response.writeHead(200, { 'content-type': 'application/json' }).end(HALF_JSON)
      return
    case 'cut':
      response.writeHead(200, { 'content-type': 'application/json', 'content-length': JSON_CONTENT.length })
      response.write(HALF_JSON, () => response.socket?.destroy())
      return
    case 'reset':
      response.socket?.resetAndDestroy()
      return
    case 'hang':
      return
  }
}
