/** The mints on their way, at most one for each org. Nobody who waits can end one, and none can end the process. */

import type { OrgId } from '../http/org-id.ts'
import type { AccessToken } from './access-token.ts'
import type { MintReason, TokenSource } from './token-source.ts'

export interface FlightOwner {
  /** Returns the token to hand out: the one it had, where it got the same again. */
  minted(org: OrgId, token: AccessToken, reason: MintReason): AccessToken
  mintFailed(org: OrgId, error: unknown): void
}

export class MintFlights {
  readonly #source: TokenSource
  readonly #owner: FlightOwner
  readonly #flights = new Map<OrgId, Promise<AccessToken>>()

  constructor(source: TokenSource, owner: FlightOwner) {
    this.#source = source
    this.#owner = owner
  }

  has(org: OrgId): boolean {
    return this.#flights.has(org)
  }

  /** Joins the mint on its way, or starts one. */
  join(org: OrgId, reason: MintReason): Promise<AccessToken> {
    const underway = this.#flights.get(org)
    if (underway !== undefined) return underway
    const flight: Promise<AccessToken> = this.#source.mint(org, { reason }).then(
      (token) => (this.#land(org, flight) ? this.#owner.minted(org, token, reason) : token),
      (error: unknown) => {
        if (this.#land(org, flight)) this.#owner.mintFailed(org, error)
        throw error
      },
    )
    this.#flights.set(org, flight)
    // Whoever waits handles it; a mint that nobody waits for has told its owner.
    flight.catch(() => undefined)
    return flight
  }

  /** What is on its way still reaches those who wait for it, but changes nothing here any more. */
  forget(org: OrgId): void {
    this.#flights.delete(org)
  }

  forgetAll(): void {
    this.#flights.clear()
  }

  /** False for one that was forgotten: its result is late. */
  #land(org: OrgId, flight: Promise<AccessToken>): boolean {
    if (this.#flights.get(org) !== flight) return false
    return this.#flights.delete(org)
  }
}
