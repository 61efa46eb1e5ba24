/**
 * Seals the values that the replicas of one App put into the store, so that the store learns nothing from them. Every key is
 * derived from the App secret: the names of keys, the marks by which tokens are told apart, and one sealing key for each kind
 * and org. Pure: values in, values out.
 */

import { createCipheriv, createDecipheriv, createHmac, hkdfSync, randomBytes } from 'node:crypto'
import type { OrgId } from '../http/org-id.ts'
import { Redacted, type Secret } from '../secret.ts'

export interface FleetIdentity {
  readonly appId: string
  /** Origin and path prefix of the service. */
  readonly baseUrl: string
  readonly appSecret: Secret
}

/** The kinds of sealed texts. One kind never opens as another. */
export type SealedKind = 'token' | 'refusal' | 'lifetime' | 'limit' | 'purge'

/** Changes when the meaning of what is stored changes: replicas of two formats do not see each other. */
const FORMAT = 'org-access-proxy fleet 1'
const KEY_BYTES = 32
/** GCM, NIST SP 800-38D §8.2.2: with random nonces of this length a key may seal 2^32 texts. One org never gets there. */
const NONCE_BYTES = 12
const TAG_BYTES = 16
/** 132 bits in base64url: no two orgs share a name by chance. */
const NAME_LENGTH = 22

export class FleetKeys extends Redacted {
  readonly #root: Buffer
  readonly #nameKey: Buffer
  readonly #markKey: Buffer
  readonly #identity: Buffer
  /** Stands in the names of the keys that belong to all orgs together. */
  readonly appName: string

  constructor({ appId, baseUrl, appSecret }: FleetIdentity) {
    super()
    this.#identity = joined(FORMAT, appId, baseUrl)
    this.#root = derived(Buffer.from(appSecret.reveal(), 'utf8'), this.#identity)
    this.#nameKey = derived(this.#root, joined('names'))
    this.#markKey = derived(this.#root, joined('marks'))
    this.appName = this.#name(joined('app'))
  }

  /** Stands in the names of the org's keys. */
  orgName(org: OrgId): string {
    return this.#name(joined('org', org))
  }

  /** Tells whether two tokens of an org are the same, without telling the token. */
  markOf(org: OrgId, token: string): string {
    return shortened(createHmac('sha256', this.#markKey).update(joined(org, token)).digest())
  }

  /** `org` is undefined for a value that belongs to all orgs. */
  seal(kind: SealedKind, org: OrgId | undefined, content: Buffer): string {
    const nonce = randomBytes(NONCE_BYTES)
    const cipher = createCipheriv('aes-256-gcm', this.#sealingKey(kind, org), nonce, { authTagLength: TAG_BYTES })
    cipher.setAAD(this.#authenticated(kind, org))
    const sealed = Buffer.concat([nonce, cipher.update(content), cipher.final(), cipher.getAuthTag()])
    return sealed.toString('base64')
  }

  /** Undefined for a text that was not sealed as this kind, for this org, under this secret. Never throws. */
  open(kind: SealedKind, org: OrgId | undefined, text: string): Buffer | undefined {
    const sealed = Buffer.from(text, 'base64')
    // Base64 has more than one spelling of the same octets, and Node skips what it cannot read.
    if (sealed.length < NONCE_BYTES + TAG_BYTES || sealed.toString('base64') !== text) return undefined
    const nonce = sealed.subarray(0, NONCE_BYTES)
    const decipher = createDecipheriv('aes-256-gcm', this.#sealingKey(kind, org), nonce, { authTagLength: TAG_BYTES })
    decipher.setAAD(this.#authenticated(kind, org))
    decipher.setAuthTag(sealed.subarray(-TAG_BYTES))
    try {
      return Buffer.concat([decipher.update(sealed.subarray(NONCE_BYTES, -TAG_BYTES)), decipher.final()])
    } catch {
      return undefined
    }
  }

  #name(subject: Buffer): string {
    return shortened(createHmac('sha256', this.#nameKey).update(subject).digest())
  }

  #sealingKey(kind: SealedKind, org: OrgId | undefined): Buffer {
    return derived(this.#root, joined('seal', kind, org === undefined ? 'all' : 'one', org ?? ''))
  }

  #authenticated(kind: SealedKind, org: OrgId | undefined): Buffer {
    return Buffer.concat([this.#identity, joined(kind, org === undefined ? 'all' : 'one', org ?? '')])
  }
}

/** HKDF-SHA-256 (RFC 5869). The App secret is random, so no slow hash is needed: see docs/security.md. */
function derived(key: Buffer, info: Buffer): Buffer {
  return Buffer.from(hkdfSync('sha256', key, FORMAT, info, KEY_BYTES))
}

/** Each part behind its length, so that no two lists of parts join to the same octets. */
function joined(...parts: string[]): Buffer {
  return Buffer.concat(
    parts.flatMap((part) => {
      const octets = Buffer.from(part, 'utf8')
      const length = Buffer.alloc(4)
      length.writeUInt32BE(octets.length)
      return [length, octets]
    }),
  )
}

function shortened(digest: Buffer): string {
  return digest.toString('base64url').slice(0, NAME_LENGTH)
}
