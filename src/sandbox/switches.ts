/** The switches, one for each point that the service's specification leaves open. They can change while the sandbox runs. */

import { z } from 'zod'

export interface Switches {
  /** The App secret; a list while a rotation makes several valid. */
  readonly appSecret: string | readonly string[]
  /** Linked orgs: ids, prefixes with a trailing `*`, or `*` for all. */
  readonly linked: '*' | readonly string[]
  /** Lifetime of tokens issued from now on. */
  readonly tokenLifetimeMs: number
  /** Time during which a new token is not known yet, as at a service that copies tokens to its back ends. */
  readonly tokenSettleMs: number
  /** A new token of an org ends the ones before it. */
  readonly oneTokenPerOrg: boolean
  /** Status for wrong App credentials. */
  readonly badCredentialsStatus: number
  /** Status of the token endpoint for an org that is not linked. */
  readonly unlinkedStatus: number
  /** Status for a token that is expired, revoked, unknown or missing. */
  readonly expiredStatus: number
  /** Delay of the token endpoint. */
  readonly mintLatencyMs: number
  /** Delay of everything else. */
  readonly requestLatencyMs: number
  /** Faults of the token endpoint; the first that applies happens. */
  readonly mintFaults: readonly Fault[]
  /** Faults of everything else. */
  readonly requestFaults: readonly Fault[]
}

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

/** A value was refused. The message names every wrong switch. */
export class SwitchError extends TypeError {
  override readonly name = 'SwitchError'
}

/** The secret in `config/sandbox.secret`, so that proxy and sandbox work together without any setting. */
export const DEFAULT_APP_SECRET = 'sandbox-secret-that-opens-nothing-else'

export const DEFAULT_SWITCHES: Switches = {
  appSecret: DEFAULT_APP_SECRET,
  linked: ['acme', 'globex', 'org-*'],
  tokenLifetimeMs: 300_000,
  tokenSettleMs: 0,
  oneTokenPerOrg: false,
  badCredentialsStatus: 401,
  unlinkedStatus: 403,
  expiredStatus: 401,
  mintLatencyMs: 0,
  requestLatencyMs: 0,
  mintFaults: [],
  requestFaults: [],
}

const text = z.string().min(1)
const milliseconds = z.number().min(0)
const wholeNumber = z.int().min(0)
const status = z.int().min(200).max(599)
const occasion = {
  org: text.exactOptional(),
  probability: z.number().min(0).max(1).exactOptional(),
  count: wholeNumber.exactOptional(),
}
const faults = z.array(
  z.discriminatedUnion('kind', [
    z.strictObject({ ...occasion, kind: z.literal('status'), status, retryAfterSeconds: wholeNumber.exactOptional() }),
    z.strictObject({ ...occasion, kind: z.literal('html'), status: status.exactOptional() }),
    z.strictObject({ ...occasion, kind: z.enum(['hang', 'reset', 'cut', 'truncated-json']) }),
  ]),
)
const switchesSchema = z.strictObject({
  appSecret: z.union([text, z.array(text).min(1)]),
  linked: z.union([z.literal('*'), z.array(text)]),
  tokenLifetimeMs: milliseconds,
  tokenSettleMs: milliseconds,
  oneTokenPerOrg: z.boolean(),
  badCredentialsStatus: status,
  unlinkedStatus: status,
  expiredStatus: status,
  mintLatencyMs: milliseconds,
  requestLatencyMs: milliseconds,
  mintFaults: faults,
  requestFaults: faults,
} satisfies Readonly<Record<keyof Switches, z.ZodType>>)

/** The current switches. */
export class SwitchBoard {
  readonly #random: () => number
  /** How often each fault has happened. */
  readonly #happened = new WeakMap<Fault, number>()
  #values = DEFAULT_SWITCHES

  constructor(random: () => number) {
    this.#random = random
  }

  get values(): Switches {
    return this.#values
  }

  /** All switches but the secret. */
  get shown(): Omit<Switches, 'appSecret'> {
    const { appSecret: _, ...shown } = this.#values
    return shown
  }

  get secrets(): readonly string[] {
    return [this.#values.appSecret].flat()
  }

  isLinked(org: string): boolean {
    const { linked } = this.#values
    if (linked === '*') return true
    return linked.some((entry) => (entry.endsWith('*') ? org.startsWith(entry.slice(0, -1)) : org === entry))
  }

  /** The first fault of the list that applies to this request. It counts as happened. */
  takeFault(list: 'mintFaults' | 'requestFaults', org?: string): Fault | undefined {
    for (const fault of this.#values[list]) {
      const happened = this.#happened.get(fault) ?? 0
      if (happened === fault.count) continue
      if (fault.org !== undefined && fault.org !== org) continue
      if (fault.probability !== undefined && this.#random() >= fault.probability) continue
      this.#happened.set(fault, happened + 1)
      return fault
    }
    return undefined
  }

  /**
   * Changes the named switches only. If one is wrong, none changes.
   * @throws {SwitchError}
   */
  set(input: unknown): void {
    const { data, error } = switchesSchema.partial().safeParse(input)
    if (error !== undefined) throw new SwitchError(error.issues.map(describeIssue).join('; '))
    const changes = Object.fromEntries(Object.entries(data).filter(([, value]) => value !== undefined))
    this.#values = { ...this.#values, ...changes }
  }
}

function describeIssue({ path, message }: z.core.$ZodIssue): string {
  return path.length === 0 ? message : `${path.join('.')}: ${message}`
}
