/** The switches, one for each point that the service's specification leaves open. They can change while the sandbox runs. */

import { z } from 'zod'
import { type Fault, FaultPlan } from './fault.ts'
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
