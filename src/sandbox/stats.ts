/** The counters of the sandbox, per org and in total. */

export interface OrgStats {
  /** Calls of the token endpoint for this org. */
  readonly mints: number
  /** Tokens issued by those calls. */
  readonly tokens: number
  /** Requests that came with a live token of this org. */
  readonly requests: number
  /** Requests that came with an expired or revoked token of this org. */
  readonly rejected: number
  /** The most calls of the token endpoint that ran at the same time. */
  readonly peakConcurrentMints: number
}

export interface TotalStats extends OrgStats {
  /** Requests made as the App, with Basic credentials. */
  readonly appRequests: number
}

export interface SandboxStats {
  /** Here `rejected` includes requests without a token or with an unknown one; they belong to no org. */
  readonly totals: TotalStats
  readonly orgs: Readonly<Record<string, OrgStats>>
}

class Counters implements OrgStats {
  mints = 0
  tokens = 0
  requests = 0
  rejected = 0
  peakConcurrentMints = 0
  #mintsInFlight = 0

  mintStarted(): void {
    this.mints += 1
    this.#mintsInFlight += 1
    this.peakConcurrentMints = Math.max(this.peakConcurrentMints, this.#mintsInFlight)
  }

  mintEnded(): void {
    this.#mintsInFlight -= 1
  }
}

export class Stats {
  readonly #totals = new Counters()
  readonly #orgs = new Map<string, Counters>()
  #appRequests = 0

  mintStarted(org: string): void {
    for (const counters of this.#both(org)) counters.mintStarted()
  }

  mintEnded(org: string): void {
    for (const counters of this.#both(org)) counters.mintEnded()
  }

  /** Without an org, in the totals only. */
  count(org: string | undefined, event: 'tokens' | 'requests' | 'rejected'): void {
    for (const counters of this.#both(org)) counters[event] += 1
  }

  appRequestAccepted(): void {
    this.#appRequests += 1
  }

  snapshot(): SandboxStats {
    const orgs = [...this.#orgs].map(([org, counters]) => [org, { ...counters }] as const)
    return { totals: { ...this.#totals, appRequests: this.#appRequests }, orgs: Object.fromEntries(orgs) }
  }

  #both(org: string | undefined): Counters[] {
    if (org === undefined) return [this.#totals]
    const known = this.#orgs.get(org)
    if (known !== undefined) return [this.#totals, known]
    const fresh = new Counters()
    this.#orgs.set(org, fresh)
    return [this.#totals, fresh]
  }
}
