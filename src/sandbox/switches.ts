/** The switches, one for each point that the service's specification leaves open. They can change while the sandbox runs. */

import { z } from 'zod'

export interface Switches {
  /** The App secret; a list while a rotation makes several valid. */
  readonly appSecret: string | readonly string[]
  /** Linked orgs: ids, prefixes with a trailing `*`, or `*` for all. */
  readonly linked: '*' | readonly string[]
  /** The call that gets a token: a method, and a path in which `{orgId}` may be a segment. Any prefix may precede it. */
  readonly tokenEndpoint: string
  /** How the App proves itself there. For `jwt` and `assertion`, the secret is a private or public key in PEM. */
  readonly tokenAuth: 'basic' | 'form' | 'jwt' | 'assertion'
  /** Members that the call must have as a form, or as a JSON object. The one with the value `{orgId}` is the org. */
  readonly tokenForm?: Members | undefined
  readonly tokenJson?: Members | undefined
  /** Basic credentials are decoded as a form, as OAuth servers do (RFC 6749 §2.3.1). */
  readonly decodesBasic: boolean
  /** Status of an answer with a token. */
  readonly mintStatus: number
  /** The member of the answer that is the token; dots lead into objects. */
  readonly tokenField: string
  /** The header that carries the token: a name, and a text with `{token}` once. */
  readonly tokenHeader: string
  /** Headers that each request with a token must have, as behind an API gateway. */
  readonly secretHeaders?: Members | undefined
  /** The same of calls of the token endpoint. */
  readonly mintSecretHeaders?: Members | undefined
  /** What the JWT of `jwt` or `assertion` must say, where that is not the default. */
  readonly tokenAssertion?: Assertion | undefined
  /** Lifetime of tokens issued from now on. */
  readonly tokenLifetimeMs: number
  /** `sliding`: each use begins it anew. `irregular`: between half and one and a half of it. */
  readonly tokenLifetimeKind: 'regular' | 'sliding' | 'irregular'
  /** How a token states its end: `jwt` in the token itself, the others as a member of the answer. */
  readonly statedEnds: readonly StatedEnd[]
  /** How far the service's clock is ahead of this machine's. */
  readonly clockOffsetMs: number
  /** The endpoint gives the same token of an org again until it ends. */
  readonly sameToken: boolean
  /** Time during which a new token is not known yet, as at a service that copies tokens to its back ends. */
  readonly tokenSettleMs: number
  /** Share of the back ends that come to know it late, from 0 to 1. Each connection leads to one of them. */
  readonly tokenSettleShare: number
  /** A new token of an org ends the ones before it. */
  readonly oneTokenPerOrg: boolean
  /** Status for wrong App credentials. */
  readonly badCredentialsStatus: number
  /** Status of the token endpoint for an org that is not linked. */
  readonly unlinkedStatus: number
  /** Status for a token that is expired, revoked, unknown or missing. A redirect leads to a login. */
  readonly expiredStatus: number
  /** Most calls of the token endpoint; undefined for no limit. */
  readonly mintLimit?: Limit | undefined
  /** Most other requests. */
  readonly requestLimit?: Limit | undefined
  /** Delay of the token endpoint. */
  readonly mintLatencyMs: number
  /** Delay of everything else. */
  readonly requestLatencyMs: number
  /** Faults of the token endpoint; the first that applies happens. */
  readonly mintFaults: readonly Fault[]
  /** Faults of everything else. */
  readonly requestFaults: readonly Fault[]
}

export type Members = Readonly<Record<string, string>>

export interface Assertion {
  /** The endpoint's URL for `assertion`, and any for `jwt`, if absent. */
  readonly audience?: string | undefined
  /** The App id if absent, as the next one. A JWT that somebody else has signed for the App names others. */
  readonly issuer?: string | undefined
  readonly subject?: string | undefined
  readonly keyId?: string | undefined
  readonly algorithm?: string | undefined
}

export type StatedEnd = 'jwt' | 'expires_in' | 'expiresIn' | 'expires_at' | 'expiresAt'

/** Every answer tells what is left of it, and one beyond it when to come back. */
export interface Limit {
  readonly count: number
  readonly windowMs: number
  /** 429 if absent. */
  readonly status?: number | undefined
  /** Each org has its own. */
  readonly perOrg?: boolean | undefined
}

