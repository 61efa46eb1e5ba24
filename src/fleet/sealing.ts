/**
 * Seals the tokens that the replicas of one App put into the store, so that the store learns nothing from them. Every key is
 * derived from the App secret: the names of keys, the marks by which tokens are told apart, and one sealing key for each org.
 * Pure: values in, values out.
 */

import { createCipheriv, createDecipheriv, hkdfSync, randomBytes } from 'node:crypto'
import { Redacted, type Secret } from '../secret.ts'

export interface FleetIdentity {
  readonly appId: string
  /** Origin and path prefix of the service. */
  readonly baseUrl: string
  /** The declaration of the token request. Another one gets other tokens. */
  readonly tokenRequest: string
  readonly appSecret: Secret
}

/** Changes when the meaning of what is stored changes: replicas of two formats do not see each other's tokens. */
const FORMAT = 'org-access-proxy fleet 7'
const CIPHER = 'aes-256-gcm'
const KEY_BYTES = 32
/** NIST SP 800-38D §8.2.2: with random nonces of this length a key may seal 2^32 texts. One org never gets there. */
const NONCE_BYTES = 12
const TAG_BYTES = 16
/** 132 bits in base64url: no two orgs share a name by chance. */
const NAME_LENGTH = 22

export class FleetKeys extends Redacted {
  readonly #root: Buffer

  constructor({ appId, baseUrl, tokenRequest, appSecret }: FleetIdentity) {
    super()
    this.#root = derived(appSecret.reveal(), appId, baseUrl, tokenRequest)
  }

  nameOf(org: string): string {
    return this.#hash('name', org)
  }

  /** Tells whether two tokens of an org are the same, without telling the token. */
  markOf(org: string, token: string): string {
    return this.#hash('mark', org, token)
  }

  /** The key authenticates the format, the App, the base URL, the token request and the org. */
  seal(org: string, content: string): string {
    const nonce = randomBytes(NONCE_BYTES)
    const cipher = createCipheriv(CIPHER, derived(this.#root, 'seal', org), nonce, { authTagLength: TAG_BYTES })
    return Buffer.concat([nonce, cipher.update(content), cipher.final(), cipher.getAuthTag()]).toString('base64')
  }

  /** Undefined for a text that was not sealed for this org under this secret. Never throws. */
  open(org: string, text: string): string | undefined {
    const sealed = Buffer.from(text, 'base64')
    // Base64 has more than one spelling of the same octets, and Node skips what it cannot read.
    if (sealed.length < NONCE_BYTES + TAG_BYTES || sealed.toString('base64') !== text) return undefined
    const nonce = sealed.subarray(0, NONCE_BYTES)
    const decipher = createDecipheriv(CIPHER, derived(this.#root, 'seal', org), nonce, { authTagLength: TAG_BYTES })
    decipher.setAuthTag(sealed.subarray(-TAG_BYTES))
    try {
      return Buffer.concat([decipher.update(sealed.subarray(NONCE_BYTES, -TAG_BYTES)), decipher.final()]).toString()
    } catch {
      return undefined
    }
  }

  #hash(...parts: string[]): string {
    return derived(this.#root, ...parts)
      .toString('base64url')
      .slice(0, NAME_LENGTH)
  }
}

/**
 * HKDF-SHA-256 (RFC 5869). The App secret is random, so no slow hash is needed: see docs/security.md. No two lists of parts
 * have the same JSON.
 */
function derived(key: string | Buffer, ...parts: string[]): Buffer {
  return Buffer.from(hkdfSync('sha256', key, FORMAT, JSON.stringify(parts), KEY_BYTES))
}
