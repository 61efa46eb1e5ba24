/** Checks of several settings together: contradictions are refused, and risky choices get a warning. */

import { createPrivateKey, X509Certificate } from 'node:crypto'
import { createSecureContext } from 'node:tls'
import type { z } from 'zod'
import * as clock from '../clock.ts'
import type { ListenAddress } from '../listener/bind.ts'
import { type OrgId, parseOrgId } from '../org-id.ts'
import { isLoopback, isReadableOnTheWay } from './address.ts'
import { quoted, sound, type WRONG } from './problem.ts'
import type { Config, declaration } from './schema.ts'
import { DEFAULT_PATTERN, parseOrgPattern } from './types.ts'

/** The settings as they were read. A value was not given, or it is wrong by itself, or sound. */
export type ReadSettings = Read<typeof declaration>

type Read<Schema> =
  Schema extends z.ZodObject<infer Shape>
    ? { readonly [Name in keyof Shape as Shape[Name] extends z.ZodObject ? Name : never]: Read<Shape[Name]> } & {
        readonly [Name in keyof Shape as Shape[Name] extends z.ZodObject ? never : Name]?: ReadValue<Shape[Name]>
      }
    : never

type ReadValue<Schema> =
  | undefined
  | (Schema extends z.ZodOptional<infer Inner extends z.ZodObject>
      ? Read<Inner>
      :
          | typeof WRONG
          | (Schema extends z.ZodDefault<z.ZodArray<infer Item extends z.ZodObject>>
              ? readonly Read<Item>[]
              : z.output<Schema>))

/** Takes a setting, or a part of one, and a message about it. */
export type Report = (at: string, message: string) => void

/** Skips a check if one of its values is missing. */
export function reportContradictions(settings: ReadSettings, refuse: Report): void {
  const { listen, origin, fleet } = settings
  const { tls } = listen
  const [baseUrl, address, hosts = []] = [sound(settings.baseUrl), sound(listen.address), sound(listen.hosts)]
  if (baseUrl !== undefined && isReadableOnTheWay(baseUrl) && origin.allowInsecure === false) {
    refuse('baseUrl', 'is plain http to another machine: use https, or set origin.allowInsecure to true')
  }
  if (isRemote(address) && listen.allowRemote === false) {
    refuse('listen.address', 'is open to other machines: use localhost, or set listen.allowRemote to true')
  }
  if (hosts.includes('*') && hosts.length > 1) {
    refuse('listen.hosts', 'has "*" and other names: keep only "*" to accept all, or remove it')
  }
  reportTls('listen', address, tls, refuse)
  reportTls('minter', sound(settings.minter.address), settings.minter.tls, refuse)
  const store = sound(fleet.store)
  if (fleet.cluster === true && (store?.kind === 'unix' || (store?.database ?? 0) > 0)) {
    refuse('fleet.store', 'is a unix socket or names a database, but a cluster speaks TCP and has only database 0')
  }
  if (fleet.serverName !== undefined && store !== undefined && !(store.kind === 'tcp' && store.tls)) {
    refuse('fleet.serverName', 'is the name in a certificate, which only a rediss:// fleet.store has')
  }
  reportKeyPair('origin', origin, refuse)
  reportMinter(settings, refuse)
  reportSidecar(settings, refuse)
  reportOrgIds(settings, refuse)
  reportCallers(settings, refuse)
}

function reportTls(
  group: 'listen' | 'minter',
  address: ListenAddress | 'off' | undefined,
  tls: ReadSettings['listen']['tls'],
  refuse: Report,
): void {
  if (tls.certFile !== undefined && typeof address === 'object' && address.kind === 'unix') {
    refuse(`${group}.tls.certFile`, `is set, but ${group}.address is a unix socket, which speaks no TLS`)
  }
  if (tls.clientCaFile !== undefined && tls.certFile === undefined) {
    refuse(`${group}.tls.clientCaFile`, `needs ${group}.tls.certFile: clients show certificates over TLS only`)
  }
  reportKeyPair(`${group}.tls`, tls, refuse)
}

