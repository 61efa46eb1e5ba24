/** The switches, one for each point that the service's specification leaves open. They can change while the sandbox runs. */

import { z } from 'zod'
import type { TokenFormat } from './tokens.ts'

export interface Switches {
  /** The App secret; a list while a rotation makes several valid. */
  readonly appSecret: string | readonly string[]
  /** Linked orgs: ids, prefixes with a trailing `*`, or `*` for all. */
  readonly linked: '*' | readonly string[]
  /** Lifetime of tokens issued from now on. */
  readonly tokenLifetimeMs: number
  /** `jwt` tokens carry `exp`. */
  readonly tokenFormat: TokenFormat
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
  tokenFormat: 'opaque',
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
  tokenFormat: z.enum(['opaque', 'jwt']),
  badCredentialsStatus: status,
  unlinkedStatus: status,
  expiredStatus: status,
  mintLatencyMs: milliseconds,
  requestLatencyMs: milliseconds,
  mintFaults: faults,
  requestFaults: faults,
} satisfies Readonly<Record<keyof Switches, z.ZodType>>)

/** A list of faults, and how often each may still happen. */
class FaultPlan {
  readonly #random: () => number
  readonly #entries: { readonly fault: Fault; remaining: number }[]

  constructor(faults: readonly Fault[], random: () => number) {
    this.#random = random
    this.#entries = faults.map((fault) => ({ fault, remaining: fault.count ?? Number.POSITIVE_INFINITY }))
  }

  /** The first fault that applies to this request. */
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

/** The current switches, and the faults still to come. */
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

  /** All switches but the secret. */
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
   * Changes the named switches only. If one is wrong, none changes.
   * @throws {SwitchError}
   */
  set(input: unknown): void {
    const changes = parseSwitches(input)
    this.#values = { ...this.#values, ...changes }
    if (changes.mintFaults !== undefined) this.#mintFaults = new FaultPlan(changes.mintFaults, this.#random)
    if (changes.requestFaults !== undefined) this.#requestFaults = new FaultPlan(changes.requestFaults, this.#random)
  }
}

function parseSwitches(input: unknown): Partial<Switches> {
  const { data, error } = switchesSchema.partial().safeParse(input)
  if (error !== undefined) throw new SwitchError(error.issues.map(describeIssue).join('; '))
  return Object.fromEntries(Object.entries(data).filter(([, value]) => value !== undefined))
}

function describeIssue({ path, message }: z.core.$ZodIssue): string {
  return path.length === 0 ? message : `${path.join('.')}: ${message}`
}
