/** The whole service on one port: the token endpoint, and an origin that accepts only its tokens. */

import { type Origin, type OriginOptions, startOrigin } from './origin.ts'
import type { OriginRequest, OriginScript, Reply } from './origin-connection.ts'
import { TokenEndpoint, type TokenEndpointOptions } from './token-endpoint.ts'

export interface ServiceOptions extends TokenEndpointOptions, OriginOptions {
  /** Answers all requests with a good token. */
  readonly script?: OriginScript
  /** Path of the base URL, such as `/api` or `/api/`. */
  readonly prefix?: string
  /** The script sees requests with a bad token too. */
  readonly acceptsAnyToken?: boolean
}

const MINT = /^\/v2\/orgs\/([^/?]+)\/access$/

export class Service implements AsyncDisposable {
  readonly origin: Origin
  readonly tokens: TokenEndpoint
  readonly baseUrl: string
  readonly #prefix: string

  constructor(origin: Origin, tokens: TokenEndpoint, prefix: string) {
    this.origin = origin
    this.tokens = tokens
    this.#prefix = prefix.replace(/\/$/, '')
    this.baseUrl = `${origin.url}${prefix}`
  }

  /** The requests at the origin, without mints. */
  get requests(): OriginRequest[] {
    return this.origin.requests.filter((request) => this.orgOfMint(request) === undefined)
  }

  get appId(): string {
    return this.tokens.appId
  }

  get appSecret(): string {
    return this.tokens.appSecret
  }

  /** The Org of the token in the request, if there is exactly one token and it is good. */
  orgOf(request: OriginRequest): string | undefined {
    const [authorization, ...others] = request.values('authorization')
    if (authorization === undefined || others.length > 0 || !authorization.startsWith('Bearer ')) return undefined
    return this.tokens.orgOf(authorization.slice('Bearer '.length))
  }

  orgOfMint(request: OriginRequest): string | undefined {
    if (request.method !== 'POST' || !request.target.startsWith(this.#prefix)) return undefined
    const [, segment] = MINT.exec(request.target.slice(this.#prefix.length)) ?? []
    return segment === undefined ? undefined : decodeURIComponent(segment)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.origin[Symbol.asyncDispose]()
  }
}

const sayWho: OriginScript = () => ({ content: 'hello from the origin' })

const unauthorized: Reply = {
  status: 401,
  reason: 'Unauthorized',
  fields: ['WWW-Authenticate', 'Bearer'],
  content: 'the token is not good',
}

export async function startService(options: ServiceOptions = {}): Promise<Service> {
  const tokens = new TokenEndpoint(options)
  const script = options.script ?? sayWho
  const origin = await startOrigin(undefined, options)
  const service = new Service(origin, tokens, options.prefix ?? '')
  origin.script = (request, connection) => {
    const org = service.orgOfMint(request)
    if (org !== undefined) return tokens.answer(org, request)
    if (options.acceptsAnyToken !== true && service.orgOf(request) === undefined) return unauthorized
    return script(request, connection)
  }
  return service
}
