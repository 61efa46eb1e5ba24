/** The counters of the sandbox, per org and in total. */

export interface OrgStats {
  /** Calls of the token endpoint for this org. */
  readonly mints: number
  /** Tokens issued by those calls. */
  readonly tokens: number
  /** Requests that came with a live token of this org. */
  readonly requests: number
  /** Requests that came with a token of this org that was not live. */
  readonly rejected: number
}

export interface SandboxStats {
  /**
   * Here `rejected` includes requests without a token or with an unknown one; they belong to no org. `appRequests` are those
   * made as the App, with Basic credentials.
   */
  readonly totals: OrgStats & { readonly appRequests: number }
  readonly orgs: Readonly<Record<string, OrgStats>>
}

const none: OrgStats = { mints: 0, tokens: 0, requests: 0, rejected: 0 }

export class Stats {
  readonly #totals = { ...none }
  readonly #orgs = new Map<string, { -readonly [K in keyof OrgStats]: number }>()
  appRequests = 0

  /** Without an org, in the totals only. */
  count(org: string | undefined, event: keyof OrgStats): void {
    this.#totals[event] += 1
    if (org === undefined) return
    const counters = this.#orgs.get(org) ?? { ...none }
    counters[event] += 1
    this.#orgs.set(org, counters)
  }

  snapshot(): SandboxStats {
    const orgs = [...this.#orgs].map(([org, counters]) => [org, { ...counters }] as const)
    return { totals: { ...this.#totals, appRequests: this.appRequests }, orgs: Object.fromEntries(orgs) }
  }
}
