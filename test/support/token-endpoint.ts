/** A scripted token endpoint: records every mint, and knows the Org of each token that it has issued. */

import { randomBytes } from 'node:crypto'
import { randomMarker, randomSecret } from './canaries.ts'
import type { Answer, OriginRequest, Reply } from './origin-connection.ts'

export interface Mint {
  readonly org: string
  readonly request: OriginRequest
  /** The success that the specification describes, with a new token. */
  issue(): Reply
}

/** May write to `mint.request.connection` itself. */
export type MintScript = (mint: Mint) => Answer | Promise<Answer>

export interface TokenEndpointOptions {
  readonly appId?: string
  readonly appSecret?: string
  readonly mint?: MintScript
}

export class TokenEndpoint {
  readonly appId: string
  readonly appSecret: string
  /** Part of every token: the canary that finds each of them. */
  readonly marker: string = randomMarker()
  readonly mints: Mint[] = []
  /** Read for every mint, so that a test may exchange it. */
  script: MintScript
  readonly #orgs = new Map<string, string>()

  constructor(options: TokenEndpointOptions = {}) {
    this.appId = options.appId ?? 'app-under-test'
    this.appSecret = options.appSecret ?? randomSecret()
    this.script = options.mint ?? ((mint) => mint.issue())
  }

  get apiKey(): string {
    return Buffer.from(`${this.appId}:${this.appSecret}`).toString('base64')
  }

  mintsOf(org: string): Mint[] {
    return this.mints.filter((mint) => mint.org === org)
  }

  /** The Org of a token that is still good. */
  orgOf(token: string): string | undefined {
    return this.#orgs.get(token)
  }

  /** Revokes every token of the Org, or of all Orgs. */
  revoke(org?: string): void {
    for (const [token, holder] of this.#orgs) if (org === undefined || holder === org) this.#orgs.delete(token)
  }

  issueToken(org: string): string {
    const generation = this.mintsOf(org).length
    const token = `tok-${org}-${generation}-${this.marker}${randomBytes(6).toString('hex')}`
    this.#orgs.set(token, org)
    return token
  }

  async answer(org: string, request: OriginRequest): Promise<Answer> {
    const mint: Mint = {
      org,
      request,
      issue: () => ({
        fields: ['Content-Type', 'application/json'],
        content: JSON.stringify({ orgAccessToken: this.issueToken(org) }),
      }),
    }
    this.mints.push(mint)
    if (request.values('authorization').join() === `Basic ${this.apiKey}`) return await this.script(mint)
    return { status: 401, reason: 'Unauthorized', content: 'these are not the credentials of the App' }
  }
}
