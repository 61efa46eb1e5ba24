/** The setting `callers`: what it must not contain, the files that it names, and how it is shown. */

import type { CallerRule, JwtCredential, KeySetSource } from '../callers/caller-rule.ts'
import { type KeySet, KeySetInvalid, parseKeySet } from '../callers/key-set.ts'
import type { Secret } from '../secret.ts'
import type { AttachmentReader, Place } from './attachments.ts'
import type { Draft } from './draft.ts'
import { type Remark, Unsuitable } from './problem.ts'
import type { SettingValue, SettingValues } from './settings.ts'

type DeclaredCaller = SettingValue<'callers'>[number]
type DeclaredJwt = DeclaredCaller['jwt'] & {}

/** A caller has exactly one kind of credential, and no credential may mean two callers. */
export function callerContradictions(values: SettingValues): Remark[] {
  const callers = values.callers ?? []
  const remarks: Remark[] = []
  const taken = new Map<string, string>()
  const refuse = (index: number, part: string, message: string) =>
    remarks.push({ key: 'callers', part: `[${index}]${part}`, message })
  const claim = (index: number, part: string, id: string, what: string) => {
    const owner = taken.get(id)
    const self = callers[index]?.name ?? ''
    if (owner !== undefined) refuse(index, part, `${what} of caller ${owner}: give each caller its own`)
    else taken.set(id, self)
  }
  for (const address of [values['listen.address'], values['admin.address']]) {
    if (address !== undefined && address !== 'off' && address.kind === 'unix') taken.set(`socket ${address.path}`, '')
  }
  for (const [index, caller] of callers.entries()) {
    const { name, socket, keyFiles, jwt } = caller
    claim(index, '.name', `name ${name}`, 'is the name')
    const given = [socket, keyFiles, jwt].filter((credential) => credential !== undefined).length
    if (given !== 1) refuse(index, '', 'needs exactly one of socket, keyFiles and jwt')
    if (socket !== undefined && taken.get(`socket ${socket}`) === '') {
      refuse(index, '.socket', 'is also listen.address or admin.address: give the caller a socket of its own')
    } else if (socket !== undefined) claim(index, '.socket', `socket ${socket}`, 'is the socket')
    for (const [at, path] of (keyFiles ?? []).entries()) {
      claim(index, `.keyFiles[${at}]`, `key ${path}`, 'is a key file')
    }
    if (jwt === undefined) continue
    const claims = JSON.stringify([jwt.issuer, jwt.audience, jwt.subject])
    claim(index, '.jwt', `jwt ${claims}`, 'has the issuer, audience and subject')
    for (const name of ['jwksCaFile', 'jwksTokenFile'] as const) {
      if (jwt[name] !== undefined && !isUrl(jwt.jwks)) refuse(index, `.jwt.${name}`, 'needs an https URL in jwks')
    }
  }
  if (callers.length > 0 && values['listen.callerKeyFile'] !== undefined) {
    const message = 'is set, and so is callers: make it a key file of a caller'
    remarks.push({ key: 'listen.callerKeyFile', message })
  }
  return remarks
}

export function callerCautions(values: SettingValues): Remark[] {
  const limit = values['listen.maxInFlight'] ?? Number.POSITIVE_INFINITY
  return (values.callers ?? []).flatMap((caller, index): Remark[] => {
    const remark = (part: string, message: string): Remark => ({ key: 'callers', part: `[${index}]${part}`, message })
    return [
      ...(caller.orgs.length === 0 ? [remark('', `(${caller.name}) has no orgs, so it may name none`)] : []),
      ...((caller.maxInFlight ?? 0) > limit ? [remark('.maxInFlight', 'is more than listen.maxInFlight')] : []),
    ]
  })
}

/** Reads keys and key sets. A caller with a problem is left out: the draft has the problem then. */
export async function readCallers(draft: Draft, reader: AttachmentReader): Promise<CallerRule[]> {
  const callers = draft.values.callers ?? []
  const owners: { readonly key: Secret; readonly name: string }[] = []
  const rules: CallerRule[] = []
  for (const [index, caller] of callers.entries()) {
    const credential = await readCredential(caller, `[${index}]`, draft, reader)
    if (credential === undefined) continue
    if (credential.kind === 'key') {
      for (const [at, key] of credential.keys.entries()) {
        const place: Place = { key: 'callers', part: `[${index}].keyFiles[${at}]` }
        const owner = owners.find((other) => other.key.equals(key))
        if (owner !== undefined && owner.name !== caller.name) {
          draft.report({ ...place, message: `holds the same key as a file of caller ${owner.name}: make a new key` })
        } else owners.push({ key, name: caller.name })
        if (key.reveal().length < SHORT_KEY_LENGTH) reader.warn(place, SHORT_KEY)
      }
    }
    const { name, orgs, routes, maxInFlight } = caller
    rules.push({ name, credential, orgs, routes, maxInFlight })
  }
  return rules
}

