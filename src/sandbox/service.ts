/** The service under `/v2`: the token endpoint, and everything that needs a bearer token. */

import { randomBytes } from 'node:crypto'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { LRUCache } from 'lru-cache'
import { answerExample } from './example.ts'
import { COMMIT, type Exchange, pause, Refusal, send } from './exchange.ts'
import { parseSwitches, type Switches } from './switches.ts'

/** Your own answers: called for each request with a live token, except below `/v2/example/`. */
export type ServiceHandler = (request: IncomingMessage, response: ServerResponse, org: string) => void | Promise<void>

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
  /** Here `rejected` includes requests without a token or with an unknown one; they belong to no org. */
  readonly totals: OrgStats
  readonly orgs: Readonly<Record<string, OrgStats>>
}

interface IssuedToken {
  readonly org: string
  readonly knownAt: number
  expiresAt: number
}

const TOKEN_ENDPOINT = /^\/v2\/orgs\/([^/]+)\/access$/
const NO_COUNTS: OrgStats = { mints: 0, tokens: 0, requests: 0, rejected: 0 }

export class Service {
  readonly appId: string
  readonly #handler: ServiceHandler | undefined
  readonly #tokens = new LRUCache<string, IssuedToken>({ max: 100_000 })
  readonly #totals = { ...NO_COUNTS }
  readonly #orgs = new Map<string, OrgStats>()
  #switches: Switches

  constructor(appId: string, switches: Partial<Switches>, handler: ServiceHandler | undefined) {
    this.appId = appId
    this.#switches = parseSwitches(switches)
    this.#handler = handler
  }

  /** The accepted secret; the last one if there are several. */
  get appSecret(): string {
    return [this.#switches.appSecret].flat().at(-1) ?? ''
  }

  get tokenSettleMs(): number {
    return this.#switches.tokenSettleMs
  }

  /** All switches but the secret. */
  get shownSwitches(): Omit<Switches, 'appSecret'> {
    const { appSecret: _, ...shown } = this.#switches
    return shown
  }

  /**
   * Changes the named switches, from now on.
   * @throws {TypeError} whose message names every wrong value
   */
  set(switches: Partial<Switches>): void {
    this.#switches = parseSwitches({ ...this.#switches, ...switches })
  }

  /** Revokes every live token of the org, or of all orgs for `*`. Returns their number. */
  revoke(org: string): number {
    const now = performance.now()
    const tokens = [...this.#tokens.values()].filter((token) => org === '*' || token.org === org)
    const live = tokens.filter(({ expiresAt }) => now < expiresAt)
    for (const token of live) token.expiresAt = now
    return live.length
  }

  stats(): SandboxStats {
    return { totals: { ...this.#totals }, orgs: Object.fromEntries(this.#orgs) }
  }

  /** @throws {Refusal} */
  async answer(exchange: Exchange): Promise<void> {
    const { request, path } = exchange
    const [, org] = TOKEN_ENDPOINT.exec(path) ?? []
    if (org === undefined) return await this.#answerRequest(exchange)
    if (request.method !== 'POST') throw new Refusal(405, 'method_not_allowed', 'Use POST.', { allow: 'POST' })
    await this.#answerMint(exchange, decodeURIComponent(org))
  }

  async #answerMint({ request, response }: Exchange, org: string): Promise<void> {
    this.#count(org, 'mints')
    if (!(await this.#isSpared(response, 'mint', org))) return
    this.#refuseAllButApp(request)
    const { linked, unlinkedStatus, oneTokenPerOrg, tokenSettleMs, tokenLifetimeMs } = this.#switches
    const isLinked = [linked].flat().some((entry) => {
      return entry.endsWith('*') ? org.startsWith(entry.slice(0, -1)) : org === entry
    })
    if (!isLinked) throw new Refusal(unlinkedStatus, 'org_not_linked', 'This org has not linked with the App.')
    if (oneTokenPerOrg) this.revoke(org)
    const orgAccessToken = randomBytes(32).toString('base64url')
    const now = performance.now()
    this.#tokens.set(orgAccessToken, { org, knownAt: now + tokenSettleMs, expiresAt: now + tokenLifetimeMs })
    this.#count(org, 'tokens')
    send(response, { orgAccessToken }, 200, { 'cache-control': 'no-store' })
  }

  async #answerRequest(exchange: Exchange): Promise<void> {
    const { request, response, path } = exchange
    const token = this.#tokens.get(credentialsOf(request, 'bearer') ?? '')
    const now = performance.now()
    const isKnown = token !== undefined && now >= token.knownAt
    const isLive = isKnown && now < token.expiresAt
    this.#count(token?.org, isLive ? 'requests' : 'rejected')
    if (!(await this.#isSpared(response, 'request', token?.org))) return
    if (!isLive) {
      const fields = { 'www-authenticate': 'Bearer error="invalid_token"' }
      const code = isKnown ? 'token_expired' : 'token_unknown'
      throw new Refusal(this.#switches.expiredStatus, code, 'This request needs a live Org Access Token.', fields)
    }
    if (this.#handler === undefined || path.startsWith('/v2/example/')) await answerExample(exchange, token.org)
    else await this.#handler(request, response, token.org)
  }

  /** Delays the request and fails it, as the switches say. Resolves with true if it is still to be answered. */
  async #isSpared(response: ServerResponse, endpoint: 'mint' | 'request', org?: string): Promise<boolean> {
    if (!(await pause(this.#switches[`${endpoint}LatencyMs`], response))) return false
    const fault = this.#switches[`${endpoint}Faults`].find((each) => each.count !== 0 && (each.org ?? org) === org)
    if (fault === undefined) return true
    if (fault.count !== undefined) fault.count -= 1
    COMMIT[fault.kind](response, fault)
    return false
  }

  #refuseAllButApp(request: IncomingMessage): void {
    const pair = Buffer.from(credentialsOf(request, 'basic') ?? '', 'base64').toString()
    const { appSecret, badCredentialsStatus } = this.#switches
    if ([appSecret].flat().some((secret) => pair === `${this.appId}:${secret}`)) return
    const message = 'This request needs the App id and its secret.'
    const fields = { 'www-authenticate': 'Basic realm="sandbox"' }
    throw new Refusal(badCredentialsStatus, 'app_credentials_wrong', message, fields)
  }

  /** Without an org, in the totals only. */
  #count(org: string | undefined, event: keyof OrgStats): void {
    this.#totals[event] += 1
    if (org === undefined) return
    const counts = this.#orgs.get(org) ?? NO_COUNTS
    this.#orgs.set(org, { ...counts, [event]: counts[event] + 1 })
  }
}

/** Basic (RFC 7617) or Bearer (RFC 6750) credentials. */
function credentialsOf(request: IncomingMessage, scheme: 'basic' | 'bearer'): string | undefined {
  const [, given, credentials] = /^(basic|bearer) +(\S+)$/i.exec(request.headers.authorization ?? '') ?? []
  return given?.toLowerCase() === scheme ? credentials : undefined
}
