/** The fields with secrets. A request to the service gets them last, when it is written. */

import { fieldLines } from '../http1/field-list.ts'
import { Redacted, revealHeaders, type Secret, type SecretHeaders } from '../secret.ts'
import type { TokenField } from './fields.ts'

export class SecretFields extends Redacted {
  // Made once, so that a request costs one concatenation.
  readonly #beforeToken: string
  readonly #endOfLine: string
  #others = ''
  #afterToken: string

  constructor({ name, before, after }: TokenField) {
    super()
    this.#beforeToken = `${name}: ${before}`
    this.#afterToken = this.#endOfLine = `${after}\r\n`
  }

  /** From now on, these go beside the token, or the proof. */
  useOthers(headers?: SecretHeaders): void {
    this.#others = fieldLines(revealHeaders(headers))
    this.#afterToken = this.#endOfLine + this.#others
  }

  withToken(token: Secret): string {
    return this.#beforeToken + token.reveal() + this.#afterToken
  }

  /** Without a token: the request goes as the bare App. */
  withProof(proof: Secret): string {
    return `authorization: ${proof.reveal()}\r\n${this.#others}`
  }
}
