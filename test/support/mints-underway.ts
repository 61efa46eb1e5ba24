/** The mints that proxies in this process have under way. Watches the real token endpoint client, and changes nothing. */

import { TokenEndpoint } from '../../src/token/token-endpoint.ts'

export class MintsUnderway implements Disposable {
  /** All mints that were begun. */
  calls = 0
  /** Now. */
  count = 0
  readonly #underway = new Map<string, number>()
  readonly #doubled = new Set<string>()
  readonly #mintAs = TokenEndpoint.prototype.mintAs

  constructor() {
    const mintAs = this.#mintAs
    const begin = this.#begin
    TokenEndpoint.prototype.mintAs = function (...args) {
      const end = begin(args[1])
      return mintAs.apply(this, args).finally(end)
    }
  }

  /** The Orgs for which more than one mint was under way at once. */
  get doubled(): string[] {
    return [...this.#doubled]
  }

  [Symbol.dispose](): void {
    TokenEndpoint.prototype.mintAs = this.#mintAs
  }

  readonly #begin = (org: string): (() => void) => {
    this.calls++
    this.count++
    const now = (this.#underway.get(org) ?? 0) + 1
    this.#underway.set(org, now)
    if (now > 1) this.#doubled.add(org)
    return () => {
      this.count--
      this.#underway.set(org, (this.#underway.get(org) ?? 1) - 1)
    }
  }
}
