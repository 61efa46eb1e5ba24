/** The setting `callers`: checks between its entries, and the files that it names. */

import type { z } from 'zod'
import type { CallerRule, KeySetSource } from '../callers/callers.ts'
import { KeySetInvalid, parseKeySet } from '../callers/jwt.ts'
import type { Secret } from '../secret.ts'
import { isLoopback, type ListenAddress } from './address.ts'
import type { Draft } from './draft.ts'
import { readCertificates, readKeyFile } from './files.ts'
import type { Path, Place, Remark } from './problem.ts'
import { callerMapping, jwtMapping } from './schema.ts'
import { isMapping, type SettingValues } from './settings.ts'
import { Unsuitable } from './types.ts'

type DeclaredCaller = z.output<typeof callerMapping>

/** A mapping whose wrong values are undefined. Their names are still there. */
type Sound<T> = { readonly [Name in keyof T]?: T[Name] | undefined }
type SoundJwt = Sound<z.output<typeof jwtMapping>>
type SoundCaller = Sound<Omit<DeclaredCaller, 'jwt'>> & { readonly jwt?: SoundJwt | undefined }

const KINDS = ['socket', 'keyFiles', 'jwt', 'certificate'] as const

/**
 * The callers without their wrong values, so that one run reports every problem of an entry. An entry that is not a mapping is
 * undefined.
 */
function soundCallers(draft: Draft): readonly (SoundCaller | undefined)[] {
  const written = draft.givenValue('callers')
  if (!Array.isArray(written)) return []
  return written.map((entry) => (isMapping(entry) ? soundParts(entry, callerMapping) : undefined))
}

function soundParts(written: Readonly<Record<string, unknown>>, { shape }: z.ZodObject): Record<string, unknown> {
  const parts = Object.entries(written).map(([name, value]) => {
    if (name === 'jwt' && isMapping(value)) return [name, soundParts(value, jwtMapping)]
    return [name, Object.hasOwn(shape, name) ? shape[name]?.safeParse(value).data : undefined]
  })
  return Object.fromEntries(parts)
}

/** As messages name it. */
function labelOf({ name }: SoundCaller, index: number): string {
  return name === undefined ? `callers[${index}]` : `caller ${name}`
}

/** A caller has exactly one kind of credential, and no credential may mean two callers. `values` are those beside `callers`. */
export function callerContradictions(draft: Draft, values: SettingValues): Remark[] {
  const callers = soundCallers(draft)
  const remarks: Remark[] = []
  const owners = new Map<string, string>()
  const ownSockets = [values['listen.address'], values['admin.address']].flatMap((address) =>
    address !== undefined && address !== 'off' && address.kind === 'unix' ? [address.path] : [],
  )
  for (const [index, caller] of callers.entries()) {
    if (caller === undefined) continue
    const refuse = (path: Path, message: string) => remarks.push({ key: 'callers', path: [index, ...path], message })
    const claim = (path: Path, id: readonly unknown[], what: string) => {
      const owner = owners.get(JSON.stringify(id))
      if (owner === undefined) owners.set(JSON.stringify(id), labelOf(caller, index))
      else refuse(path, `${what} of ${owner}: give each caller its own`)
    }
    const { name, socket, keyFiles = [], jwt, certificate } = caller
    if (name !== undefined) claim(['name'], ['name', name], 'is the name')
    const given = KINDS.filter((kind) => Object.hasOwn(caller, kind))
    if (given.length !== 1) refuse([], 'needs exactly one of socket, keyFiles, jwt and certificate')
    if (socket !== undefined && ownSockets.includes(socket)) {
      refuse(['socket'], 'is also listen.address or admin.address: give the caller a socket of its own')
    } else if (socket !== undefined) claim(['socket'], ['socket', socket], 'is the socket')
    for (const [at, path] of keyFiles.entries()) claim(['keyFiles', at], ['key', path], 'is a key file')
    if (certificate !== undefined) claim(['certificate'], ['certificate', certificate], 'is the certificate')
    if (certificate !== undefined && values['listen.tls.clientCaFile'] === undefined) {
      refuse(['certificate'], 'needs listen.tls.clientCaFile: without it, nobody is asked for a certificate')
    }
    if (jwt === undefined) continue
    const { issuer, audience, subject, jwks } = jwt
    if (issuer !== undefined && audience !== undefined && subject !== undefined) {
      claim(['jwt'], ['jwt', issuer, audience, subject], 'has the issuer, audience and subject')
    }
    for (const part of ['jwksCaFile', 'jwksTokenFile'] as const) {
      const isForFile = jwks !== undefined && !isUrl(jwks)
      if (jwt[part] !== undefined && isForFile) refuse(['jwt', part], 'needs an https URL in jwks')
    }
  }
  const written = draft.givenValue('callers')
  if (Array.isArray(written) && written.length === 0) {
    remarks.push({ key: 'callers', message: 'is empty: name the callers, or remove it to admit everybody' })
  }
  if (callers.length > 0 && values['listen.callerKeyFile'] !== undefined) {
    const message = 'is set, and so is callers: make it a key file of a caller'
    remarks.push({ key: 'listen.callerKeyFile', message })
  }
  return remarks
}

