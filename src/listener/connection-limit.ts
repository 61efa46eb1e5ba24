/** How many client connections may be open at once, and what is told about those that were refused. */

import { readFileSync } from 'node:fs'

export interface ConnectionLimitObserver {
  /** The first refusal of an episode. `setting`: what to raise. `most`: the connections that are open. */
  connectionsRefused(setting: string, most: number): void
  /** None was refused for a while. `refused`: how many were, since the episode began. */
  connectionsTaken(refused: number): void
}

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
  readonly #observer: ConnectionLimitObserver
  #refusedInEpisode = 0
  #lastRefusalAt = 0
  #since: Date | undefined
  /** All connections that were refused. */
  refused = 0

  /**
   * `outgoing`: connections that the proxy may open by itself. If descriptors are few, half of them are kept for these. Once
   * the last descriptor is in use, the system drops new connections, and nobody hears of it.
   */
  constructor(
    maxConnections: number,
    outgoing: number,
    observer: ConnectionLimitObserver,
    descriptors = descriptorLimit(),
  ) {
    const free = (descriptors ?? Number.POSITIVE_INFINITY) - OWN_DESCRIPTORS
    const most = Math.max(4, free - Math.min(outgoing, Math.floor(free / 2)))
    this.most = Math.min(maxConnections, most)
    this.#setting = most < maxConnections ? 'the limit of open files (ulimit -n, LimitNOFILE)' : 'listen.maxConnections'
    this.#observer = observer
  }

  /** What is refused at the moment: since when, and which limit is too low. */
  get refusing(): { readonly since: Date; readonly setting: string } | undefined {
    return this.#since === undefined ? undefined : { since: this.#since, setting: this.#setting }
  }

  /** Counts a refusal. `now` is monotonic milliseconds. */
  refuse(now: number): void {
    this.refused++
    this.#refusedInEpisode++
    this.#lastRefusalAt = now
    if (this.#since !== undefined) return
    this.#since = new Date()
    this.#observer.connectionsRefused(this.#setting, this.most)
  }

  /** Called about once a second. */
  check(now: number): void {
    if (this.#since === undefined || now - this.#lastRefusalAt < EPISODE_PAUSE_MS) return
    this.#observer.connectionsTaken(this.#refusedInEpisode)
    this.#refusedInEpisode = 0
    this.#since = undefined
  }
}