type Pair = Pick<ReadSettings['listen']['tls'], 'certFile' | 'keyFile'>

function reportKeyPair(group: string, pair: Pair, refuse: Report, keyName = 'keyFile'): void {
  const [certFile, keyFile] = [sound(pair.certFile), sound(pair.keyFile)]
  const [hasCertificate, hasKey] = [pair.certFile !== undefined, pair.keyFile !== undefined]
  const remedy = 'a certificate and its key belong together'
  if (hasCertificate && !hasKey) refuse(`${group}.certFile`, `needs ${group}.${keyName}: ${remedy}`)
  if (hasKey && !hasCertificate) refuse(`${group}.${keyName}`, `needs ${group}.certFile: ${remedy}`)
  if (certFile === undefined || keyFile === undefined || isPair(certFile.content, keyFile.content.reveal())) return
  refuse(`${group}.${keyName}`, `is no private key (PEM, not encrypted) of the certificate in ${group}.certFile`)
}

function isPair(cert: string, key: string): boolean {
  try {
    createSecureContext({ cert, key })
    // A context takes a certificate and a key of different algorithms.
    return new X509Certificate(cert).checkPrivateKey(createPrivateKey(key))
  } catch {
    return false
  }
}

/** A minter gives tokens away, so it has to know to whom, and nobody on the way may read them. */
function reportMinter({ minter, listen, callers }: ReadSettings, refuse: Report): void {
  const isMinter = minter.address !== undefined
  if (isMinter && minter.url !== undefined)
    refuse('minter.url', 'is set, and so is minter.address: an instance is one of the two')
  if (isMinter && sound(callers)?.some(({ tokens }) => sound(tokens)) === false)
    refuse('minter.address', 'needs a caller with tokens: true: all others get no token')
  if (isRemote(sound(minter.address)) && minter.tls.certFile === undefined) {
    refuse('minter.address', 'is open to other machines: set minter.tls.certFile, or use localhost or unix:/path')
  }
  if (!isMinter && minter.tls.certFile !== undefined) refuse('minter.tls.certFile', 'is set, but minter.address is not')
  if (listen.address !== 'off') return
  if (!isMinter) refuse('listen.address', 'is off, and minter.address is not set: nothing would listen')
  if (listen.tls.certFile !== undefined) refuse('listen.tls.certFile', 'is set, but listen.address is off')
}

/** What a sidecar shows to its minter. */
const CREDENTIALS = ['keyFile', 'jwtFile', 'certFile'] as const
const AS_APP = ['appId', 'appSecretFile', 'appSecret'] as const

function reportSidecar(settings: ReadSettings, refuse: Report): void {
  const { minter, fleet } = settings
  const url = sound(minter.url)
  const { keyFile: _, certKeyFile, ...pair } = minter
  reportKeyPair('minter', { ...pair, keyFile: certKeyFile }, refuse, 'certKeyFile')
  const given = CREDENTIALS.filter((name) => minter[name] !== undefined)
  if (minter.url === undefined) {
    for (const name of [...given, 'caFile'] as const) {
      if (minter[name] !== undefined)
        refuse(`minter.${name}`, 'is for a sidecar, which minter.url would make of this instance')
    }
    return
  }
  const also: string[] = AS_APP.filter((key) => settings[key] !== undefined)
  if ((sound(settings.appRoutes) ?? []).length > 0) also.push('appRoutes')
  if (fleet.store !== undefined) also.push('fleet.store')
  for (const key of also) refuse(key, 'is set, and so is minter.url: a sidecar of a minter cannot act as the App')
  if (settings.orgs.ids !== undefined)
    refuse('orgs.ids', 'is set, and so is minter.url: the minter needs it, not its sidecars')
  const [first, second] = given
  if (second !== undefined) refuse(`minter.${second}`, `is set, and so is minter.${first}: keep one`)
  // The caller's own socket says who it is.
  if (first === undefined && url !== undefined && url.socketPath === undefined) {
    refuse('minter.url', 'needs one of minter.keyFile, minter.jwtFile and minter.certFile, to say who this sidecar is')
  }
  const isSecure = url === undefined || url.baseUrl.protocol === 'https:'
  if (minter.certFile !== undefined && !isSecure) refuse('minter.certFile', 'needs an https minter.url')
  if (minter.caFile !== undefined && !isSecure) refuse('minter.caFile', 'needs an https minter.url')
}

