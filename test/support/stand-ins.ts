/**
 * Stand-ins for services where an App gets a token for one Org, by their public documentation. Nobody here has called the real
 * ones. Each has a token endpoint, on a host of its own where the service has one, and an API that says for whom a token is.
 */

import { execFileSync } from 'node:child_process'
import {
  createHash,
  createPrivateKey,
  createPublicKey,
  createSign,
  generateKeyPairSync,
  X509Certificate,
} from 'node:crypto'
import { decodeProtectedHeader, jwtVerify, type ProtectedHeaderParameters } from 'jose'
import { type Origin, startOrigin } from './origin.ts'
import type { OriginRequest, Reply } from './origin-connection.ts'
import { type Service, startService } from './service.ts'

interface Description {
  /** Two that have linked with the App, and one that has not. */
  readonly orgs: readonly [string, string, string]
  readonly path: RegExp
  /** The name in the form that is the Org; the first group of `path` if it is left out. */
  readonly member?: string
  /** What the form has besides, apart from the proof. */
  readonly form: Readonly<Record<string, string>>
  /** `certificate`: an assertion that names it. `federated`: a JWT that somebody else has signed. */
  readonly proof: 'basic' | 'form' | 'jwt' | 'assertion' | 'certificate' | 'federated'
  /** The ids of the Orgs, if `orgs` are names. */
  readonly ids?: Readonly<Record<string, string>>
  /** Takes the token in this field. */
  readonly header?: string
  /** Stands behind a gateway, which asks for this key. */
  readonly gatewayKey?: string
  readonly given: (token: string) => Reply
  readonly badApp: Reply
  readonly unknownOrg: Reply
  /** For a token that has ended. */
  readonly ended: Reply
  readonly isOnSameHost?: true
}

const json = (status: number, value: unknown, ...fields: string[]): Reply => ({
  status,
  fields: ['Content-Type', 'application/json; charset=utf-8', ...fields],
  content: JSON.stringify(value),
})
const oauth = (access_token: string) => json(200, { access_token, token_type: 'Bearer', expires_in: 3_599 })
const hourFromNow = () => new Date(Date.now() + 3_600_000).toISOString().replace(/\.\d+/, '')

const GITHUB = {
  path: /^\/app\/installations\/(\d+)\/access_tokens$/,
  form: {},
  proof: 'jwt',
  given: (token: string) =>
    json(201, { token: `ghs_${token}`, expires_at: hourFromNow(), permissions: { contents: 'read' } }),
  badApp: json(401, { message: 'A JSON web token could not be decoded', status: '401' }),
  unknownOrg: json(404, { message: 'Not Found', status: '404' }),
  ended: json(401, { message: 'Bad credentials', status: '401' }),
  isOnSameHost: true,
} as const

const ENTRA = {
  orgs: [
    'aaaaaaaa-0000-1111-2222-bbbbbbbbbbbb',
    'bbbbbbbb-0000-1111-2222-bbbbbbbbbbbb',
    'cccccccc-0000-1111-2222-bbbbbbbbbbbb',
  ],
  path: /^\/([^/]+)\/oauth2\/v2\.0\/token$/,
  form: { grant_type: 'client_credentials', scope: 'https://graph.microsoft.com/.default' },
  given: oauth,
  badApp: json(401, {
    error: 'invalid_client',
    error_description: 'AADSTS7000215: Invalid client secret provided. Trace ID: 0e1f2d3c-0000-1111-2222-000000000000',
    error_codes: [7000215],
  }),
  unknownOrg: json(400, { error: 'invalid_request', error_description: "AADSTS90002: Tenant 'x' not found." }),
  ended: json(401, { error: { code: 'InvalidAuthenticationToken', message: 'Access token has expired.' } }),
} as const

export const GATEWAY_KEY = 'key-of-the-gateway'

/** Of a service of one's own. */
const OWN = {
  orgs: ['a-1', 'b-2', 'c-3'],
  form: {},
  proof: 'basic',
  given: (access_token: string) => json(200, { access_token, expires_in: 3_600 }),
  badApp: json(401, { error: 'unknown_app' }),
  unknownOrg: json(403, { error: 'not_linked' }),
  ended: json(401, { error: 'token_expired' }),
  isOnSameHost: true,
} as const

