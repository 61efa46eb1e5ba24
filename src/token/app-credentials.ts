/**
 * The App's id with two secrets: that of the file, and the last one before it that is known to work. A changed secret is used
 * from the next call on. If the service answers 401 to one, the other is tried, and what works is kept. So a file that is
 * half-written or wrong, and a service that takes over the new secret later, cost no request.
 */

import * as clock from '../clock.ts'
import type { Secret } from '../secret.ts'
import type { AppKey } from './app-key.ts'

/** Of the secret of the file. While it is `rejected`, the one before it is in use, because the service accepts that. */
export type SecretState = 'loaded' | 'accepted' | 'rejected'

/** After a new secret was accepted, some back ends of the service may still know only the one before. */
const SWITCH_MS = 10 * 60_000

export class AppCredentials {
  readonly #onChange: (state: SecretState, inUse: Secret) => void
  readonly #now: () => number
  #latest: AppKey
  #former: AppKey
  /** When the latest began to be accepted. */
  #acceptedAt: number | undefined
  /** In use. */
  key: AppKey
  state: SecretState = 'accepted'
  /** Any of them, since the start. */
  wereAccepted = false

  constructor(key: AppKey, onChange = (_: SecretState, _inUse: Secret) => {}, now = clock.now) {
    this.#onChange = onChange
    this.#now = now
    this.key = this.#former = this.#latest = key
  }

  /** Texts that nothing may repeat. */
  get secrets(): readonly Secret[] {
    return [this.#latest.secret, this.#former.secret]
  }

  /** Uses `key`, which has the file's secret, from now on. */
  offer(key: AppKey): void {
    if (isSame(this.#latest, key)) return
    // Half a secret, read while its file was written, must not drive out one that works.
    const kept = this.state === 'accepted' ? this.#latest : this.#former
    this.#former = isSame(kept, key) ? this.#latest : kept
    this.#latest = key
    this.#acceptedAt = undefined
    this.#use(key, 'loaded')
  }

  /**
   * The key to try after a 401 to all of `tried`, in their order; undefined if there is none. The order is new, former, new: a
   * service may begin to accept the new secret between the first two calls.
   */
  next(tried: readonly AppKey[]): AppKey | undefined {
    const untried = [this.#latest, this.#former].find((key) => !tried.includes(key) && this.#mayWork(key))
    if (untried !== undefined) return untried
    const [before, last] = tried.slice(-2)
    const mayHaveSwitched = this.#acceptedAt === undefined && before === this.#latest && last === this.#former
    return mayHaveSwitched && tried.filter((key) => key === before).length === 1 ? before : undefined
  }

  #mayWork(key: AppKey): boolean {
    return key === this.#latest || this.#acceptedAt === undefined || this.#now() - this.#acceptedAt < SWITCH_MS
  }

  rejected(key: AppKey): void {
    key.isRejected = true
  }

  accepted(key: AppKey): void {
    this.wereAccepted = true
    key.isRejected = false
    if (key === this.#latest) {
      this.#acceptedAt ??= this.#now()
      this.#use(key, 'accepted')
    }
    // A call with the former secret may have begun before the change: it succeeds late, which is no news.
    else if (key === this.#former && this.#latest.isRejected) {
      this.#acceptedAt = undefined
      this.#use(key, 'rejected')
    }
  }

  #use(key: AppKey, state: SecretState): void {
    if (key === this.key && state === this.state) return
    this.key = key
    this.state = state
    this.#onChange(state, key.secret)
  }
}

function isSame(one: AppKey, other: AppKey): boolean {
  return one.secret.equals(other.secret)
}
