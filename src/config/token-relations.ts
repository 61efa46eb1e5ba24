/** What contradicts itself in the settings of the token request. */

import { hasMeaning, withDashes } from '../gateway/fields.ts'
import { ORG_ID_SEGMENT } from '../org-id.ts'
import { usesPrivateKey } from '../token/app-key.ts'
import { closedPath } from '../token/token-request.ts'
import { isReadableOnTheWay } from './address.ts'
import { unfitFor } from './files.ts'
import { sound } from './problem.ts'
import type { ReadSettings, Report } from './relations.ts'
import { NOT_FREE } from './types.ts'

/** Secrets do not stand in settings. */
const SECRET_NAMES: readonly string[] = ['client_secret', 'client_assertion', 'password', 'refresh_token']

export function reportTokenRequest(settings: ReadSettings, refuse: Report): void {
  reportContent(settings, refuse)
  reportEndpoint(settings, refuse)
  reportProof(settings, refuse)
  reportSecretHeaders(settings, refuse)
}

function reportContent({ tokens }: ReadSettings, refuse: Report): void {
  const [auth, form = {}, json = {}] = [sound(tokens.auth), sound(tokens.form), sound(tokens.json)]
  if (tokens.form !== undefined && tokens.json !== undefined)
    refuse('tokens.json', 'is set, and so is tokens.form: keep one')
  for (const [key, names] of Object.entries({ 'tokens.form': Object.keys(form), 'tokens.json': Object.keys(json) })) {
    for (const name of names) {
      if (name.includes(ORG_ID_SEGMENT)) refuse(key, `has ${ORG_ID_SEGMENT} in a name: it stands in values`)
      if (SECRET_NAMES.includes(name.toLowerCase())) {
        refuse(key, `has ${name}, and secrets do not stand in settings: appSecretFile and tokens.auth show the secret`)
      }
    }
  }
  if (auth !== 'form' && auth !== 'assertion') return
  if ('client_id' in form) refuse('tokens.form', `has client_id, which tokens.auth: ${auth} adds: remove it`)
  if (tokens.json !== undefined) refuse('tokens.auth', `is ${auth}, which needs a form, but tokens.json is set`)
  else if (auth === 'assertion' && tokens.form === undefined) {
    refuse('tokens.auth', 'is assertion, which needs tokens.form, such as grant_type: client_credentials')
  }
}

function reportEndpoint({ tokens, origin, minter, ...rest }: ReadSettings, refuse: Report): void {
  const [baseUrl, endpoint, auth] = [sound(rest.baseUrl), sound(tokens.endpoint), sound(tokens.auth)]
  const [form, json] = [sound(tokens.form), sound(tokens.json)]
  if (endpoint === undefined) return
  const { method, base, path } = endpoint
  const hasContent = tokens.form !== undefined || tokens.json !== undefined || auth === 'form' || auth === 'assertion'
  if (method === 'GET' && hasContent) refuse('tokens.endpoint', 'is a GET, which has no content: write POST or PUT')
  const isSound = (tokens.form === undefined && tokens.json === undefined) || form !== undefined || json !== undefined
  const texts = [path, ...Object.values(form ?? {}), ...Object.values(json ?? {})]
  const count = texts.join('\n').split(ORG_ID_SEGMENT).length - 1
  // A sidecar only keeps the path closed.
  if (isSound && count !== 1 && minter.url === undefined) {
    const found = count === 0 ? 'names the Org nowhere' : 'is not the only place of the Org'
    refuse('tokens.endpoint', `${found}: put ${ORG_ID_SEGMENT} once into its path, tokens.form or tokens.json`)
  }
  if (base !== undefined && isReadableOnTheWay(base) && origin.allowInsecure === false) {
    refuse('tokens.endpoint', 'is plain http to another machine: use https, or set origin.allowInsecure to true')
  }
  const closed = baseUrl && closedPath({ baseUrl, endpoint })
  const segments = (closed ?? '').split('/').filter((segment) => segment !== '')
  if (/^v\d[\d.]*$/i.test(segments[0] ?? '')) segments.shift()
  if (closed !== undefined && segments.length < 2) {
    refuse('tokens.endpoint', 'has one segment, which would close every path that ends so: give it another path')
  }
}

function reportProof({ tokens, minter, ...rest }: ReadSettings, refuse: Report): void {
  const [auth, appRoutes = []] = [sound(tokens.auth), sound(rest.appRoutes)]
  const assertion = { algorithm: sound(tokens.assertion.algorithm) }
  const isGiven = tokens.assertionFile !== undefined
  if (isGiven && minter.url !== undefined)
    refuse('tokens.assertionFile', 'is set, and so is minter.url: it is for the minter')
  if (auth === undefined || minter.url !== undefined) return
  if (isGiven) {
    if (auth !== 'assertion') refuse('tokens.assertionFile', `needs tokens.auth: assertion, which is ${auth}`)
    if (rest.fleet.store !== undefined)
      refuse('fleet.store', 'needs an App secret to seal tokens with: tokens.assertionFile is none')
    for (const key of ['appSecretFile', 'appSecret'] as const) {
      if (rest[key] !== undefined) refuse('tokens.assertionFile', `is set, and so is ${key}: keep one`)
    }
  }
  for (const name of Object.keys(tokens.assertion)) {
    const problem = isGiven
      ? 'is of a JWT that is signed here, but tokens.assertionFile has one'
      : 'needs tokens.auth: jwt or assertion'
    if (isGiven || !usesPrivateKey(auth)) refuse(`tokens.assertion.${name}`, problem)
  }
  if (appRoutes.length > 0 && auth !== 'basic' && auth !== 'jwt') {
    refuse('appRoutes', `is set, but tokens.auth is ${auth}, which is for the token endpoint: use basic or jwt`)
  }
  for (const [key, secret] of Object.entries({
    appSecretFile: sound(rest.appSecretFile)?.content,
    appSecret: sound(rest.appSecret),
  })) {
    const problem = secret && unfitFor({ auth, assertion }, secret)
    if (problem !== undefined) refuse(key, problem)
  }
}

function reportSecretHeaders({ origin, tokens, minter }: ReadSettings, refuse: Report): void {
  if (minter.url !== undefined && tokens.secretHeaders !== undefined) {
    refuse('tokens.secretHeaders', 'is set, and so is minter.url: the minter calls the token endpoint')
  }
  for (const [key, headers = {}] of Object.entries({
    'origin.secretHeaders': sound(origin.secretHeaders),
    'tokens.secretHeaders': sound(tokens.secretHeaders),
  })) {
    const taken = new Map([[withDashes(sound(tokens.header)?.name ?? ''), 'tokens.header']])
    for (const name of Object.keys(headers)) {
      const at = `${key}[${name.slice(0, 64)}]`
      const looks = withDashes(name.toLowerCase())
      if (!/^[!#$%&'*+.^_`|~\w-]{1,64}$/.test(name)) refuse(key, 'has a name that is no field name')
      else if (hasMeaning(name)) refuse(at, NOT_FREE)
      else if (taken.has(looks)) refuse(at, `is the field of ${taken.get(looks)}: each needs one of its own`)
      taken.set(looks, name)
    }
  }
}
