/** The part of oidc-provider that the tests use. */

declare module 'oidc-provider' {
  import type { IncomingMessage, ServerResponse } from 'node:http'

  interface StoredToken {
    readonly extra?: Readonly<Record<string, unknown>>
    resourceServer?: object
    readonly expiration: number
    readonly isExpired: boolean
    save(): Promise<string>
  }

  export interface Context {
    body: unknown
    readonly oidc: { readonly client: object; readonly params: Readonly<Record<string, unknown>> }
  }

  export class Provider {
    constructor(issuer: string, configuration: object)
    readonly ClientCredentials: {
      new (properties: object): StoredToken
      find(value: string): Promise<StoredToken | undefined>
    }
    readonly ResourceServer: new (
      identifier: string,
      info: object,
    ) => object
    registerGrantType(name: string, handler: (context: Context) => Promise<void>, parameters: readonly string[]): void
    callback(): (request: IncomingMessage, response: ServerResponse) => void
  }

  export const errors: {
    readonly CustomOIDCProviderError: new (error: string, description: string) => Error
  }
}
