/** The fields with secrets. A request to the service gets them last, when it is written. */

import { Redacted, type Secret } from '../secret.ts'
import type { TokenField } from './fields.ts'

/** Made once, so that a request costs one concatenation. */
export class SecretFields extends Redacted {
  readonly #beforeToken: string
  readonly #afterToken: string

  constructor({ name, before, after }: TokenField) {
    super()
    this.#beforeToken = `${name}: ${before}`
    this.#afterToken = `${after}\r\n`
  }

  withToken(token: Secret): string {
    return this.#beforeToken + token.reveal() + this.#afterToken
  }

  /** Without a token: the request goes as the bare App. */
  withProof(proof: Secret): string {
    return `authorization: ${proof.reveal()}\r\n`
  }
}
