/** What stands between the cache and the token endpoint, so that neither trouble there nor a flood here becomes a storm. */

import { performance } from 'node:perf_hooks'
import { setTimeout as sleep } from 'node:timers/promises'
import { TokenError } from '../errors.ts'
import type { OrgId } from '../http/org-id.ts'
import type { AccessToken } from './access-token.ts'
import type { MintOptions, TokenSource } from './token-source.ts'

export interface MintGuardOptions {
  /** Whole mint, retries included. */
  readonly mintTimeoutMs: number
  readonly now?: () => number
  readonly random?: () => number
}

const MAX_ATTEMPTS = 4
const FIRST_PAUSE_MS = 100

export class MintGuard implements TokenSource {
  readonly #options: MintGuardOptions
  readonly #source: TokenSource
  readonly #now: () => number
  readonly #random: () => number

  constructor(options: MintGuardOptions, source: TokenSource) {
    this.#options = options
    this.#source = source
    this.#now = options.now ?? (() => performance.now())
    this.#random = options.random ?? Math.random
  }

  async mint(org: OrgId, { reason = 'cold' }: MintOptions = {}): Promise<AccessToken> {
    const deadlineAt = this.#now() + this.#options.mintTimeoutMs
    for (let attempt = 1; ; attempt += 1) {
      try {
        return await this.#source.mint(org, { reason, deadlineAt })
      } catch (error) {
        const pauseMs = FIRST_PAUSE_MS * 2 ** attempt * (0.5 + this.#random() / 2)
        if (!(error instanceof TokenError) || error.code !== 'token_endpoint_unavailable') throw error
        if (attempt === MAX_ATTEMPTS || this.#now() + pauseMs >= deadlineAt) throw error
        await sleep(pauseMs)
      }
    }
  }
}
