/** The real client of the token endpoint, with a scripted endpoint, and a record of all its events. */

import type { OrgId } from '../../../src/org-id.ts'
import { call } from '../../../src/origin/call.ts'
import { ConnectionPool, type PoolOptions } from '../../../src/origin/connection-pool.ts'
import { Secret } from '../../../src/secret.ts'
import { AppCredentials } from '../../../src/token/app-credentials.ts'
import { AppKey } from '../../../src/token/app-key.ts'
import { type TokenEndpointOptions, tokenEndpoint } from '../../../src/token/token-endpoint.ts'
import type { SettledMint, TokenSource } from '../../../src/token/token-source.ts'
import type { Service } from '../../support/service.ts'

export const ACME = 'acme' as OrgId
export const GLOBEX = 'globex' as OrgId

/** As version 2.0 of the service has it. */
export const ENDPOINT = {
  endpoint: { method: 'POST', base: undefined, path: '/v2/orgs/{orgId}/access' },
  field: ['orgAccessToken'],
} as const

export class EndpointUnderTest implements AsyncDisposable {
  readonly credentials: AppCredentials
  readonly endpoint: TokenSource
  readonly mints: SettledMint[] = []
  readonly #origin: ConnectionPool

  constructor(
    service: Service,
    { timeoutMs = 5_000, ...options }: Partial<TokenEndpointOptions & PoolOptions & { timeoutMs: number }> = {},
  ) {
    const { appId, appSecret } = service.tokens
    const baseUrl = new URL(service.baseUrl)
    const origin = { baseUrl, connections: 32, connectTimeoutMs: 5_000, ...options }
    this.#origin = new ConnectionPool(origin)
    this.credentials = options.credentials ?? new AppCredentials(new AppKey(appId, new Secret(appSecret)))
    this.endpoint = tokenEndpoint({
      baseUrl,
      credentials: this.credentials,
      ...ENDPOINT,
      userAgent: 'org-access-proxy/test',
      timeoutMs,
      call: (request, restMs) => call(this.#origin, request, restMs),
      observer: { mintSettled: (mint) => this.mints.push(mint) },
      ...options,
    })
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#origin.close()
  }
}
