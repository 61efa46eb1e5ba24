/** What the service does that clients see rarely, or not at all: an operator should know while it lasts. */

import * as clock from '../clock.ts'
import type { RequestRecord } from '../gateway/request-record.ts'
import type { Finding, PartWarnings } from '../part.ts'
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

  requestEnded({ rejection, code, status, metClosedIdle, endedAt }: RequestRecord): void {
    this.#requests += 1
    if (metClosedIdle) this.#add('idle', endedAt)
    if (rejection === 'repeated') this.#add('repeated', endedAt)
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

  warnings(now: number): PartWarnings {
    const told = (kind: ServiceTrouble, text: (count: string) => string): Finding | undefined => {
      const trouble = this.lasting(kind, now)
      if (trouble === undefined) return undefined
      const { count, requests, lastedMs, leftMs } = trouble
      return { text: text(`for ${count} of the last ${requests} requests`), since: clock.day() - lastedMs, leftMs }
    }
    return {
      connections_closed_idle: told(
        'idle',
        (count) =>
          `The service closed an idle connection while a request was sent on it, ${count}. Uploads and POSTs fail so. Set origin.keepAliveTimeout below the idle timeout of the service.`,
      ),
      answers_broken: told(
        'broken',
        (count) =>
          `Answers of the service were cut off, or no HTTP, ${count}. The errors below name routes and reasons: tell the service.`,
      ),
      service_limits: told(
        'limited',
        (count) =>
          `The service answered 429 Too Many Requests, ${count}. Have the apps wait for Retry-After, and send fewer requests.`,
      ),
      tokens_often_rejected: told(
        'repeated',
        (count) =>
          `The service rejected a token and accepted a repeat, ${count}. If the same token was accepted again, one of its back ends is out of order: tell the service. If only a new one was, set tokens.lifetime below the life of a token.`,
      ),
    }
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
