/**
 * The App's id with two secrets: that of the file, and the last one before it that is known to work. A changed secret is used
 * from the next call on. If the service answers 401 to one, the other is tried, and what works is kept. So a file that is
 * half-written or wrong, and a service that takes over the new secret later, cost no request.
 */

import { Redacted, Secret } from '../secret.ts'

/** One secret, as the value of the `Authorization` field: the Basic scheme (RFC 7617), rendered once. */
export class AppKey extends Secret {
  readonly secret: Secret

  constructor(appId: string, secret: Secret) {
    super(`Basic ${Buffer.from(`${appId}:${secret.reveal()}`, 'utf8').toString('base64')}`)
    this.secret = secret
  }
}

/** Of the secret of the file. While it is `rejected`, the one before it is in use, because the service accepts that. */
export type SecretState = 'loaded' | 'accepted' | 'rejected'

export class AppCredentials extends Redacted {
  readonly #appId: string
  readonly #onChange: (state: SecretState, inUse?: Secret) => void
  #latest: AppKey
  #former: AppKey | undefined
  state: SecretState = 'accepted'
  /** The last answer of the service to the secret of the file was a 401. */
  isRejected = false
  /** The service has accepted some secret. */
  wereAccepted = false

  /** `inUse` is the secret that is used from now on, if it is another one. */
  constructor(appId: string, secret: Secret, onChange = (_: SecretState, _inUse?: Secret) => {}) {
    super()
    this.#appId = appId
    this.#onChange = onChange
    this.#latest = new AppKey(appId, secret)
  }

  /** To be used now. */
  get key(): AppKey {
    return this.state === 'rejected' && this.#former !== undefined ? this.#former : this.#latest
  }

  /** The secret of the file, to be used from now on. */
  offer(secret: Secret): void {
    if (this.#latest.secret.equals(secret)) return
    // Half a secret, read while its file was written, must not drive out one that works.
    const kept = this.state === 'accepted' ? this.#latest : this.#former
    this.#former = kept?.secret.equals(secret) ? this.#latest : kept
    this.#latest = new AppKey(this.#appId, secret)
    this.isRejected = false
    this.state = 'loaded'
    this.#onChange('loaded', secret)
  }

  /** Returns the key to try next. */
  rejected(key: AppKey): AppKey | undefined {
    if (key !== this.#latest) return this.#latest
    this.isRejected = true
    return this.#former
  }

  accepted(key: AppKey): void {
    this.wereAccepted = true
    if (key === this.#latest) this.isRejected = false
    // A call with the former secret may have begun before the change: it succeeds late, which is no news.
    else if (key !== this.#former || !this.isRejected) return
    const state = key === this.#latest ? 'accepted' : 'rejected'
    if (state === this.state) return
    const isInUse = key === this.key
    this.state = state
    this.#onChange(state, isInUse ? undefined : key.secret)
  }
}