export const STAND_INS = {
  'github-names': {
    ...GITHUB,
    orgs: ['acme', 'globex', 'initech'],
    ids: { acme: '4711', globex: '4712', initech: '9999' },
  },
  'entra-certificate': { ...ENTRA, proof: 'certificate' },
  'entra-federated': { ...ENTRA, proof: 'federated' },
  'own-header': { ...OWN, path: /^\/accounts\/([^/]+)\/access_tokens$/, header: 'X-Access-Token' },
  'api-gateway': { ...OWN, path: /^\/auth\/orgs\/([^/]+)\/token$/, gatewayKey: GATEWAY_KEY },
  'github-app': { ...GITHUB, orgs: ['4711', '4712', '9999'] },
  entra: { ...ENTRA, proof: 'form' },
  auth0: {
    orgs: ['org_a1', 'org_b2', 'org_c3'],
    path: /^\/oauth\/token$/,
    member: 'organization',
    form: { grant_type: 'client_credentials', audience: 'https://api.example.com/' },
    proof: 'form',
    given: oauth,
    badApp: json(401, { error: 'access_denied', error_description: 'Unauthorized' }),
    unknownOrg: json(403, {
      error: 'access_denied',
      error_description: 'The client has no grant for this organization.',
    }),
    ended: json(401, { message: 'Invalid token' }),
  },
  logto: {
    orgs: ['a1b2c3', 'b2c3d4', 'c3d4e5'],
    path: /^\/oidc\/token$/,
    member: 'organization_id',
    form: { grant_type: 'client_credentials', resource: 'https://api.example.com' },
    proof: 'basic',
    given: oauth,
    badApp: json(401, { error: 'invalid_client', error_description: 'client authentication failed' }),
    unknownOrg: json(400, {
      error: 'access_denied',
      error_description: 'app has not associated with the organization',
    }),
    ended: json(401, { code: 'auth.unauthorized', message: 'Unauthorized.' }),
  },
  keycloak: {
    orgs: ['realm-a', 'realm-b', 'realm-c'],
    path: /^\/realms\/([^/]+)\/protocol\/openid-connect\/token$/,
    form: { grant_type: 'client_credentials' },
    proof: 'assertion',
    given: oauth,
    badApp: json(401, { error: 'invalid_client', error_description: 'Invalid client or Invalid client credentials' }),
    unknownOrg: json(404, { error: 'Realm does not exist' }),
    ended: json(401, { error: 'HTTP 401 Unauthorized' }),
  },
  zoom: {
    orgs: ['AbC-dEf_1', 'AbC-dEf_2', 'AbC-dEf_3'],
    path: /^\/oauth\/token$/,
    member: 'account_id',
    form: { grant_type: 'account_credentials' },
    proof: 'basic',
    given: oauth,
    badApp: json(400, { reason: 'Invalid client_id or client_secret', error: 'invalid_client' }),
    unknownOrg: json(400, { reason: 'Bad request', error: 'invalid_request' }),
    ended: json(401, { code: 124, message: 'Invalid access token.' }),
  },
} as const satisfies Readonly<Record<string, Description>>

/** As Azure API Management says it. */
const NO_KEY = json(401, { statusCode: 401, message: 'Access denied due to missing subscription key.' })

export type StandInName = keyof typeof STAND_INS

/** Making one takes a tenth of a second or more. */
const privateKeys = new Map<string, string>()

/** As services give them: the first one, or that of a rotation. */
export function secretOf(name: StandInName, which: 'first' | 'next' = 'first'): string {
  const { proof } = STAND_INS[name]
  if (proof === 'basic' || proof === 'form')
    return `secret-${generateKeyPairSync('ed25519').privateKey.export({ format: 'jwk' }).d}`
  const kind = `${proof === 'certificate' ? 'with a certificate' : 'alone'} ${which}`
  const made = privateKeys.get(kind) ?? (proof === 'certificate' ? keyWithCertificate() : rsaKey())
  privateKeys.set(kind, made)
  return proof === 'federated' ? jwtBy(made) : made
}

const rsaKey = () =>
  String(generateKeyPairSync('rsa', { modulusLength: 2048 }).privateKey.export({ format: 'pem', type: 'pkcs1' }))

function keyWithCertificate(): string {
  const request = ['req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-subj', '/CN=app', '-keyout', '-', '-out', '-']
  return execFileSync('openssl', request, { stdio: 'pipe' }).toString()
}

/** As a cluster signs it. */
function jwtBy(key: string): string {
  const part = (value: object) => Buffer.from(JSON.stringify(value)).toString('base64url')
  const exp = Math.floor(Date.now() / 1_000) + 3_600
  const signed = `${part({ alg: 'RS256' })}.${part({ sub: 'system:serviceaccount:default:app', exp })}`
  return `${signed}.${createSign('RSA-SHA256').update(signed).sign(key).toString('base64url')}`
}

export class StandIn implements AsyncDisposable {
  readonly appId = '123456'
  readonly service: Service
  readonly endpoint: Origin
  /** All that are accepted. */
  secrets: readonly string[]
  mints = 0
  readonly #description: Description
  readonly #tokens = new Map<string, string>()

  constructor(description: Description, secret: string, service: Service, endpoint: Origin) {
    this.#description = description
    this.secrets = [secret]
    this.service = service
    this.endpoint = endpoint
    service.script = (request) => this.#answer(request)
    if (description.isOnSameHost !== true) endpoint.script = (request) => this.#answer(request)
  }

