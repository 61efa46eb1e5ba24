/** The App's id and secret, rendered once for the Basic scheme (RFC 7617). */

import { Redacted, type Secret } from '../secret.ts'

export class AppCredentials extends Redacted {
  readonly #appId: string
  #secret: Secret
  #authorization: string

  constructor(appId: string, secret: Secret) {
    super()
    this.#appId = appId
    this.#secret = secret
    this.#authorization = renderBasic(appId, secret)
  }

  /** The value of the `Authorization` field. */
  authorization(): string {
    return this.#authorization
  }

  replace(secret: Secret): void {
    this.#secret = secret
    this.#authorization = renderBasic(this.#appId, secret)
  }

  /** The same App with another secret, to try it out. */
  withSecret(secret: Secret): AppCredentials {
    return new AppCredentials(this.#appId, secret)
  }

  holds(secret: Secret): boolean {
    return this.#secret.equals(secret)
  }
}

function renderBasic(appId: string, secret: Secret): string {
  return `Basic ${Buffer.from(`${appId}:${secret.reveal()}`, 'utf8').toString('base64')}`
}