const SHORT_KEY_LENGTH = 16
const SHORT_KEY = 'holds a key of fewer than 16 characters, which can be guessed: openssl rand -hex 32 makes a good one'

/** A key of this shape could also be read as a JWT, and one credential must not have two meanings. */
const JWT_SHAPE = /^[\w-]+\.[\w-]+\.[\w-]*$/

async function readCredential(
  { socket, keyFiles, jwt }: DeclaredCaller,
  part: string,
  draft: Draft,
  reader: AttachmentReader,
): Promise<CallerRule['credential'] | undefined> {
  if (socket !== undefined) return { kind: 'socket', path: draft.resolvePath('callers', socket) }
  if (jwt !== undefined) return readJwt(jwt, `${part}.jwt`, draft, reader)
  const keys: Secret[] = []
  for (const [index, file] of (keyFiles ?? []).entries()) {
    const place: Place = { key: 'callers', part: `${part}.keyFiles[${index}]` }
    const key = await reader.readKeyFile(place, draft.resolvePath('callers', file))
    if (key === undefined) continue
    if (JWT_SHAPE.test(key.reveal())) draft.report({ ...place, message: 'holds a JWT, not a key: use jwt instead' })
    keys.push(key)
  }
  return keys.length === 0 ? undefined : { kind: 'key', keys }
}

async function readJwt(
  jwt: DeclaredJwt,
  part: string,
  draft: Draft,
  reader: AttachmentReader,
): Promise<JwtCredential | undefined> {
  const { issuer, audience, subject } = jwt
  const keySet = await readKeySetSource(jwt, part, draft, reader)
  return keySet === undefined ? undefined : { kind: 'jwt', issuer, audience, subject, keySet }
}

async function readKeySetSource(
  { jwks, jwksCaFile, jwksTokenFile }: DeclaredJwt,
  part: string,
  draft: Draft,
  reader: AttachmentReader,
): Promise<KeySetSource | undefined> {
  const place = (name: string): Place => ({ key: 'callers', part: `${part}.${name}` })
  if (!isUrl(jwks)) {
    const path = draft.resolvePath('callers', jwks)
    const keySet = await reader.attempt(place('jwks'), async () => readKeySet((await reader.read(path)).bytes))
    return keySet === undefined ? undefined : { kind: 'file', path, keySet }
  }
  const caFile = jwksCaFile === undefined ? undefined : draft.resolvePath('callers', jwksCaFile)
  const tokenFile = jwksTokenFile === undefined ? undefined : draft.resolvePath('callers', jwksTokenFile)
  const caCertificates =
    caFile === undefined ? undefined : await reader.readCertificateFile(place('jwksCaFile'), caFile)
  return { kind: 'url', url: jwks, caCertificates, tokenFile }
}

/** @throws {Unsuitable} */
function readKeySet(bytes: Buffer): KeySet {
  try {
    return parseKeySet(bytes.toString('utf8'))
  } catch (error) {
    if (error instanceof KeySetInvalid) throw new Unsuitable(error.message, { cause: error })
    throw error
  }
}

/** One line per caller. */
export function describeCallers(callers: readonly DeclaredCaller[]): string[] {
  return callers.map(({ name, socket, keyFiles, jwt, orgs, routes, maxInFlight }) => {
    const credential =
      socket !== undefined
        ? `socket ${socket}`
        : jwt !== undefined
          ? `jwt ${jwt.subject} for ${jwt.audience} of ${jwt.issuer}, keys from ${jwt.jwks}`
          : `keys ${(keyFiles ?? []).join(', ')}`
    const orgList = orgs.map(({ id, isPrefix }) => (isPrefix ? `${id}*` : id)).join(', ')
    const routeList = routes.map(({ method, path, isPrefix }) => `${method} ${path}${isPrefix ? '*' : ''}`).join(', ')
    const limit = maxInFlight === undefined ? '' : `, at most ${maxInFlight} at once`
    return `${name} (${credential}): orgs ${orgList || 'none'}, routes ${routeList || 'all'}${limit}`
  })
}

function isUrl(jwks: string): boolean {
  return jwks.startsWith('https://')
}