function reportOrgIds({ orgs, tokens }: ReadSettings, refuse: Report): void {
  // If the pattern is invalid, the ids are still checked for characters that no pattern permits.
  const pattern = sound(orgs.pattern) ?? /^/
  const [allow = [], names, warm] = [sound(orgs.allow), sound(orgs.ids), sound(tokens.warm)]
  if (names?.size === 0) refuse('orgs.ids', 'is empty, so no Org would be accepted: name the Orgs, or remove it')
  const owners = new Map<OrgId, OrgId>()
  for (const [name, id] of names ?? []) {
    const named = `has ${quoted(name) || 'a name'}, which`
    if (parseOrgId(name, pattern) === undefined) refuse('orgs.ids', `${named} is not an org id (see orgs.pattern)`)
    if (parseOrgId(id, /^/) === undefined) refuse('orgs.ids', `${named} has an id with a character that no org id has`)
    if (owners.has(id)) refuse('orgs.ids', `${named} has the id of ${owners.get(id)}: give each Org one name`)
    owners.set(id, name)
  }
  for (const [key, ids = []] of Object.entries({ 'orgs.allow': allow, 'tokens.warm': warm })) {
    for (const id of ids) {
      const named = `has ${quoted(id) || 'an entry'}, which is not`
      if (parseOrgId(id, pattern) === undefined) refuse(key, `${named} an org id (see orgs.pattern)`)
      else if (allow.length > 0 && !allow.includes(id)) refuse(key, `${named} in orgs.allow`)
      else if (names?.has(id) === false) refuse(key, `${named} in orgs.ids`)
    }
  }
}

const KINDS = ['socket', 'minterSocket', 'keyFiles', 'jwt', 'certificate'] as const

/** A caller has exactly one kind of credential, and no credential may mean two callers. */
function reportCallers({ listen, admin, minter, ...rest }: ReadSettings, refuse: Report): void {
  const callers = sound(rest.callers) ?? []
  const owners = new Map<string, string>()
  for (const address of [listen.address, minter.address, admin.address]) {
    if (typeof address === 'object' && address.kind === 'unix') {
      owners.set(JSON.stringify(['socket', address.path]), 'the proxy itself')
    }
  }
  for (const [index, caller] of callers.entries()) {
    const at = `callers[${index}]`
    const name = sound(caller.name)
    const label = name === undefined ? at : `caller ${name}`
    if (KINDS.filter((kind) => caller[kind] !== undefined).length !== 1) {
      refuse(at, 'needs exactly one of socket, minterSocket, keyFiles, jwt and certificate')
    }
    if (
      caller.certificate !== undefined &&
      listen.tls.clientCaFile === undefined &&
      minter.tls.clientCaFile === undefined
    ) {
      refuse(`${at}.certificate`, 'needs listen.tls.clientCaFile: without it, nobody is asked for a certificate')
    }
    if (caller.socket !== undefined && listen.address === 'off')
      refuse(`${at}.socket`, 'is for apps, but listen.address is off')
    if (caller.minterSocket !== undefined && minter.address === undefined) {
      refuse(`${at}.minterSocket`, 'is for a sidecar, but minter.address is not set')
    }
    for (const { part, what, id } of identitiesOf(caller)) {
      const owner = owners.get(id)
      if (owner !== undefined) refuse(`${at}.${part}`, `${what} of ${owner}: give each caller its own`)
      owners.set(id, owner ?? label)
    }
  }
  if (callers.length > 0 && listen.callerKeyFile !== undefined) {
    refuse('listen.callerKeyFile', 'is set, and so is callers: make it a key file of a caller')
  }
}

type ReadCaller = Exclude<ReadSettings['callers'], typeof WRONG | undefined>[number]

