/** How many client connections may be open at once, and how many were refused. */

import { readFileSync } from 'node:fs'
import * as clock from '../clock.ts'
import type { PartWarnings } from '../part.ts'

/** Descriptors that Node itself, the log and the listeners need. */
const OWN_DESCRIPTORS = 40
/** The next refusal after so long a pause is told anew. */
const TOLD_AGAIN_AFTER_MS = 10_000

/** Of this process. */
export function descriptorLimit(): number {
  if (process.platform !== 'linux') return Number.POSITIVE_INFINITY
  const [, limit] = /^Max open files\s+(\d+)/m.exec(readFileSync('/proc/self/limits', 'utf8')) ?? []
  return Number(limit ?? Number.POSITIVE_INFINITY)
}

export class ConnectionLimit {
  readonly #maxConnections: number
  /** Descriptors for clients and for tunnels. */
  readonly #descriptors: number
  readonly #tunnels: () => number
  /** Connections that came when no place was free, those included for which another was ended. */
  refused = 0
  /** Monotonic milliseconds. */
  #lastRefusalAt = Number.NEGATIVE_INFINITY

  /**
   * `others`: descriptors that other connections may need. If descriptors are few, half of them are kept for these. Once
   * the last descriptor is in use, the system drops new connections, and nobody hears of it. `tunnels`: open WebSockets, of
   * which each has a connection to the service beside these.
   */
  constructor(maxConnections: number, others: number, tunnels: () => number, descriptors = descriptorLimit()) {
    const free = descriptors - OWN_DESCRIPTORS
    this.#maxConnections = maxConnections
    this.#descriptors = free - Math.min(others, Math.floor(free / 2))
    this.#tunnels = tunnels
  }

  get most(): number {
    return Math.min(this.#maxConnections, Math.max(4, this.#descriptors - this.#tunnels()))
  }

  /** What decides about `most`. */
  get setting(): string {
    const isByDescriptors = this.most < this.#maxConnections
    return isByDescriptors ? 'the limit of open files (ulimit -n, LimitNOFILE)' : 'listen.maxConnections'
  }

  get isRefusing(): boolean {
    return clock.now() - this.#lastRefusalAt < TOLD_AGAIN_AFTER_MS
  }

  warnings(): PartWarnings {
    if (!this.isRefusing) return {}
    return {
      connections_refused: `Client connections are refused, or closed while idle, because ${this.most} are open. Find the clients that leave them open, or raise ${this.setting}.`,
    }
  }

  /** Counts a refusal. Returns true for the first one after a pause. */
  refuse(): boolean {
    const isFirst = !this.isRefusing
    this.refused++
    this.#lastRefusalAt = clock.now()
    return isFirst
  }
}
