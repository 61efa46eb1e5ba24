/** A token source whose mints a test answers when it wants to, by a clock that the test owns. */

import { TokenError, type TokenErrorCode, type TokenErrorOptions } from '../../src/errors.ts'
import type { OrgId } from '../../src/http/org-id.ts'
import { AccessToken, type MintOptions, type TokenSource } from '../../src/token/token-source.ts'

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

  /** A token never seen before, unless it is named. */
  async issue(name = this.#nextName(), expiresAt?: number): Promise<AccessToken> {
    const token = new AccessToken(name, this.#mintedAt, expiresAt)
    this.#resolve(token)
    await settled()
    return token
  }

  async fail(code: TokenErrorCode, options?: TokenErrorOptions): Promise<void> {
    await this.failWith(new TokenError(code, 'scripted', options))
  }

  async failWith(error: unknown): Promise<void> {
    this.#reject(error)
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

  /** The one asked for last. */
  get last(): PendingMint {
    const mint = this.mints.at(-1)
    if (mint === undefined) throw new Error('nothing was minted')
    return mint
  }
}

/** More hops than any chain of promises here has. Within one turn: a rejection that a test looks at next is not yet unhandled. */
const HOPS = 20

/** All that hangs on promises settled so far has happened. */
export async function settled(): Promise<void> {
  for (let hop = 0; hop < HOPS; hop += 1) await undefined
}