/** The name of a caller and its credentials, each as an `id` that two callers must not share. */
function identitiesOf({ name, socket, minterSocket, keyFiles, jwt, certificate }: ReadCaller) {
  const identity = (part: string, what: string, ...values: readonly (string | typeof WRONG | undefined)[]) => {
    // No path is for two listeners.
    const kind = part === 'minterSocket' ? 'socket' : part
    return values.some((value) => sound(value) === undefined)
      ? []
      : [{ part, what, id: JSON.stringify([kind, ...values]) }]
  }
  const keys = new Set(sound(keyFiles)?.map(({ content }) => content.reveal()))
  return [
    ...identity('name', 'is the name', name),
    ...identity('socket', 'is the socket', socket),
    ...identity('minterSocket', 'is the socket', minterSocket),
    ...identity('certificate', 'is the certificate', certificate),
    ...[...keys].flatMap((key) => identity('keyFiles', 'hold a key', key)),
    ...identity('jwt', 'has the issuer, audience and subject', jwt?.issuer, jwt?.audience, jwt?.subject),
  ]
}

const USUAL_PATTERN = parseOrgPattern(DEFAULT_PATTERN).source

const AWAY =
  'is taken away, which may be a file that was cut short: complete the file, or restart to go on without this setting'

/**
 * Refuses a reload that takes a limit away altogether, or would need another listener. A file that was cut short is often still
 * valid YAML, so a missing list is not a permission.
 */
export function reportOpenings(running: ReadSettings, resulting: ReadSettings, refuse: Report): void {
  type List = readonly unknown[] | typeof WRONG | undefined
  const isGone = (before: List, after: List) => (sound(before) ?? []).length > 0 && sound(after)?.length === 0
  const isAway = (before: unknown, after: unknown) => before !== undefined && after === undefined
  const isUsual = ({ orgs }: ReadSettings) => sound(orgs.pattern)?.source === USUAL_PATTERN
  const lost = {
    callers: isGone(running.callers, resulting.callers),
    // The routes would go on with the token of an Org.
    appRoutes: isGone(running.appRoutes, resulting.appRoutes),
    'orgs.ids': isAway(running.orgs.ids, resulting.orgs.ids),
    'orgs.allow': isGone(running.orgs.allow, resulting.orgs.allow),
    'orgs.pattern': !isUsual(running) && isUsual(resulting),
    'routes.allow': isGone(running.routes.allow, resulting.routes.allow),
    'listen.callerKeyFile': isAway(running.listen.callerKeyFile, resulting.listen.callerKeyFile),
    'listen.tls.clientCaFile': isAway(running.listen.tls.clientCaFile, resulting.listen.tls.clientCaFile),
    // Apps could send these fields themselves.
    'origin.secretHeaders': isAway(running.origin.secretHeaders, resulting.origin.secretHeaders),
    'origin.caFile': isAway(running.origin.caFile, resulting.origin.caFile),
    // Every public CA would count for the minter.
    'minter.caFile': isAway(running.minter.caFile, resulting.minter.caFile),
    'minter.tls.clientCaFile': isAway(running.minter.tls.clientCaFile, resulting.minter.tls.clientCaFile),
  }
  for (const [key, isLost] of Object.entries(lost)) if (isLost) refuse(key, AWAY)
  const limited = (sound(running.callers) ?? []).filter(({ routes }) => (sound(routes) ?? []).length > 0)
  const limitedIds = new Set(limited.flatMap((caller) => identitiesOf(caller).map(({ id }) => id)))
  for (const [index, caller] of (sound(resulting.callers) ?? []).entries()) {
    // The name may be cut, too, so a caller that has kept a credential is the same.
    const wasLimited = identitiesOf(caller).some(({ id }) => limitedIds.has(id))
    if (wasLimited && sound(caller.routes)?.length === 0) refuse(`callers[${index}].routes`, AWAY)
  }
  for (const group of ['listen', 'minter'] as const) {
    const [before, after] = [running[group].tls.certFile, resulting[group].tls.certFile]
    if ((before === undefined) !== (after === undefined)) {
      refuse(`${group}.tls.certFile`, 'turns TLS on or off, which needs a restart')
    }
  }
}

