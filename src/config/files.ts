/** The settings that name a file, as zod schemas that read and check it: secrets, keys, certificates. */

import { createPrivateKey, X509Certificate } from 'node:crypto'
import { z } from 'zod'
import { type KeySet, KeySetInvalid, parseKeySet } from '../callers/jwt.ts'
import { Redacted, Secret } from '../secret.ts'
import { algorithmsOf, isPem, type ProofSettings, usesPrivateKey } from '../token/app-key.ts'
import { digestOf, FileUnreadable, MAX_FILE_BYTES, readRegularFile } from '../watched-file.ts'
import { Unsuitable } from './problem.ts'
import { text } from './types.ts'

/** A file as it was when the configuration was loaded. */
export class ReadFile<T> extends Redacted {
  readonly path: string
  readonly digest: string
  readonly content: T
  /** Other users may read it. */
  readonly isExposed: boolean

  constructor(path: string, content: T, bytes: Buffer, mode: number) {
    super()
    this.path = path
    this.content = content
    this.digest = digestOf(bytes)
    this.isExposed = (mode & 0o077) !== 0
  }
}

/** Twenty times the size of the bundle that operating systems ship. */
const MAX_CERTIFICATE_FILE_BYTES = 4 * 1_048_576

/** The type of every path, so that `load.ts` knows what to resolve. */
export const PATH = text()

/** An issue has the path, so that a reload can wait for another content. Its message has not: it may be a secret. */
async function read<T>(
  path: string,
  context: z.RefinementCtx,
  parse: (bytes: Buffer) => T,
  maxBytes = MAX_FILE_BYTES,
): Promise<ReadFile<T>> {
  try {
    const { bytes, mode } = await readRegularFile(path, maxBytes)
    return new ReadFile(path, parse(bytes), bytes, mode)
  } catch (error) {
    const isExpected = [Unsuitable, FileUnreadable, KeySetInvalid].some((type) => error instanceof type)
    if (!(error instanceof Error && isExpected)) throw error
    context.addIssue({ code: 'custom', message: error.message, params: { path } })
    return z.NEVER
  }
}

function file<T>(parse: (bytes: Buffer) => T, maxBytes?: number) {
  return PATH.transform((path, context) => read(path, context, parse, maxBytes))
}

export const secretFile = () => file(parseSecretBytes).optional()

export const appSecretFile = () => file((bytes) => parseAppSecret(textOf(bytes))).optional()

/** Values of fields, each in a file of its own. */
export const secretHeaders = () =>
  z
    .record(
      z.string(),
      file(parseFieldValue),
      'is not a mapping of field names and files: only a config file can hold one',
    )
    .optional()

/** For `X-Proxy-Key`. */
export const keyFile = () => file(parseKey).optional()

/** It could also be read as a JWT, and one credential must not have two meanings. */
export const callerKeyFile = () =>
  file((bytes) => {
    const key = parseKey(bytes)
    if (/^[\w-]+\.[\w-]+\.[\w-]*$/.test(key.reveal())) throw new Unsuitable('holds a JWT, not a key: use jwt instead')
    return key
  })

export const jwtFile = () => file(parseJwt).optional()

/** @throws {Unsuitable} */
function parseJwt(bytes: Uint8Array): Secret {
  const jwt = parseKey(bytes)
  if (/^[\w-]+\.[\w-]+\.[\w-]+$/.test(jwt.reveal())) return jwt
  throw new Unsuitable('holds no signed JWT: three parts with a dot between them')
}

export const certificatesFile = () => file(parseCertificates, MAX_CERTIFICATE_FILE_BYTES).optional()

/** Of clients: Node's servers verify a chain up to its root, and trust none that ends before. */
export const clientCaFile = () => file(parseClientCas, MAX_CERTIFICATE_FILE_BYTES).optional()

export const privateKeyFile = () => file(parsePrivateKey).optional()

/** A file, or an https URL. With plain http, anybody on the network could replace the keys and sign tokens as the caller. */
export const keySetLocation = () =>
  PATH.transform(async (location, context): Promise<ReadFile<KeySet> | string> => {
    if (!isUrl(location)) return read(location, context, (bytes) => parseKeySet(bytes.toString('utf8')))
    const url = location.startsWith('https://') && URL.canParse(location) ? new URL(location) : undefined
    if (url === undefined) context.addIssue('is not a file or an https URL')
    else if (url.username !== '' || url.password !== '' || url.hash !== '') {
      context.addIssue('has a user, a password or a fragment: use jwksTokenFile for a credential')
    }
    return location
  })

/** `https://…`, and not a path. */
export function isUrl(location: string): boolean {
  return /^[a-z][a-z0-9+.-]*:\/\//i.test(location)
}

/** @throws {Unsuitable} */
function parseSecretBytes(bytes: Uint8Array): Secret {
  return parseSecret(textOf(bytes))
}

function textOf(bytes: Uint8Array): string {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes)
  } catch {
    throw new Unsuitable('is not UTF-8 text: it may be only half written')
  }
}

/** One line of text. One trailing newline is dropped. @throws {Unsuitable} */
function parseSecret(text: string): Secret {
  const value = text.replace(/\r?\n$/, '')
  if (value.trim() === '') throw new Unsuitable('is empty: put the secret into it')
  if (/\p{Cc}/u.test(value)) throw new Unsuitable('has a second line, or is not text: put only the secret into it')
  return new Secret(value)
}

