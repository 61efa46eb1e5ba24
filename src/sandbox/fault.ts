/** Faults on request: which requests fail, and how. */

import type { ServerResponse } from 'node:http'
import { refusal, send } from './exchange.ts'

interface FaultOccasion {
  /** Only requests of this org fail. */
  readonly org?: string
  /** Share of requests that fail, 0 to 1; all if absent. */
  readonly probability?: number
  /** The fault ends after this many failed requests; never if absent. */
  readonly count?: number
}

export type Fault = FaultOccasion &
  (
    | { readonly kind: 'status'; readonly status: number; readonly retryAfterSeconds?: number }
    /** An HTML page in place of JSON, as load balancers send it. The status is 200 if absent. */
    | { readonly kind: 'html'; readonly status?: number }
    /**
     * `hang`: no response. `reset`: TCP reset. `cut`: the content is shorter than its declared length.
     * `truncated-json`: a complete response that holds half a JSON value.
     */
    | { readonly kind: 'hang' | 'reset' | 'cut' | 'truncated-json' }
  )

const HTML = '<!doctype html><title>Bad gateway</title><h1>Something went wrong</h1>\n'
const JSON_CONTENT = JSON.stringify({ orgAccessToken: 'this-token-was-never-issued' })
const HALF_JSON = JSON_CONTENT.slice(0, JSON_CONTENT.length / 2)

/** A list of faults, and how often each may still happen. */
export class FaultPlan {
  readonly #random: () => number
  readonly #entries: { readonly fault: Fault; remaining: number }[]

  constructor(faults: readonly Fault[], random: () => number) {
    this.#random = random
    this.#entries = faults.map((fault) => ({ fault, remaining: fault.count ?? Number.POSITIVE_INFINITY }))
  }

  /** The first fault that applies to this request. */
  next(org: string | undefined): Fault | undefined {
    for (const entry of this.#entries) {
      const { fault } = entry
      if (entry.remaining === 0) continue
      if (fault.org !== undefined && fault.org !== org) continue
      if (fault.probability !== undefined && this.#random() >= fault.probability) continue
      entry.remaining -= 1
      return fault
    }
    return undefined
  }
}

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
