/** Reads what the settings name: the secret, keys, passwords, certificates, key sets and proxies. */

import { X509Certificate } from 'node:crypto'
import type { CallerRule } from '../callers/caller-rule.ts'
import type { Secret } from '../secret.ts'
import type { ProxyVariables } from '../undici.ts'
import { type FileContent, FileUnreadable, readRegularFile } from '../watched-file.ts'
import { readCallers } from './callers.ts'
import type { Draft } from './draft.ts'
import { type Environment, readProxyVariables } from './environment.ts'
import { matchesInTime, SLOW_PATTERN } from './org-pattern.ts'
import { describeProblem, type Remark, Unsuitable } from './problem.ts'
import { checkCallerKey, hasOuterWhiteSpace, OUTER_WHITE_SPACE, parseSecret, parseSecretBytes } from './secret-text.ts'
import { DEFAULT_PATTERN, parseOrgPattern } from './setting-parsers.ts'

const DEFAULT_ORG_PATTERN = parseOrgPattern(DEFAULT_PATTERN)

/** Twenty times the size of the bundle that operating systems ship. */
export const MAX_CERTIFICATE_FILE_BYTES = 4 * 1_048_576

const MISSING_SECRET = 'is required: name the file that holds the App secret, or set OAP_APP_SECRET'

/** A value is undefined if it is not set, or if it could not be read: the draft then has the problem. */
export interface Attachments {
  readonly appSecret: Secret | undefined
  readonly callers: readonly CallerRule[]
  readonly callerKey: Secret | undefined
  readonly caCertificates: string | undefined
  readonly fleetCaCertificates: string | undefined
  readonly fleetPassword: Secret | undefined
  readonly proxies: ProxyVariables | undefined
  readonly warnings: readonly string[]
}

export async function readAttachments(draft: Draft, env: Environment): Promise<Attachments> {
  const reader = new AttachmentReader(draft)
  await reader.tryOrgPattern()
  return {
    appSecret: await reader.readAppSecret(),
    callers: await readCallers(draft, reader),
    callerKey: await reader.readCallerKey(),
    caCertificates: await reader.readCertificates('origin.caFile'),
    fleetCaCertificates: await reader.readCertificates('fleet.caFile'),
    fleetPassword: await reader.readFleetPassword(),
    proxies: draft.values['origin.proxyFromEnv']
      ? await reader.attempt({ key: 'origin.proxyFromEnv' }, () => readProxyVariables(env))
      : undefined,
    warnings: reader.warnings,
  }
}

/** The setting, or part of one, that names what is read. */
export type Place = Omit<Remark, 'message'>

export class AttachmentReader {
  readonly warnings: string[] = []
  readonly #draft: Draft

  constructor(draft: Draft) {
    this.#draft = draft
  }

  /** A pattern that backtracks would let one request stop the process. */
  async tryOrgPattern(): Promise<void> {
    const pattern = this.#draft.values['orgs.pattern']
    // The trial starts a thread, which the default does not need.
    if (pattern === undefined || pattern.source === DEFAULT_ORG_PATTERN.source) return
    if (await matchesInTime(pattern)) return
    this.#draft.report({ key: 'orgs.pattern', message: SLOW_PATTERN })
  }

  async readAppSecret(): Promise<Secret | undefined> {
    const { appSecret, appSecretFile } = this.#draft.values
    if (appSecret === undefined) {
      if (appSecretFile !== undefined) return this.#readSecret({ key: 'appSecretFile' }, readRegularFile(appSecretFile))
      // A secret in the wrong place is not a missing secret.
      if (!this.#draft.hasProblemWith('appSecret')) this.#draft.reportMissing('appSecretFile', MISSING_SECRET)
      return undefined
    }
    const place: Place = { key: 'appSecret' }
    if (appSecretFile !== undefined) {
      this.#draft.report({ ...place, message: 'is set, and so is appSecretFile: keep one, better the file' })
    }
    this.warn(place, 'is in the environment, which other processes may read: use appSecretFile')
    return this.attempt(place, () => {
      const secret = parseSecret(appSecret)
      if (hasOuterWhiteSpace(secret)) this.warn(place, OUTER_WHITE_SPACE)
      return secret
    })
  }

  async readCallerKey(): Promise<Secret | undefined> {
    const path = this.#draft.values['listen.callerKeyFile']
    return path === undefined ? undefined : this.readKeyFile({ key: 'listen.callerKeyFile' }, path)
  }

  /** A key for `X-Proxy-Key`. */
  async readKeyFile(place: Place, path: string): Promise<Secret | undefined> {
    const key = await this.#readSecret(place, this.read(path))
    return key === undefined ? undefined : this.attempt(place, () => checkCallerKey(key))
  }

  async readFleetPassword(): Promise<Secret | undefined> {
    const path = this.#draft.values['fleet.passwordFile']
    return path === undefined ? undefined : this.#readSecret({ key: 'fleet.passwordFile' }, readRegularFile(path))
  }

  async readCertificates(key: 'origin.caFile' | 'fleet.caFile'): Promise<string | undefined> {
    const path = this.#draft.values[key]
    return path === undefined ? undefined : this.readCertificateFile({ key }, path)
  }

  /** Returns PEM. */
  readCertificateFile(place: Place, path: string): Promise<string | undefined> {
    return this.attempt(place, async () => {
      const { bytes } = await this.read(path, MAX_CERTIFICATE_FILE_BYTES)
      return parseCertificates(bytes.toString('latin1'))
    })
  }

  async attempt<T>(place: Place, read: () => T | Promise<T>): Promise<T | undefined> {
    try {
      return await read()
    } catch (error) {
      if (!(error instanceof Unsuitable) && !(error instanceof FileUnreadable)) throw error
      this.#draft.report({ ...place, message: error.message })
      return undefined
    }
  }

  /** Reads a file that a reload depends on. The App secret and the fleet's password have watchers of their own. @throws {FileUnreadable} */
  async read(path: string, maxBytes?: number): Promise<FileContent> {
    this.#draft.files.set(path, undefined)
    const content = await readRegularFile(path, maxBytes)
    this.#draft.files.set(path, content.bytes)
    return content
  }

  async #readSecret(place: Place, reading: Promise<FileContent>): Promise<Secret | undefined> {
    return this.attempt(place, async () => {
      const { bytes, mode } = await reading
      const secret = parseSecretBytes(bytes)
      if (hasOuterWhiteSpace(secret)) this.warn(place, OUTER_WHITE_SPACE)
      if ((mode & 0o077) !== 0) this.warn(place, 'can be read by other users of this machine: chmod 600 prevents that')
      return secret
    })
  }

  warn(place: Place, message: string): void {
    this.warnings.push(describeProblem(this.#draft.locate({ ...place, message })))
  }
}

const CERTIFICATE = /-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g

/**
 * Returns the certificates of the text in PEM. Checks them at start, because TLS ignores a certificate that it cannot read.
 * @throws {Unsuitable}
 */
function parseCertificates(text: string): string {
  const certificates = text.match(CERTIFICATE) ?? []
  if (certificates.length === 0) throw new Unsuitable('contains no "-----BEGIN CERTIFICATE-----": give a PEM file')
  if (!certificates.every(isReadable)) throw new Unsuitable('contains a certificate that cannot be read')
  return `${certificates.join('\n')}\n`
}

function isReadable(certificate: string): boolean {
  try {
    return new X509Certificate(certificate).raw.length > 0
  } catch {
    return false
  }
}