/** One line, or a private key. @throws {Unsuitable} */
export function parseAppSecret(text: string): Secret {
  return isPem(new Secret(text)) ? parseSigningKey(text) : parseSecret(text)
}

/** With the certificate of the key, if one is beside it. The same text, however its file ends its lines: a fleet derives its key from it. */
function parseSigningKey(text: string): Secret {
  const keys =
    readPem(Buffer.from(text)).match(/-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]+?-----END [A-Z ]*-----/g) ?? []
  if (keys.length !== 1) throw new Unsuitable('contains no private key, or more than one: keep one, in PEM')
  const certificates = text.match(CERTIFICATE) ?? []
  const own = certificates.filter((pem) => isCertificateOf(pem, keys[0] ?? '')).slice(0, 1)
  if (certificates.length > 0 && own.length === 0) {
    throw new Unsuitable('has a certificate that is not the one of its private key: put that there, or take it out')
  }
  return new Secret([...keys, ...own, ''].join('\n').replaceAll('\r', ''))
}

function isCertificateOf(pem: string, key: string): boolean {
  try {
    return new X509Certificate(pem).checkPrivateKey(createPrivateKey(key))
  } catch {
    return false
  }
}

/** What a file holds by which the App proves itself. @throws {Unsuitable} */
export function parseAppSecretFor(
  tokens: ProofSettings & { readonly assertionFile?: unknown },
  bytes: Uint8Array,
): Secret {
  if (tokens.assertionFile !== undefined) return parseJwt(bytes)
  const secret = parseAppSecret(textOf(bytes))
  const problem = unfitFor(tokens, secret)
  if (problem !== undefined) throw new Unsuitable(problem)
  return secret
}

/** Why the App cannot prove itself in this way with this secret; undefined if it can. */
export function unfitFor({ auth, assertion }: ProofSettings, secret: Secret): string | undefined {
  if (!usesPrivateKey(auth)) {
    return isPem(secret) ? `holds a private key, but tokens.auth is ${auth}: set it to jwt or assertion` : undefined
  }
  const able = algorithmsOf(secret)
  const { algorithm = able[0] } = assertion ?? {}
  if (able.length > 0 && algorithm !== undefined && !able.includes(algorithm)) {
    return `cannot sign with tokens.assertion.algorithm: ${algorithm}, but with ${able.join(' or ')}`
  }
  if (able.length > 0) return undefined
  return `is no private key that can sign for tokens.auth: ${auth}: give a PEM file, not encrypted, of RSA (2048 bits or more), P-256 or Ed25519`
}

/** It loses no blanks on its way, and ends no line (RFC 9110 §5.5). */
function parseFieldValue(bytes: Buffer): Secret {
  const value = parseSecretBytes(bytes)
  if (/^[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?$/.test(value.reveal())) return value
  throw new Unsuitable(
    'begins or ends with a blank, or has a character that is not visible ASCII: no field can carry it',
  )
}

/** For `X-Proxy-Key`: a field value loses the blanks at its ends (RFC 9110 §5.5). */
function parseKey(bytes: Uint8Array): Secret {
  const key = parseSecretBytes(bytes)
  if (/^[\x21-\x7e]+$/.test(key.reveal())) return key
  throw new Unsuitable('contains blanks or non-ASCII: use visible ASCII only, because the key is sent in a field')
}

const CERTIFICATE = /-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g

/** Returns PEM. Each certificate is checked here, because TLS ignores one that it cannot read. */
function parseCertificates(bytes: Buffer): string {
  const certificates = readPem(bytes).match(CERTIFICATE) ?? []
  if (certificates.length === 0) throw new Unsuitable('contains no "-----BEGIN CERTIFICATE-----": give a PEM file')
  try {
    for (const certificate of certificates) new X509Certificate(certificate)
  } catch {
    throw new Unsuitable('contains a certificate that cannot be read')
  }
  return `${certificates.join('\n')}\n`
}

function parseClientCas(bytes: Buffer): string {
  const certificates = parseCertificates(bytes)
  const hasRoot = (certificates.match(CERTIFICATE) ?? []).some((pem) => {
    const { subject, issuer } = new X509Certificate(pem)
    return subject === issuer
  })
  if (hasRoot) return certificates
  throw new Unsuitable('contains intermediates only: no client would be trusted; add the root that issued them')
}

/** `relations.ts` checks that it fits its certificate. Node takes an empty key for none at all. */
function parsePrivateKey(bytes: Buffer): Secret {
  const pem = readPem(bytes)
  if (!/-----BEGIN [A-Z ]*PRIVATE KEY-----/.test(pem)) throw new Unsuitable('contains no private key: give a PEM file')
  return new Secret(pem)
}

/** Refuses a file that was cut: it would be read as one with fewer blocks. */
function readPem(bytes: Buffer): string {
  const pem = bytes.toString('latin1')
  const marksOf = (mark: RegExp) => pem.match(mark)?.length ?? 0
  if (marksOf(/-----BEGIN/g) === marksOf(/-----END [^-\r\n]+-----/g)) return pem
  throw new Unsuitable('has a block that begins and does not end: the file may be only half written')
}