export function callerCautions(values: SettingValues): Remark[] {
  const limit = values['listen.maxInFlight'] ?? Number.POSITIVE_INFINITY
  const { callers = [], 'listen.address': listen, 'admin.address': admin } = values
  const sockets = callers.filter(({ socket }) => socket !== undefined)
  const place = listen === undefined ? 'none' : placeOfCallers(callers.length, sockets.length, listen)
  const isReached = place === 'here' && admin !== undefined && admin !== 'off' && admin.kind === 'tcp'
  const message =
    'serves health and metrics only, because callers can reach it: set it to a unix socket to see Orgs and purge tokens'
  const remarks: Remark[] = isReached ? [{ key: 'admin.address', message }] : []
  const others = callers.flatMap(({ name, orgs, maxInFlight = 0 }, index): Remark[] => {
    const remark = (path: Path, message: string): Remark => ({ key: 'callers', path: [index, ...path], message })
    return [
      ...(orgs.length === 0 ? [remark([], `(${name}) has no orgs, so it may name none`)] : []),
      ...(maxInFlight > limit ? [remark(['maxInFlight'], 'is more than listen.maxInFlight')] : []),
    ]
  })
  return [...remarks, ...others]
}

/** Callers of a listener that is open to other machines are taken to be there, unless one has a socket on this one. */
export function placeOfCallers(callers: number, sockets: number, listen: ListenAddress): 'none' | 'here' | 'elsewhere' {
  if (callers === 0) return 'none'
  return listen.kind === 'tcp' && !isLoopback(listen.host) && sockets === 0 ? 'elsewhere' : 'here'
}

const SHORT_KEY_LENGTH = 16

/** Reads keys and key sets. Leaves out a caller with a problem, and reports the problem to the draft. */
export async function readCallers(draft: Draft): Promise<CallerRule[]> {
  const owners: { readonly key: Secret; readonly label: string }[] = []
  const rules: CallerRule[] = []
  for (const [index, caller] of soundCallers(draft).entries()) {
    if (caller === undefined) continue
    const credential = await readCredential(draft, caller, index)
    const keys = credential?.kind === 'key' ? credential.keys : []
    const label = labelOf(caller, index)
    for (const [at, key] of keys.entries()) {
      const place: Place = { key: 'callers', path: [index, 'keyFiles', at] }
      const owner = owners.find((other) => other.key.equals(key))
      if (owner === undefined) owners.push({ key, label })
      else if (owner.label !== label) {
        draft.report({ ...place, message: `holds the same key as a file of ${owner.label}: make a new key` })
      }
      if (key.reveal().length < SHORT_KEY_LENGTH) {
        const message = `holds a key of fewer than ${SHORT_KEY_LENGTH} characters, which can be guessed: openssl rand -hex 32 makes a good one`
        draft.warn({ ...place, message })
      }
    }
    const { name, orgs = [], routes = [], maxInFlight } = caller
    if (credential !== undefined && name !== undefined) rules.push({ name, credential, orgs, routes, maxInFlight })
  }
  return rules
}

/** A key of this shape could also be read as a JWT, and one credential must not have two meanings. */
const JWT_SHAPE = /^[\w-]+\.[\w-]+\.[\w-]*$/

async function readCredential(
  draft: Draft,
  { socket, keyFiles = [], jwt, certificate }: SoundCaller,
  index: number,
): Promise<CallerRule['credential'] | undefined> {
  if (socket !== undefined) return { kind: 'socket', path: socket }
  if (certificate !== undefined) return { kind: 'certificate', name: certificate }
  if (jwt !== undefined) {
    const keySet = await readKeySetSource(draft, jwt, index)
    const { issuer, audience, subject } = jwt
    if (keySet === undefined || issuer === undefined || audience === undefined || subject === undefined)
      return undefined
    return { kind: 'jwt', issuer, audience, subject, keySet }
  }
  const keys: Secret[] = []
  for (const [at, file] of keyFiles.entries()) {
    const place: Place = { key: 'callers', path: [index, 'keyFiles', at] }
    const key = await readKeyFile(draft, place, draft.resolvePath('callers', file))
    if (key === undefined) continue
    if (JWT_SHAPE.test(key.reveal())) draft.report({ ...place, message: 'holds a JWT, not a key: use jwt instead' })
    keys.push(key)
  }
  return keys.length === 0 ? undefined : { kind: 'key', keys }
}

async function readKeySetSource(
  draft: Draft,
  { jwks, jwksCaFile, jwksTokenFile }: SoundJwt,
  index: number,
): Promise<KeySetSource | undefined> {
  if (jwks === undefined) return undefined
  const placeOf = (name: string): Place => ({ key: 'callers', path: [index, 'jwt', name] })
  const pathOf = (file: string | undefined) => (file === undefined ? undefined : draft.resolvePath('callers', file))
  if (isUrl(jwks)) {
    const caCertificates = await readCertificates(draft, placeOf('jwksCaFile'), pathOf(jwksCaFile))
    return { kind: 'url', url: jwks, caCertificates, tokenFile: pathOf(jwksTokenFile) }
  }
  const path = draft.resolvePath('callers', jwks)
  return draft.attempt(placeOf('jwks'), async () => {
    const { bytes } = await draft.read(placeOf('jwks'), path)
    try {
      return { kind: 'file', path, keySet: parseKeySet(bytes.toString('utf8')) }
    } catch (error) {
      if (error instanceof KeySetInvalid) throw new Unsuitable(error.message, { cause: error })
      throw error
    }
  })
}

function isUrl(jwks: string): boolean {
  return jwks.startsWith('https://')
}
