/** The request that gets a token, as the settings declare it. Nothing of a client's request is in it but the Org. */

import { isSameOrigin } from '../http1/host.ts'
import { pathOf, targetPrefix } from '../http1/target.ts'
import { ORG_ID_SEGMENT, type OrgId } from '../org-id.ts'
import { revealHeaders, type SecretHeaders } from '../secret.ts'
import type { AppAuth, AppProof } from './app-key.ts'

export interface EndpointRoute {
  readonly method: string
  /** Scheme, host and port of another place than `baseUrl`. */
  readonly base: URL | undefined
  /** Below `base` or `baseUrl`, with `{orgId}` in the place of the org id, and with a query if there is one. */
  readonly path: string
}

export interface TokenRequestSettings {
  readonly baseUrl: URL
  readonly endpoint: EndpointRoute
  /** The content: names and values, in which `{orgId}` stands for the org id. At most one of the two. */
  readonly form?: Readonly<Record<string, string>> | undefined
  readonly json?: Readonly<Record<string, string>> | undefined
  readonly secretHeaders?: SecretHeaders | undefined
  /** What `{orgId}` is for each Org; undefined if apps know the Orgs by that. */
  readonly orgIds?: ReadonlyMap<OrgId, OrgId> | undefined
}

export interface TokenRequest {
  readonly method: string
  readonly target: string
  /** Names and values in turn. */
  readonly fields: readonly string[]
  readonly content?: Buffer
}

/** Everything in the settings that decides which tokens the endpoint gives. The order of names says nothing. */
export function declarationOf({
  endpoint,
  auth,
  form,
  json,
  field,
}: Omit<TokenRequestSettings, 'baseUrl'> & { readonly auth: AppAuth; readonly field: readonly string[] }): string {
  const sorted = (members: TokenRequestSettings['form']) => members && Object.entries(members).sort()
  return JSON.stringify([endpoint.method, endpoint.base, endpoint.path, auth, sorted(form), sorted(json), field])
}

type Endpoint = Pick<TokenRequestSettings, 'baseUrl' | 'endpoint'>

/** Where the call goes. */
export function endpointBase({ baseUrl, endpoint }: Endpoint): URL {
  return endpoint.base ?? baseUrl
}

function endpointTarget(settings: Endpoint, org?: OrgId): string {
  const target = targetPrefix(endpointBase(settings)) + settings.endpoint.path
  return org === undefined ? target : inPlace(target, encodeURIComponent(org))
}

export function endpointUrl(settings: Endpoint, org?: OrgId): string {
  return endpointBase(settings).origin + endpointTarget(settings, org)
}

/** What `{orgId}` is for this Org. Undefined if the Org has none. */
export function idAtEndpoint(org: OrgId, { orgIds }: Pick<TokenRequestSettings, 'orgIds'>): OrgId | undefined {
  return orgIds === undefined ? org : orgIds.get(org)
}

/** As people read it: `POST https://api.example.com/v2/orgs/{orgId}/access`. */
export function endpointText(settings: Endpoint): string {
  return `${settings.endpoint.method} ${pathOf(endpointUrl(settings))}`
}

/** The path below `baseUrl` that is the endpoint, and so is closed to apps; undefined if the endpoint lies elsewhere. */
export function closedPath({ baseUrl, endpoint }: Endpoint): string | undefined {
  const [path = ''] = endpoint.path.split('?')
  if (endpoint.base === undefined) return path
  const prefix = targetPrefix(baseUrl)
  const isBelow = isSameOrigin(endpoint.base, baseUrl) && path.startsWith(`${prefix}/`)
  return isBelow ? path.slice(prefix.length) : undefined
}

export function tokenRequest(
  settings: TokenRequestSettings,
  org: OrgId,
  proof: AppProof,
  userAgent: string,
): TokenRequest {
  const authorization = proof.place === 'authorization' ? ['authorization', proof.reveal()] : []
  const secrets = [...authorization, ...revealHeaders(settings.secretHeaders)]
  const content = contentOf(settings, org, proof)
  const accept = ['accept', 'application/json', 'accept-encoding', 'identity', 'user-agent', userAgent]
  return {
    method: settings.endpoint.method,
    target: endpointTarget(settings, org),
    fields: ['host', endpointBase(settings).host, ...secrets, ...accept, ...(content?.fields ?? [])],
    ...(content && { content: Buffer.from(content.text) }),
  }
}

function contentOf({ form, json }: TokenRequestSettings, org: OrgId, proof: AppProof) {
  const withOrg = (members: Readonly<Record<string, string>>) =>
    Object.fromEntries(Object.entries(members).map(([name, value]) => [name, inPlace(value, org)]))
  if (json !== undefined) {
    return { fields: ['content-type', 'application/json'], text: JSON.stringify(withOrg(json)) }
  }
  if (form === undefined && proof.place !== 'form') return undefined
  const members = [form && new URLSearchParams(withOrg(form)).toString(), proof.place === 'form' && proof.reveal()]
  const text = members.filter(Boolean).join('&')
  return { fields: ['content-type', 'application/x-www-form-urlencoded'], text }
}

function inPlace(text: string, org: string): string {
  return text.split(ORG_ID_SEGMENT).join(org)
}
