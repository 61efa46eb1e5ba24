/** Everything that the service's specification leaves open, as switches that can be turned while the sandbox runs. */

import { type Fault, FaultPlan } from './fault.ts'
import { parseSwitches } from './switch-checks.ts'
import type { TokenFormat } from './tokens.ts'

export interface Switches {
  /** The App's secret; a list while a rotation lets several stand. */
  readonly appSecret: string | readonly string[]
  /** Orgs that the App may act for: ids, beginnings of ids with a trailing `*`, or `*` for all. */
  readonly linked: '*' | readonly string[]
  /** Of tokens that are issued from now on. */
  readonly tokenLifetimeMs: number
  /** `jwt` tokens tell their end in `exp`. */
  readonly tokenFormat: TokenFormat
  /** Status for wrong App credentials. */
  readonly badCredentialsStatus: number
  /** Status of the token endpoint for an org that is not linked. */
  readonly unlinkedStatus: number
  /** Status for a token that is expired, revoked, unknown or missing. */
  readonly expiredStatus: number
  /** The token endpoint waits so long before it answers. */
  readonly mintLatencyMs: number
  /** Everything else waits so long before it answers. */
  readonly requestLatencyMs: number
  /** Faults of the token endpoint, tried in their order. */
  readonly mintFaults: readonly Fault[]
  /** Faults of everything else. */
  readonly requestFaults: readonly Fault[]
}

/** The one in `config/sandbox.secret`: proxy and sandbox fit each other when both are started without further ado. */
export const DEFAULT_APP_SECRET = 'sandbox-secret-that-opens-nothing-else'

export const DEFAULT_SWITCHES: Switches = {
  appSecret: DEFAULT_APP_SECRET,
  linked: ['acme', 'globex', 'org-*'],
  tokenLifetimeMs: 300_000,
  tokenFormat: 'opaque',
  badCredentialsStatus: 401,
  unlinkedStatus: 403,
  expiredStatus: 401,
  mintLatencyMs: 0,
  requestLatencyMs: 0,
  mintFaults: [],
  requestFaults: [],
}

/** The switches as they stand, and the faults that are still to come. */
export class SwitchBoard {
  readonly #random: () => number
  #values = DEFAULT_SWITCHES
  #mintFaults: FaultPlan
  #requestFaults: FaultPlan

  constructor(random: () => number) {
    this.#random = random
    this.#mintFaults = new FaultPlan([], random)
    this.#requestFaults = new FaultPlan([], random)
  }

  get values(): Switches {
    return this.#values
  }

  /** As they may be shown: without the secret. */
  get shown(): Omit<Switches, 'appSecret'> {
    const { appSecret: _, ...shown } = this.#values
    return shown
  }

  get secrets(): readonly string[] {
    return [this.#values.appSecret].flat()
  }

  get mintFaults(): FaultPlan {
    return this.#mintFaults
  }

  get requestFaults(): FaultPlan {
    return this.#requestFaults
  }

  isLinked(org: string): boolean {
    const { linked } = this.#values
    if (linked === '*') return true
    return linked.some((entry) => (entry.endsWith('*') ? org.startsWith(entry.slice(0, -1)) : org === entry))
  }

  /**
   * Turns the switches that are named and leaves the others; all of them, or none if one is wrong.
   * @throws {SwitchError}
   */
  set(input: unknown): void {
    const changes = parseSwitches(input)
    this.#values = { ...this.#values, ...changes }
    if (changes.mintFaults !== undefined) this.#mintFaults = new FaultPlan(changes.mintFaults, this.#random)
    if (changes.requestFaults !== undefined) this.#requestFaults = new FaultPlan(changes.requestFaults, this.#random)
  }
}