/** The certificates that others check. */
function ownCertificates({ listen, origin, minter }: ReadSettings) {
  return {
    'listen.tls.certFile': sound(listen.tls.certFile),
    'origin.certFile': sound(origin.certFile),
    'minter.tls.certFile': sound(minter.tls.certFile),
    'minter.certFile': sound(minter.certFile),
  }
}

/** Refuses certificates that have ended; with `running`, only those that would replace one that is good, or none. */
export function reportEnded(settings: ReadSettings, refuse: Report, running?: ReadSettings): void {
  const before = new Map(Object.entries(running === undefined ? {} : ownCertificates(running)))
  for (const [key, file] of Object.entries(ownCertificates(settings))) {
    const endedAt = endOf(file)
    if (endedAt === undefined || endOf(before.get(key)) !== undefined) continue
    refuse(key, `has ended at ${endedAt}: put a new certificate into its file`)
  }
}

/** If it has ended: when that was. */
function endOf(file: Config['origin']['certFile']): string | undefined {
  if (file === undefined) return undefined
  const endsAt = Date.parse(new X509Certificate(file.content).validTo)
  return endsAt < clock.day() ? new Date(endsAt).toISOString() : undefined
}

function asksForCredential({ listen, callers }: Config): boolean {
  return listen.callerKeyFile !== undefined || callers.length > 0
}

const IN_THE_CLEAR =
  'sends keys and tokens in the clear, so whoever listens on the network becomes the caller: set listen.tls.certFile'

/** Choices that are permitted, but probably a mistake or a risk. */
export function reportRisks(config: Config, warn: Report): void {
  const { baseUrl, listen, admin, fleet, callers, tokens } = config
  const { store } = fleet
  const [, version = ''] = /^(\/v\d[\d.]*)\//.exec(tokens.endpoint.path) ?? []
  if (version !== '' && baseUrl.pathname.replace(/\/+$/, '').endsWith(version)) {
    const also = `and each path begins with ${version} as well`
    warn('baseUrl', `ends with ${version}, ${also}: remove it, unless the service has it twice`)
  }
  if (store?.kind === 'tcp' && !store.tls && !isLoopback(store.host)) {
    warn('fleet.store', 'is not encrypted, so the network can read the password of the store: use rediss://')
  }
  if (isRemote(listen.address) && !asksForCredential(config)) {
    const risk = 'is open to other machines, and anyone there acts as the App'
    warn('listen.address', `${risk}: set callers or listen.callerKeyFile`)
  }
  if (isRemote(listen.address) && listen.tls.certFile === undefined) {
    if (callers.some(({ keyFiles, jwt }) => keyFiles !== undefined || jwt !== undefined)) warn('callers', IN_THE_CLEAR)
    if (listen.callerKeyFile !== undefined) warn('listen.callerKeyFile', IN_THE_CLEAR)
  }
  if (locationOfCallers(config) === 'here' && admin.address !== 'off' && admin.address.kind === 'tcp') {
    const remedy = 'set it to a unix socket to see Orgs and purge tokens'
    warn('admin.address', `serves health and metrics only, because callers can reach it: ${remedy}`)
  }
}

/** Callers of listeners that are open to other machines are taken to be there, unless one has a socket on this one. */
export function locationOfCallers({ callers, listen, minter }: Config): 'none' | 'here' | 'elsewhere' {
  if (callers.length === 0) return 'none'
  const addresses = [listen.address, minter.address].filter((address) => typeof address === 'object')
  const areElsewhere = callers.every(({ socket = undefined, minterSocket = socket }) => minterSocket === undefined)
  return areElsewhere && addresses.every(isRemote) ? 'elsewhere' : 'here'
}

export function isRemote(address: ListenAddress | 'off' | undefined): boolean {
  return typeof address === 'object' && address.kind === 'tcp' && !isLoopback(address.host)
}
