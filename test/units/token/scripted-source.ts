/** A token source whose mints the test answers, with the clock of the test. */

import { TokenError, type TokenErrorCode, type TokenErrorOptions } from '../../../src/errors.ts'
import type { OrgId } from '../../../src/org-id.ts'
import { AccessToken, type MintOptions, type TokenSource } from '../../../src/token/token-source.ts'

export class PendingMint {
  readonly org: OrgId
  readonly options: MintOptions
  readonly token: Promise<AccessToken>
  readonly #mintedAt: number
  #resolve: (token: AccessToken) => void = () => {}
  #reject: (error: unknown) => void = () => {}
  #nextName: () => string

  constructor(org: OrgId, options: MintOptions, mintedAt: number, nextName: () => string) {
    this.org = org
    this.options = options
    this.#mintedAt = mintedAt
    this.#nextName = nextName
    this.token = new Promise((resolve, reject) => {
      this.#resolve = resolve
      this.#reject = reject
    })
  }

  /** A new token, unless it is given. */
  async issue(name = this.#nextName(), expiresAt?: number): Promise<AccessToken> {
    const token = new AccessToken(name, this.#mintedAt, expiresAt && expiresAt - this.#mintedAt, this.#mintedAt)
    this.#resolve(token)
    await settled()
    return token
  }

  async fail(code: TokenErrorCode, options?: TokenErrorOptions): Promise<void> {
    this.#reject(new TokenError(code, 'scripted', options))
    await settled()
  }
}

export class ScriptedSource implements TokenSource {
  readonly #now: () => number
  readonly mints: PendingMint[] = []
  #issued = 0

  constructor(now: () => number) {
    this.#now = now
  }

  mint(org: OrgId, options: MintOptions = {}): Promise<AccessToken> {
    const mint = new PendingMint(org, options, this.#now(), () => `token-${++this.#issued}-of-${org}`)
    this.mints.push(mint)
    return mint.token
  }

  /** The latest mint. */
  get last(): PendingMint {
    const mint = this.mints.at(-1)
    if (mint === undefined) throw new Error('nothing was minted')
    return mint
  }
}

/**
 * More hops than any chain of promises here. All in one turn, so that a rejection which the test awaits next is not
 * unhandled yet.
 */
const HOPS = 20

/** Resolves when all reactions to settled promises have run. */
export async function settled(): Promise<void> {
  for (let hop = 0; hop < HOPS; hop += 1) await undefined
}
