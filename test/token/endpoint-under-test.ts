/** The real client of the token endpoint before a scripted one, with everything observed that it tells. */

import type { OrgId } from '../../src/http/org-id.ts'
import { Secret } from '../../src/secret.ts'
import { AppCredentials } from '../../src/token/app-credentials.ts'
import { TokenEndpoint, type TokenEndpointOptions } from '../../src/token/token-endpoint.ts'
import type { SettledMint } from '../../src/token/token-source.ts'
import type { Service } from '../support/service.ts'

export const ACME = 'acme' as OrgId
export const GLOBEX = 'globex' as OrgId

export class EndpointUnderTest implements AsyncDisposable {
  readonly credentials: AppCredentials
  readonly endpoint: TokenEndpoint
  readonly mints: SettledMint[] = []

  constructor(service: Service, options: Partial<TokenEndpointOptions> = {}) {
    const { appId, appSecret } = service.tokens
    const baseUrl = new URL(service.baseUrl)
    this.credentials = new AppCredentials(appId, new Secret(appSecret))
    this.endpoint = new TokenEndpoint(
      {
        baseUrl,
        prefix: baseUrl.pathname.replace(/\/$/, ''),
        connections: 32,
        timeoutMs: 5_000,
        observer: { mintSettled: (mint) => this.mints.push(mint) },
        ...options,
      },
      this.credentials,
    )
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.endpoint.close()
  }
}
