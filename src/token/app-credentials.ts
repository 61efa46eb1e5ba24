/**
 * The App's id with two secrets: the one in use, and the one before it. A changed secret is used from the next call on. If the
 * service answers 401 to one, the other is tried, and what works is kept. So a file that is half-written or wrong, and a service
 * that takes over the new secret later, cost no request.
 */

import { Redacted, Secret } from '../secret.ts'

/** One secret, as the value of the `Authorization` field: the Basic scheme (RFC 7617), rendered once. */
export class AppKey extends Secret {
  readonly secret: Secret
  wasAccepted = false
  /** The last answer of the service to it was a 401. */
  isRejected = false

  constructor(appId: string, secret: Secret) {
    super(`Basic ${Buffer.from(`${appId}:${secret.reveal()}`, 'utf8').toString('base64')}`)
    this.secret = secret
  }
}

export interface AppCredentialsObserver {
  secretSwitched?(secret: Secret): void
  /** What the service said to the secret that was offered last. Told once for each change. */
  secretJudged?(outcome: 'accepted' | 'rejected'): void
}

export class AppCredentials extends Redacted {
  readonly #appId: string
  readonly #observer: AppCredentialsObserver
  /** To be used now. */
  key: AppKey
  #former: AppKey | undefined
  /** The key of the secret that was offered last. */
  #latest: AppKey
  /** Of the secret that was offered last. While it is `rejected`, the one before it is in use. */
  judgement: 'accepted' | 'rejected' | undefined = 'accepted'

  constructor(appId: string, secret: Secret, observer: AppCredentialsObserver = {}) {
    super()
    this.#appId = appId
    this.#observer = observer
    this.key = new AppKey(appId, secret)
    this.#latest = this.key
  }

  get wereAccepted(): boolean {
    return this.key.wasAccepted || this.#former?.wasAccepted === true
  }

  /** The secret of the file, to be used from now on. Returns false if it is no other than the last time. */
  offer(secret: Secret): boolean {
    if (this.#latest.secret.equals(secret)) return false
    const known = [this.key, this.#former].find((key) => key?.secret.equals(secret))
    this.#latest = known ?? new AppKey(this.#appId, secret)
    this.judgement = undefined
    this.#use(this.#latest)
    return true
  }

  /** Returns the key to try next. */
  rejected(key: AppKey): AppKey | undefined {
    key.isRejected = true
    return key === this.key ? this.#former : this.key
  }

  accepted(key: AppKey): void {
    key.wasAccepted = true
    key.isRejected = false
    if (key === this.#former && this.key.isRejected) this.#use(key)
    const judgement = key === this.#latest ? 'accepted' : 'rejected'
    if (judgement === this.judgement || (judgement === 'rejected' && !this.#latest.isRejected)) return
    this.judgement = judgement
    this.#observer.secretJudged?.(judgement)
  }

  #use(key: AppKey): void {
    const former = this.key
    if (key === former) return
    // Half a secret, read while its file was written, must not drive out one that works.
    if (former.wasAccepted || this.#former === undefined || this.#former === key) this.#former = former
    this.key = key
    this.#observer.secretSwitched?.(key.secret)
  }
}
