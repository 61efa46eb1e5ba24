/**
 * The App's id with two secrets: that of the file, and the last one before it that is known to work. A changed secret is used
 * from the next call on. If the service answers 401 to one, the other is tried, and what works is kept. So a file that is
 * half-written or wrong, and a service that takes over the new secret later, cost no request.
 */

import { Secret } from '../secret.ts'

/** One secret, as the value of the `Authorization` field: the Basic scheme (RFC 7617), rendered once. */
export class AppKey extends Secret {
  readonly secret: Secret
  /** The last answer of the service to it was a 401. */
  isRejected = false

  constructor(appId: string, secret: Secret) {
    super(`Basic ${Buffer.from(`${appId}:${secret.reveal()}`).toString('base64')}`)
    this.secret = secret
  }
}

/** Of the secret of the file. While it is `rejected`, the one before it is in use, because the service accepts that. */
export type SecretState = 'loaded' | 'accepted' | 'rejected'

export class AppCredentials {
  readonly #onChange: (state: SecretState, inUse: Secret) => void
  #latest: AppKey
  #former: AppKey
  /** In use. */
  key: AppKey
  state: SecretState = 'accepted'
  wereAccepted = false

  constructor(key: AppKey, onChange = (_: SecretState, _inUse: Secret) => {}) {
    this.#onChange = onChange
    this.key = this.#former = this.#latest = key
  }

  /** Uses `key`, which has the file's secret, from now on. */
  offer(key: AppKey): void {
    if (this.#latest.equals(key)) return
    // Half a secret, read while its file was written, must not drive out one that works.
    const kept = this.state === 'accepted' ? this.#latest : this.#former
    this.#former = kept.equals(key) ? this.#latest : kept
    this.#latest = key
    this.#use(key, 'loaded')
  }

  /** Returns the key to try next; the same one if there is no other. */
  rejected(key: AppKey): AppKey {
    key.isRejected = true
    return key === this.#latest ? this.#former : this.#latest
  }

  accepted(key: AppKey): void {
    this.wereAccepted = true
    key.isRejected = false
    if (key === this.#latest) this.#use(key, 'accepted')
    // A call with the former secret may have begun before the change: it succeeds late, which is no news.
    else if (key === this.#former && this.#latest.isRejected) this.#use(key, 'rejected')
  }

  #use(key: AppKey, state: SecretState): void {
    if (key === this.key && state === this.state) return
    this.key = key
    this.state = state
    this.#onChange(state, key.secret)
  }
}
