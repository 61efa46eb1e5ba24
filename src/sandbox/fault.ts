/** Faults on order: which request is hit, and what then happens to its response. */

import type { ServerResponse } from 'node:http'
import { refusal, send } from './reply.ts'

interface FaultOccasion {
  /** Only requests of this org are hit. */
  readonly org?: string
  /** Share of requests that are hit, 0 to 1; every one if absent. */
  readonly probability?: number
  /** The fault is over after so many hits; never if absent. */
  readonly count?: number
}

export type Fault = FaultOccasion &
  (
    | { readonly kind: 'status'; readonly status: number; readonly retryAfterSeconds?: number }
    /** A page for people in place of JSON, as a load balancer sends it. */
    | { readonly kind: 'html'; readonly status?: number }
    /** `hang`: no answer; `reset`: TCP reset; `cut`: content shorter than declared; `truncated-json`: a whole message, half a value. */
    | { readonly kind: 'hang' | 'reset' | 'cut' | 'truncated-json' }
  )

export type FaultKind = Fault['kind']

const HTML = '<!doctype html><title>Bad gateway</title><h1>Something went wrong</h1>\n'
const JSON_CONTENT = JSON.stringify({ orgAccessToken: 'this-token-was-never-issued' })
const HALF_JSON = JSON_CONTENT.slice(0, JSON_CONTENT.length / 2)

/** A list of faults and how often each may still strike. */
export class FaultPlan {
  readonly #random: () => number
  readonly #entries: { readonly fault: Fault; remaining: number }[]

  constructor(faults: readonly Fault[], random: () => number) {
    this.#random = random
    this.#entries = faults.map((fault) => ({ fault, remaining: fault.count ?? Number.POSITIVE_INFINITY }))
  }

  /** The first fault that strikes this request, if any does. */
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
      send(response, refusal(fault.status, 'sandbox_fault', 'A fault that was asked for.', fields))
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
