/** What one request shows the service: a token of its Org, or a proof of the App. The first one, and the next after an answer. */

import assert from 'node:assert/strict'
import * as clock from '../clock.ts'
import { joinedValue } from '../http1/field-list.ts'
import type { ReceivedResponse } from '../http1/response-parser.ts'
import type { OrgId } from '../org-id.ts'
import type { AppCredentials } from '../token/app-credentials.ts'
import type { AppProof } from '../token/app-key.ts'
import type { OrgTokens, Repeatability } from '../token/org-tokens.ts'
import type { RejectionOutcome } from '../token/repeats.ts'
import type { TokenCache } from '../token/token-cache.ts'
import type { AccessToken } from '../token/token-source.ts'
import { TokenUse } from '../token/token-use.ts'
import type { RepeatOutcome, RequestRecord } from './request-record.ts'
import type { SecretFields } from './secret-fields.ts'

/** The request, as far as it matters for its credential. */
export interface CredentialUser extends Repeatability {
  readonly record: RequestRecord
  readonly isOver: boolean
  /** Whose share of the mints it takes. */
  readonly requester: object
}

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

export class OrgCredential implements RequestCredential {
  readonly #cache: TokenCache
  readonly #org: OrgId
  readonly #fields: SecretFields
  readonly #user: CredentialUser
  #current: AccessToken | undefined
  /** Those of its Org when it took the first one. */
  #tokens: OrgTokens | undefined
  /** Set once it waits for a token, or gets an answer that is not a plain success. */
  #use: TokenUse | undefined
  /** Monotonic milliseconds. */
  #sentAt = 0

  constructor(cache: TokenCache, org: OrgId, fields: SecretFields, user: CredentialUser) {
    this.#cache = cache
    this.#org = org
    this.#fields = fields
    this.#user = user
  }

  take(): Promise<void> | undefined {
    this.#tokens = this.#cache.orgs.get(this.#org)
    const found = this.#tokens && this.#cache.get(this.#org, this.#tokens, this.#user)
    if (found === undefined || 'wait' in found) return this.#obtain()
    this.#current = found.token
    this.#user.record.token = found.result
    return undefined
  }

  async #obtain(): Promise<void> {
    const { token, result } = await this.#tokenUse.obtain()
    this.#current = token
    this.#user.record.token = result
  }

  get #tokenUse(): TokenUse {
    const user = this.#user
    const { requester, record } = user
    const request = { org: this.#org, requester, requestId: record.requestId, hasLeft: () => user.isOver }
    this.#use ??= new TokenUse(this.#cache, { ...request, repeatability: user }, this.#tokens)
    return this.#use
  }

  authorize(): string | Promise<string> {
    assert(this.#current !== undefined)
    return this.#cache.hasEnded(this.#current) ? this.#obtain().then(() => this.#show()) : this.#show()
  }

  #show(): string {
    assert(this.#current !== undefined)
    this.#sentAt = clock.now()
    return this.#fields.withToken(this.#current)
  }

  judge({ status, rawFields }: ReceivedResponse): Promise<void> | undefined {
    const token = this.#current
    assert(token !== undefined)
    if (this.#use === undefined && status >= 200 && status <= 299) {
      this.#tokens?.noteAccepted(token, this.#sentAt)
      return undefined
    }
    const use = this.#tokenUse
    const { record } = this.#user
    const challenge = joinedValue(rawFields, 'www-authenticate') // RFC 9110 §11.6.1
    const next = use.judge({ token, sentAt: this.#sentAt, status, challenge })
    record.rejection = use.outcome
    record.repeat = repeatOutcome(use.outcome, record.repeat)
    if (next === undefined) return undefined
    record.repeat = 'failed' // until the repeat is answered
    return next.then((given) => {
      this.#current = given
    })
  }

  end(): void {
    this.#use?.end()
  }
}

/** `before`: what was told of it so far. */
function repeatOutcome(
  rejection: RejectionOutcome | undefined,
  before: RepeatOutcome | undefined,
): RepeatOutcome | undefined {
  switch (rejection) {
    case 'repeated':
      return 'accepted'
    case 'not_kept':
      return 'refused'
    case 'useless':
      return 'rejected'
    case 'passed':
      return before === undefined ? 'passed' : 'rejected'
    case undefined:
      return undefined
  }
}

const UNAUTHORIZED = 401

/** The App has two secrets. After a 401 to one, the request is repeated with the other, once. */
export class AppCredential implements RequestCredential {
  readonly #credentials: AppCredentials
  readonly #audience: string
  readonly #fields: SecretFields
  readonly #user: CredentialUser
  #current: AppProof | undefined
  #isRepeat = false

  /** `audience`: the URL of the service. */
  constructor(credentials: AppCredentials | undefined, audience: string, fields: SecretFields, user: CredentialUser) {
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
