/** L and T5: how long the tokens of one Org live, as far as their deaths tell, and what follows from a known life. Pure. */

/** Two ages that differ by a smaller share are the same: mints and requests take time. */
const TOLERANCE = 0.05
/** One request mints behind itself in this last share of a known life, and in no more than this time. */
const AHEAD_SHARE = 1 / 10
const MOST_AHEAD_MS = 30_000
/** A request that cannot be repeated gets no token in this last share of a known life. */
const LAST_SHARE = 1 / 50
/** Of so many tokens, one is used until it is rejected, so that a longer life is noticed. */
const EXPLORED_ONE_IN = 16

export class Lives {
  /** Learned from two deaths, or told with a token; `Infinity` if unknown. */
  knownMs = Number.POSITIVE_INFINITY
  /** The ages of the last token that died, at its last accepted and at its first rejected request. */
  #aliveMs = Number.POSITIVE_INFINITY
  #deadMs = 0

  /** A token of this age was accepted. Runs for every request. */
  noteAccepted(ageMs: number): void {
    if (ageMs > this.knownMs * (1 + TOLERANCE)) this.knownMs = Number.POSITIVE_INFINITY
  }

  noteDeath(aliveMs: number, deadMs: number): void {
    const lesserMs = Math.min(deadMs, this.#deadMs)
    const agree = Math.max(aliveMs, this.#aliveMs) <= lesserMs * (1 + TOLERANCE)
    this.knownMs = agree ? lesserMs : Number.POSITIVE_INFINITY
    this.#aliveMs = aliveMs
    this.#deadMs = deadMs
  }
}

/** `lot`: an integer from 0 to 999, drawn for each token. */
export const isExplored = (lot: number): boolean => lot % EXPLORED_ONE_IN === 0

/** The age at which a mint ahead may begin: jittered, so that tokens minted together are not replaced together. */
export const aheadAgeMs = (lifeMs: number, lot: number): number =>
  lifeMs - Math.min(lifeMs * AHEAD_SHARE, MOST_AHEAD_MS) * (1 - lot / 2_000)

export const lastAgeMs = (lifeMs: number): number => lifeMs * (1 - LAST_SHARE)
