/** The whole service on one port: the token endpoint, and an origin that accepts only its tokens. */

import { type Origin, type OriginOptions, sayHello, startOrigin } from './origin.ts'
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
  /** Read for every request, so that a test may exchange it. */
  script: OriginScript
  readonly #prefix: string

  constructor(origin: Origin, { script = sayHello, prefix = '', acceptsAnyToken = false, ...rest }: ServiceOptions) {
    this.origin = origin
    this.tokens = new TokenEndpoint(rest)
    this.script = script
    this.#prefix = prefix.replace(/\/$/, '')
    this.baseUrl = `${origin.url}${prefix}`
    origin.script = (request, connection) => {
      const org = this.orgOfMint(request)
      if (org !== undefined) return this.tokens.answer(org, request)
      if (!acceptsAnyToken && this.orgOf(request) === undefined) return UNAUTHORIZED
      return this.script(request, connection)
    }
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

const UNAUTHORIZED: Reply = {
  status: 401,
  reason: 'Unauthorized',
  fields: ['WWW-Authenticate', 'Bearer'],
  content: 'the token is not good',
}

export async function startService(options: ServiceOptions = {}): Promise<Service> {
  return new Service(await startOrigin(undefined, options), options)
}
