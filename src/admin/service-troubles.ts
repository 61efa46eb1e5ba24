/** What the service does that clients see rarely, or not at all: an operator should know while it lasts. */

import type { RequestRecord } from '../gateway/request-record.ts'
import { Counter } from './counts.ts'

/**
 * `idle`: it closed an idle connection while a request was sent on it. `broken`: its answer was cut, or no HTTP. `limited`: it
 * answered 429. `repeated`: it rejected a token, and accepted a repeat.
 */
export const SERVICE_TROUBLES = ['idle', 'broken', 'limited', 'repeated'] as const
export type ServiceTrouble = (typeof SERVICE_TROUBLES)[number]

const TOO_MANY_REQUESTS = 429
/** A trouble that does not come for so long is over. */
const QUIET_MS = 300_000
/** It lasts if it has come for so long, */
const LASTING_MS = 60_000
/** so often, */
const LEAST_COUNT = 5
/** and to such a share of the requests. */
const LEAST_SHARE: Readonly<Record<ServiceTrouble, number>> = { idle: 0, broken: 0, limited: 0.01, repeated: 0.05 }

interface Episode {
  /** Monotonic milliseconds. */
  readonly since: number
  lastAt: number
  count: number
  /** All requests before it. */
  readonly requestsBefore: number
}

export class ServiceTroubles {
  readonly counter = new Counter<ServiceTrouble>(
    'oap_service_troubles_total',
    'Requests with a trouble that the service made, by kind, whether clients saw it or not.',
    ['kind'],
    SERVICE_TROUBLES,
  )
  readonly #episodes = new Map<ServiceTrouble, Episode>()
  #requests = 0

  requestEnded({ repeat, code, status, metClosedIdle, endedAt }: RequestRecord): void {
    this.#requests += 1
    if (metClosedIdle) this.#add('idle', endedAt)
    if (repeat === 'accepted') this.#add('repeated', endedAt)
    if (code === undefined && status === TOO_MANY_REQUESTS) this.#add('limited', endedAt)
    else if (code === 'http_response_incomplete' || code === 'http_protocol_error') this.#add('broken', endedAt)
  }

  #add(kind: ServiceTrouble, now: number): void {
    this.counter.add(kind)
    let episode = this.#episodes.get(kind)
    if (episode === undefined || now - episode.lastAt > QUIET_MS) {
      episode = { since: now, lastAt: now, count: 0, requestsBefore: this.#requests - 1 }
      this.#episodes.set(kind, episode)
    }
    episode.lastAt = now
    episode.count += 1
  }

  /** Since the start, by kind. */
  totals(): Record<ServiceTrouble, number> {
    const { counter } = this
    const [idle, broken] = [counter.total('idle'), counter.total('broken')]
    return { idle, broken, limited: counter.total('limited'), repeated: counter.total('repeated') }
  }

  /** The trouble lasts: how many of how many requests, since when, and for how long it is told if it does not come again. */
  lasting(kind: ServiceTrouble, now: number) {
    const episode = this.#episodes.get(kind)
    if (episode === undefined) return undefined
    const { since, lastAt, count, requestsBefore } = episode
    const requests = this.#requests - requestsBefore
    const leftMs = lastAt + QUIET_MS - now
    const lasts = lastAt - since >= LASTING_MS && count >= LEAST_COUNT && count >= LEAST_SHARE[kind] * requests
    return lasts && leftMs > 0 ? { count, requests, lastedMs: now - since, leftMs } : undefined
  }
}