  /** Ends all tokens. */
  revoke(): void {
    this.#tokens.clear()
  }

  async #answer(request: OriginRequest): Promise<Reply> {
    const { gatewayKey } = this.#description
    if (request.values('ocp-apim-subscription-key').join() !== (gatewayKey ?? '')) return NO_KEY
    const [path = ''] = request.target.split('?')
    const match = this.#description.path.exec(path)
    if (match === null) return this.#answerApi(request)
    await request.ended
    return await this.#answerMint(request, match[1])
  }

  #answerApi(request: OriginRequest): Reply {
    const { header } = this.#description
    const [, bearer = ''] = /^Bearer (\S+)$/.exec(request.values('authorization').join()) ?? []
    const token = header === undefined ? bearer : request.values(header).join()
    const org = this.#tokens.get(token)
    return org === undefined ? this.#description.ended : json(200, { org })
  }

  async #answerMint(request: OriginRequest, inPath: string | undefined): Promise<Reply> {
    const { orgs, ids, member, form, given, badApp, unknownOrg } = this.#description
    const sent = Object.fromEntries(new URLSearchParams(request.content.toString()))
    if (request.method !== 'POST' || Object.entries(form).some(([name, value]) => sent[name] !== value)) {
      return json(400, { error: 'invalid_request' })
    }
    if (!(await this.#isProven(request, sent))) return badApp
    const id = member === undefined ? inPath : sent[member]
    const org = ids === undefined ? id : orgs.find((name) => ids[name] === id)
    if (org === undefined || !orgs.slice(0, 2).includes(org)) return unknownOrg
    this.mints++
    const reply = given(`t${this.mints}`.padEnd(40, 'k'))
    const answer = JSON.parse(String(reply.content))
    this.#tokens.set(answer.token ?? answer.access_token, org)
    return reply
  }

  async #isProven(request: OriginRequest, sent: Readonly<Record<string, string | undefined>>): Promise<boolean> {
    const authorization = request.values('authorization').join()
    const { proof } = this.#description
    switch (proof) {
      case 'basic': {
        const given = Buffer.from(authorization.replace('Basic ', ''), 'base64').toString()
        return this.secrets.some((secret) => given === `${this.appId}:${secret}`)
      }
      case 'form':
        return sent['client_id'] === this.appId && this.secrets.includes(sent['client_secret'] ?? '')
      case 'jwt':
        return await this.#isSigned(authorization.replace('Bearer ', ''), 600)
      case 'federated':
        return sent['client_id'] === this.appId && this.secrets.includes(sent['client_assertion'] ?? '')
      case 'certificate':
      case 'assertion': {
        const isType = sent['client_assertion_type'] === 'urn:ietf:params:oauth:client-assertion-type:jwt-bearer'
        return (
          isType && (await this.#isSigned(sent['client_assertion'] ?? '', 300, `${this.endpoint.url}${request.target}`))
        )
      }
    }
  }

  /** By one of the keys, for at most so long, and not from a time to come. */
  async #isSigned(jwt: string, maxSeconds: number, audience?: string): Promise<boolean> {
    for (const secret of this.secrets) {
      try {
        const { payload } = await jwtVerify(jwt, createPublicKey(createPrivateKey(secret)), {
          issuer: this.appId,
          ...(audience !== undefined && { audience, subject: this.appId, requiredClaims: ['jti'] }),
        })
        const nowSeconds = Date.now() / 1_000
        const isInTime = (payload.iat ?? Infinity) <= nowSeconds && (payload.exp ?? Infinity) - nowSeconds <= maxSeconds
        return isInTime && this.#isHeaderOf(decodeProtectedHeader(jwt), secret)
      } catch {
        // Another one may have signed it.
      }
    }
    return false
  }

  #isHeaderOf({ alg, 'x5t#S256': thumbprint }: ProtectedHeaderParameters, secret: string): boolean {
    if (this.#description.proof !== 'certificate') return alg === 'RS256' && thumbprint === undefined
    const [pem = ''] = /-----BEGIN CERTIFICATE.*/s.exec(secret) ?? []
    const expected = createHash('sha256').update(new X509Certificate(pem).raw).digest('base64url')
    return alg === 'PS256' && thumbprint === expected
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.service[Symbol.asyncDispose]()
    await this.endpoint[Symbol.asyncDispose]()
  }
}

export async function startStandIn(name: StandInName): Promise<StandIn> {
  const description: Description = STAND_INS[name]
  const secret = secretOf(name)
  const service = await startService({ appId: '123456', appSecret: secret, acceptsAnyToken: true })
  const endpoint = description.isOnSameHost === true ? service.origin : await startOrigin()
  return new StandIn(description, secret, service, endpoint)
}