export interface Fault {
  /**
   * `html`: a page in place of JSON, as load balancers send it. `hang`: no response. `reset`: TCP reset. `cut`: the content
   * is shorter than its declared length. `truncated-json`: a complete response that holds half a JSON value.
   */
  readonly kind: 'status' | 'html' | 'hang' | 'reset' | 'cut' | 'truncated-json'
  /** Of `status` (500 if absent) and of `html` (200 if absent). */
  readonly status?: number | undefined
  readonly retryAfterSeconds?: number | undefined
  /** Only requests of this org fail. */
  readonly org?: string | undefined
  /** So many more requests fail; all if absent. */
  count?: number | undefined
}

/** The secret in `config/sandbox.secret`, so that proxy and sandbox work together without any setting. */
export const DEFAULT_APP_SECRET = 'sandbox-secret-that-opens-nothing-else'

export const DEFAULT_ENDPOINT = 'POST /v2/orgs/{orgId}/access'
export const DEFAULT_FIELD = 'orgAccessToken'
export const DEFAULT_HEADER = 'Authorization: Bearer {token}'

const text = z.string().min(1)
const members = z.record(z.string(), z.string())
const milliseconds = z.number().min(0)
const wholeNumber = z.int().min(0)
const status = z.int().min(200).max(599)
const fault = z.strictObject({
  kind: z.enum(['status', 'html', 'hang', 'reset', 'cut', 'truncated-json']),
  status: status.optional(),
  retryAfterSeconds: wholeNumber.optional(),
  org: text.optional(),
  count: wholeNumber.optional(),
})
const limit = z.strictObject({
  count: z.int().min(1),
  windowMs: z.number().min(1),
  status: status.optional(),
  perOrg: z.boolean().optional(),
})
const assertion = z.strictObject({
  audience: text.optional(),
  issuer: text.optional(),
  subject: text.optional(),
  keyId: text.optional(),
  algorithm: text.optional(),
})
const STATED_ENDS = ['jwt', 'expires_in', 'expiresIn', 'expires_at', 'expiresAt'] as const
const schema = z.strictObject({
  appSecret: z.union([text, z.array(text).min(1)]).default(DEFAULT_APP_SECRET),
  linked: z.union([z.literal('*'), z.array(text)]).default(['acme', 'globex', 'org-*']),
  tokenEndpoint: z
    .string()
    .regex(/^(?:GET|POST|PUT) (?:(?:\/[^/?\s{}]+)*\/\{orgId\})?(?:\/[^/?\s{}]+)+\/?$/)
    .default(DEFAULT_ENDPOINT),
  tokenAuth: z.enum(['basic', 'form', 'jwt', 'assertion']).default('basic'),
  tokenForm: members.optional(),
  tokenJson: members.optional(),
  decodesBasic: z.boolean().default(false),
  mintStatus: z.int().min(200).max(299).default(200),
  tokenField: z
    .string()
    .regex(/^[^.\s]+(?:\.[^.\s]+)*$/)
    .default(DEFAULT_FIELD),
  tokenHeader: z
    .string()
    .regex(/^[\w-]+: [^{}]*\{token\}[^{}]*$/)
    .default(DEFAULT_HEADER),
  secretHeaders: members.optional(),
  mintSecretHeaders: members.optional(),
  tokenAssertion: assertion.optional(),
  tokenLifetimeMs: milliseconds.default(300_000),
  tokenLifetimeKind: z.enum(['regular', 'sliding', 'irregular']).default('regular'),
  statedEnds: z.array(z.enum(STATED_ENDS)).default([]),
  clockOffsetMs: z.number().default(0),
  sameToken: z.boolean().default(false),
  tokenSettleMs: milliseconds.default(0),
  tokenSettleShare: z.number().min(0).max(1).default(1),
  oneTokenPerOrg: z.boolean().default(false),
  badCredentialsStatus: status.default(401),
  unlinkedStatus: status.default(403),
  expiredStatus: status.default(401),
  mintLimit: limit.optional(),
  requestLimit: limit.optional(),
  mintLatencyMs: milliseconds.default(0),
  requestLatencyMs: milliseconds.default(0),
  mintFaults: z.array(fault).default([]),
  requestFaults: z.array(fault).default([]),
})

/** Switches that are absent get their defaults. @throws {TypeError} whose message names every wrong switch. */
export function parseSwitches(input: object): Switches {
  const { data, error } = schema.safeParse(input)
  if (error === undefined) return data
  throw new TypeError(error.issues.map(({ path, message }) => [path.join('.'), message].join(': ')).join('; '))
}
