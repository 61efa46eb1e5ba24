/**
 * The way of a request that goes as the bare App: what `RequestToken` is for those of an Org, with proofs of the App. The App has two
 * secrets: after a 401 to one, the request is repeated with the other, once.
 */

import assert from 'node:assert/strict'
import type { ReceivedResponse } from '../http1/response-parser.ts'
import type { AppCredentials } from '../token/app-credentials.ts'
import type { AppProof } from '../token/app-key.ts'
import type { SecretFields } from './secret-fields.ts'

const UNAUTHORIZED = 401

export class AppCredential {
  readonly #credentials: AppCredentials
  readonly #audience: string
  readonly #fields: SecretFields
  readonly #user: { readonly isKept: boolean }
  #current: AppProof | undefined
  #isRepeat = false

  /** `audience`: the URL of the service. */
  constructor(
    credentials: AppCredentials | undefined,
    audience: string,
    fields: SecretFields,
    user: { readonly isKept: boolean },
  ) {
    assert(credentials !== undefined)
    this.#credentials = credentials
    this.#audience = audience
    this.#fields = fields
    this.#user = user
  }

  async take(): Promise<void> {
    this.#current = await this.#credentials.key.prove(this.#audience)
  }

  authorize(): string {
    assert(this.#current !== undefined)
    return this.#fields.withProof(this.#current)
  }

  judge({ status }: ReceivedResponse): Promise<void> | undefined {
    assert(this.#current !== undefined)
    const { key } = this.#current
    if (status >= 200 && status <= 299) this.#credentials.accepted(key)
    if (status !== UNAUTHORIZED) return undefined
    this.#credentials.rejected(key)
    const other = this.#credentials.next([key])
    if (other === undefined || !this.#user.isKept || this.#isRepeat) return undefined
    this.#isRepeat = true
    return other.prove(this.#audience).then((proof) => {
      this.#current = proof
    })
  }

  end(): void {}
}
