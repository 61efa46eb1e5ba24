/** What one request shows the service: a token of its Org, or a proof of the App. The first one, and the next after an answer. */

import assert from 'node:assert/strict'
import type { ReceivedResponse } from '../http1/response-parser.ts'
import type { AppCredentials } from '../token/app-credentials.ts'
import type { AppProof } from '../token/app-key.ts'
import type { SecretFields } from './secret-fields.ts'

export interface RequestCredential {
  /** Gets the first one. Undefined if it is here at once. The promise rejects with a `TokenError` if there is none. */
  take(): Promise<void> | undefined
  /** The lines of the fields with secrets, to be sent at once. A promise if the credential has ended meanwhile, and the next is awaited. */
  authorize(): string | Promise<string>
  /** Undefined if the client gets the answer. Otherwise resolves when a repeat can be authorized. */
  judge(response: ReceivedResponse): Promise<void> | undefined
  /** The request is over. */
  end(): void
}

const UNAUTHORIZED = 401

/** The App has two secrets. After a 401 to one, the request is repeated with the other, once. */
export class AppCredential implements RequestCredential {
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
