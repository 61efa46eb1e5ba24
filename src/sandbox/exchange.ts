/** One request to the sandbox and its response. Handlers use it to answer, to wait and to fail. */

import type { IncomingMessage, OutgoingHttpHeaders, ServerResponse } from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Fault } from './switches.ts'

export interface Exchange {
  readonly request: IncomingMessage
  readonly response: ServerResponse
  /** As received, without a prefix before `/v2`: the echo shows the target byte for byte. */
  readonly path: string
  readonly query: string
  /** The first bytes after an upgrade request; undefined if the client asked for no upgrade. */
  readonly upgradeHead: Buffer | undefined
}

/** Thrown by a handler to answer with an error. */
export class Refusal extends Error {
  readonly status: number
  readonly code: string
  readonly fields: OutgoingHttpHeaders

  constructor(status: number, code: string, message: string, fields: OutgoingHttpHeaders = {}) {
    super(message)
    this.status = status
    this.code = code
    this.fields = fields
  }
}

export function send(response: ServerResponse, value: unknown, status = 200, fields: OutgoingHttpHeaders = {}): void {
  const content = `${JSON.stringify(value, null, 2)}\n`
  const length = Buffer.byteLength(content)
  response.writeHead(status, { 'content-type': 'application/json', 'content-length': length, ...fields }).end(content)
}

/** Resolves after `ms`, with false if the client is gone by then. */
export async function pause(ms: number, response: ServerResponse): Promise<boolean> {
  if (ms > 0) await sleep(ms, undefined, { ref: false })
  return !response.closed
}

const HTML = '<!doctype html><title>Bad gateway</title><h1>Something went wrong</h1>\n'
const JSON_CONTENT = JSON.stringify({ orgAccessToken: 'this-token-was-never-issued' })
const HALF_JSON = JSON_CONTENT.slice(0, JSON_CONTENT.length / 2)

export const COMMIT: Readonly<Record<Fault['kind'], (response: ServerResponse, fault: Fault) => void>> = {
  status: (_, { status = 500, retryAfterSeconds }) => {
    const fields = retryAfterSeconds === undefined ? {} : { 'retry-after': `${retryAfterSeconds}` }
    throw new Refusal(status, 'sandbox_fault', 'The sandbox was told to fail this request.', fields)
  },
  html: (response, { status = 200 }) => response.writeHead(status, { 'content-type': 'text/html' }).end(HTML),
  'truncated-json': (response) => response.writeHead(200, { 'content-type': 'application/json' }).end(HALF_JSON),
  cut: (response) => {
    response.writeHead(200, { 'content-type': 'application/json', 'content-length': JSON_CONTENT.length })
    response.write(HALF_JSON, () => response.socket?.destroy())
  },
  reset: (response) => response.socket?.resetAndDestroy(),
  hang: () => undefined,
}
