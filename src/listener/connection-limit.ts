/** How many client connections may be open at once, and what is told about those that were refused. */

import { readFileSync } from 'node:fs'

/** Descriptors that Node itself, the log and the listeners need. */
const OWN_DESCRIPTORS = 40
/** An episode of refusals ends after this time without one. */
const EPISODE_PAUSE_MS = 10_000

/** Undefined if the system does not say. */
export function descriptorLimit(): number | undefined {
  if (process.platform !== 'linux') return undefined
  const [, limit] = /^Max open files\s+(\d+)/m.exec(readFileSync('/proc/self/limits', 'utf8')) ?? []
  return limit === undefined ? undefined : Number(limit)
}

export class ConnectionLimit {
  readonly most: number
  readonly #setting: string
  /** All connections that were refused. */
  refused = 0
  #since = new Date()
  /** Monotonic milliseconds. */
  #lastRefusalAt = Number.NEGATIVE_INFINITY

  /**
   * `outgoing`: connections that the proxy may open by itself. If descriptors are few, half of them are kept for these. Once
   * the last descriptor is in use, the system drops new connections, and nobody hears of it.
   */
  constructor(maxConnections: number, outgoing: number, descriptors = descriptorLimit()) {
    const free = (descriptors ?? Number.POSITIVE_INFINITY) - OWN_DESCRIPTORS
    const most = Math.max(4, free - Math.min(outgoing, Math.floor(free / 2)))
    this.most = Math.min(maxConnections, most)
    this.#setting = most < maxConnections ? 'the limit of open files (ulimit -n, LimitNOFILE)' : 'listen.maxConnections'
  }

  /** What is refused at the moment: since when, and which limit is too low. */
  get refusing(): { readonly since: Date; readonly setting: string } | undefined {
    const isOver = performance.now() - this.#lastRefusalAt >= EPISODE_PAUSE_MS
    return isOver ? undefined : { since: this.#since, setting: this.#setting }
  }

  /** Counts a refusal. Calls `report` with what to raise if it is the first of an episode. */
  refuse(report: (setting: string) => void): void {
    const isFirst = this.refusing === undefined
    this.refused++
    this.#lastRefusalAt = performance.now()
    if (!isFirst) return
    this.#since = new Date()
    report(this.#setting)
  }
}
