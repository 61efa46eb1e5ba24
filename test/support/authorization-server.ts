/**
 * An OAuth 2.0 authorization server that others wrote (oidc-provider), with one client, the App. It gives tokens for an
 * organization, and knows which of them are good.
 */

import { generateKeyPairSync, type JsonWebKey } from 'node:crypto'
import { once } from 'node:events'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { createLocalJWKSet, jwtVerify } from 'jose'
import { type Context, errors, Provider } from 'oidc-provider'

/** What the server knows of the App. Read for each request, so that a test may change it. */
export interface Client {
  readonly client_secret?: string
  /** Seconds since 1970. */
  readonly client_secret_expires_at?: number
  readonly token_endpoint_auth_method: 'client_secret_basic' | 'client_secret_post' | 'private_key_jwt'
  readonly token_endpoint_auth_signing_alg?: string
  readonly jwks?: { readonly keys: readonly JsonWebKey[] }
}

interface Options {
  readonly client: Client
  readonly format?: 'opaque' | 'jwt'
  readonly lifeSeconds?: number
}

const RESOURCE = 'urn:test:api'

export class AuthorizationServer implements AsyncDisposable {
  readonly clientId = 'app'
  client: Client
  mints = 0
  readonly #server: Server
  readonly #provider: Provider
  readonly #stored = new Map<string, unknown>()
  readonly #keys = createLocalJWKSet({ keys: [PUBLIC_KEY] })

  constructor(server: Server, { client, format = 'opaque', lifeSeconds = 3_600 }: Options) {
    this.#server = server
    this.client = client
    const { clientId } = this
    const current = () => this.client
    const stored = this.#stored
    /** As oidc-provider asks its storage. */
    class Adapter {
      readonly #model: string
      constructor(model: string) {
        this.#model = model
      }
      async find(id: string): Promise<unknown> {
        if (this.#model !== 'Client') return stored.get(`${this.#model} ${id}`)
        if (id !== clientId) return undefined
        const fixed = { grant_types: ['client_credentials'], redirect_uris: [], response_types: [] }
        return { client_id: clientId, ...fixed, ...current() }
      }
      async upsert(id: string, payload: unknown): Promise<void> {
        stored.set(`${this.#model} ${id}`, payload)
      }
    }
    this.#provider = new Provider(this.issuer, {
      adapter: Adapter,
      jwks: { keys: [PRIVATE_KEY] },
      clientAuthMethods: ['client_secret_basic', 'client_secret_post', 'private_key_jwt'],
      features: {
        clientCredentials: { enabled: true },
        devInteractions: { enabled: false },
        resourceIndicators: { enabled: true },
      },
      ttl: { ClientCredentials: lifeSeconds },
      extraTokenClaims: ({ oidc }: Context) => ({ organization: oidc.params['organization'] }),
    })
    const { ClientCredentials, ResourceServer } = this.#provider
    const give = async (context: Context) => {
      const { client: app, params } = context.oidc
      const organization = String(params['organization'])
      if (!organization.startsWith('org')) {
        throw new errors.CustomOIDCProviderError('access_denied', 'the App is no member of this organization')
      }
      this.mints++
      const token = new ClientCredentials({ client: app })
      if (format === 'jwt') {
        token.resourceServer = new ResourceServer(RESOURCE, {
          scope: '',
          accessTokenFormat: 'jwt',
          accessTokenTTL: lifeSeconds,
        })
      }
      context.body = { access_token: await token.save(), expires_in: token.expiration, token_type: 'Bearer' }
    }
    this.#provider.registerGrantType('client_credentials', give, ['organization'])
    server.on('request', this.#provider.callback())
  }

  get issuer(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`
  }

  /** The organization of a token that is good, whatever its format. */
  async orgOf(token: string): Promise<string | undefined> {
    const isJwt = token.split('.').length === 3
    const claims = isJwt
      ? await jwtVerify(token, this.#keys, { issuer: this.issuer, audience: RESOURCE }).then(
          ({ payload }) => payload,
          () => undefined,
        )
      : await this.#provider.ClientCredentials.find(token).then((found) =>
          found?.isExpired ? undefined : found?.extra,
        )
    return claims === undefined ? undefined : String(claims['organization'])
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.closeAllConnections()
    this.#server.close()
    await once(this.#server, 'close')
  }
}

const PAIR = generateKeyPairSync('rsa', { modulusLength: 2048 })
const PRIVATE_KEY = { ...PAIR.privateKey.export({ format: 'jwk' }), alg: 'RS256', use: 'sig', kid: 'server' }
const PUBLIC_KEY = { ...PAIR.publicKey.export({ format: 'jwk' }), alg: 'RS256', use: 'sig', kid: 'server', kty: 'RSA' }

export async function startAuthorizationServer(options: Options): Promise<AuthorizationServer> {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  return new AuthorizationServer(server, options)
}
