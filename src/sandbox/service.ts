/** The service under `/v2`: the token endpoint, and everything that needs a bearer token. */

import type { IncomingMessage, OutgoingHttpHeaders, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { answerExample } from './example.ts'
import { COMMIT, type Exchange, pause, Refusal, send } from './exchange.ts'
import { type IssuedToken, IssuedTokens, replyOf, wallClock } from './issued-tokens.ts'
import { hasHeaders, hasMembers, isProven, orgIn, readContent, tokenIn } from './proof.ts'
import { type Assertion, type Limit, type Members, parseSwitches, type Switches } from './switches.ts'

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

/** Of the API. Any prefix may precede it. */
const SERVICE_PATH = /^(?:\/[^/]+)*?(\/v\d[\d.]*(?:\/.*)?)$/s
const NO_SECRET_HEADER = [403, 'header_missing', 'This request needs the headers of secretHeaders.'] as const
const NO_COUNTS: OrgStats = { mints: 0, tokens: 0, requests: 0, rejected: 0 }

export class Service {
  readonly appId: string
  readonly #handler: ServiceHandler | undefined
  readonly #tokens = new IssuedTokens()
  /** In the order in which they came: the back end that each leads to. */
  readonly #connections = new WeakMap<Socket, number>()
  #connectionCount = 0
  /** When the calls within a limit came, for each limit and org. */
  readonly #calls = new Map<string, number[]>()
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

  get tokenEndpoint(): string {
    return this.#switches.tokenEndpoint
  }

  get tokenField(): string {
    return this.#switches.tokenField
  }

  get tokenAuth(): Switches['tokenAuth'] {
    return this.#switches.tokenAuth
  }

  get tokenForm(): Members | undefined {
    return this.#switches.tokenForm
  }

  get tokenJson(): Members | undefined {
    return this.#switches.tokenJson
  }

  get tokenHeader(): string {
    return this.#switches.tokenHeader
  }

  get tokenAssertion(): Assertion | undefined {
    return this.#switches.tokenAssertion
  }

  /** All switches but the secrets. */
  get shownSwitches(): Omit<Switches, 'appSecret' | 'secretHeaders' | 'mintSecretHeaders'> {
    const { appSecret: _, secretHeaders: _ofRequests, mintSecretHeaders: _ofMints, ...shown } = this.#switches
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
    return this.#tokens.revoke(org)
  }

  stats(): SandboxStats {
    return { totals: { ...this.#totals }, orgs: Object.fromEntries(this.#orgs) }
  }

  /** @throws {Refusal} */
  async answer(exchange: Exchange): Promise<void> {
    const { request, response, path } = exchange
    const { tokenEndpoint, clockOffsetMs } = this.#switches
    if (clockOffsetMs !== 0) response.setHeader('date', new Date(wallClock(this.#switches)).toUTCString())
    const [method = '', mintPath = ''] = tokenEndpoint.split(' ')
    const segment = segmentOfOrg(mintPath, path)
    if (segment !== undefined) {
      if (request.method === method) return await this.#answerMint(exchange, decodeURIComponent(segment))
      throw new Refusal(405, 'method_not_allowed', `Use ${method}.`, { allow: method })
    }
    const [, servicePath] = SERVICE_PATH.exec(path) ?? []
    if (servicePath === undefined) throw new Refusal(404, 'not_found', 'The service is below /v2/.')
    await this.#answerRequest({ ...exchange, path: servicePath })
  }

  /** `inPath` is empty if the content names the org. */
  async #answerMint({ request, response, path }: Exchange, inPath: string): Promise<void> {
    const content = await readContent(request)
    const org = inPath || orgIn(content, this.#switches)
    this.#count(org || undefined, 'mints')
    if (!(await this.#isSpared(response, 'mint', org))) return
    if (!hasHeaders(request, this.#switches.mintSecretHeaders)) throw new Refusal(...NO_SECRET_HEADER)
    await this.#refuseAllButApp(request, content, path)
    if (!hasMembers(content, this.#switches) || org === '') {
      throw new Refusal(400, 'invalid_request', 'The content of this request is not as tokenForm or tokenJson says.')
    }
    this.#holdLimit(response, 'mint', org)
    const { linked, unlinkedStatus } = this.#switches
    const isLinked = [linked].flat().some((entry) => {
      return entry.endsWith('*') ? org.startsWith(entry.slice(0, -1)) : org === entry
    })
    if (!isLinked) throw new Refusal(unlinkedStatus, 'org_not_linked', 'This org has not linked with the App.')
    const token = this.#tokens.issue(org, this.#switches)
    this.#count(org, 'tokens')
    send(response, replyOf(token, this.#switches), this.#switches.mintStatus, { 'cache-control': 'no-store' })
  }

  async #answerRequest(exchange: Exchange): Promise<void> {
    const { request, response, path } = exchange
    const token = this.#tokens.find(tokenIn(request, this.#switches.tokenHeader))
    const isKnown = token !== undefined && this.#isKnown(token, request.socket)
    const now = performance.now()
    const isLive = isKnown && now < token.expiresAt
    this.#count(token?.org, isLive ? 'requests' : 'rejected')
    if (!(await this.#isSpared(response, 'request', token?.org))) return
    this.#holdLimit(response, 'request', token?.org)
    if (!hasHeaders(request, this.#switches.secretHeaders)) throw new Refusal(...NO_SECRET_HEADER)
    if (!isLive) {
      const { expiredStatus: status } = this.#switches
      const code = isKnown ? 'token_expired' : 'token_unknown'
      throw new Refusal(status, code, 'This request needs a live Org Access Token.', rejectionFields(status))
    }
    if (token.idleMs !== undefined) token.expiresAt = now + token.idleMs
    if (this.#handler === undefined || /^\/v[\d.]+\/example\//.test(path))
      await answerExample(exchange, token.org, this.#credentialNames)
    else await this.#handler(request, response, token.org)
  }

  /** Of many connections, `tokenSettleShare` lead to a back end that comes to know new tokens late. */
  #isKnown({ knownAt }: IssuedToken, socket: Socket): boolean {
    if (performance.now() >= knownAt) return true
    const { tokenSettleShare } = this.#switches
    const number = this.#connections.get(socket) ?? this.#connectionCount++
    this.#connections.set(socket, number)
    return Math.floor((number + 1) * tokenSettleShare) === Math.floor(number * tokenSettleShare)
  }

  /** The headers that no echo shows. */
  get #credentialNames(): string[] {
    const { tokenHeader, secretHeaders = {} } = this.#switches
    return [tokenHeader.split(':', 1).join(), ...Object.keys(secretHeaders)]
  }

  /** Tells what is left of the limit. @throws {Refusal} beyond it */
  #holdLimit(response: ServerResponse, kind: 'mint' | 'request', org = ''): void {
    const limit: Limit | undefined = this.#switches[`${kind}Limit`]
    if (limit === undefined) return
    const { count, windowMs, status = 429, perOrg = false } = limit
    const now = performance.now()
    const key = perOrg ? `${kind} ${org}` : kind
    const calls = (this.#calls.get(key) ?? []).filter((at) => now - at < windowMs)
    const isBeyond = calls.length >= count
    if (!isBeyond) calls.push(now)
    this.#calls.set(key, calls)
    const seconds = Math.ceil(Math.round((calls[0] ?? now) + windowMs - now) / 1_000)
    response.setHeader('x-ratelimit-limit', count)
    response.setHeader('x-ratelimit-remaining', count - calls.length)
    response.setHeader('x-ratelimit-reset', seconds)
    const fields = { 'retry-after': `${seconds}` }
    if (isBeyond) throw new Refusal(status, 'too_many_requests', 'This is beyond a limit of the sandbox.', fields)
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

  async #refuseAllButApp(request: IncomingMessage, content: Members, path: string): Promise<void> {
    const { tokenAuth, badCredentialsStatus } = this.#switches
    const url = `http://${request.headers.host}${path}`
    if (await isProven({ appId: this.appId, ...this.#switches }, request, content, url)) return
    const isOwnCode = tokenAuth === 'basic' && badCredentialsStatus !== 400
    const message = 'This request needs the App id and its secret.'
    const fields = tokenAuth === 'basic' ? { 'www-authenticate': 'Basic realm="sandbox"' } : {}
    throw new Refusal(badCredentialsStatus, isOwnCode ? 'app_credentials_wrong' : 'invalid_client', message, fields)
  }

  /** Without an org, in the totals only. */
  #count(org: string | undefined, event: keyof OrgStats): void {
    this.#totals[event] += 1
    if (org === undefined) return
    const counts = this.#orgs.get(org) ?? NO_COUNTS
    this.#orgs.set(org, { ...counts, [event]: counts[event] + 1 })
  }
}

/**
 * The segment in the place of `{orgId}`, if the path ends as the pattern does; empty if the pattern has none. Any prefix may
 * precede it.
 */
function segmentOfOrg(pattern: string, path: string): string | undefined {
  const [before = '', after] = pattern.split('{orgId}')
  if (after === undefined) return path.endsWith(before) ? '' : undefined
  if (!path.endsWith(after)) return undefined
  const rest = path.slice(0, path.length - after.length)
  const start = rest.lastIndexOf('/') + 1
  const segment = rest.slice(start)
  return segment !== '' && rest.slice(0, start).endsWith(before) ? segment : undefined
}

/** Of a token that is not live. Some services send everybody without one to a login. */
function rejectionFields(status: number): OutgoingHttpHeaders {
  if (status < 400) return { location: 'https://login.example/' }
  return { 'www-authenticate': 'Bearer error="invalid_token"' }
}
