/** R6 and R7 of docs/tokens.md for the claims of one caller about one Org: it is useless if it claims the successor soon. Pure. */

import { pauseMs } from '../token/service-facts.ts'

const FIRST_PAUSE_MS = 250 // R6
const LONGEST_PAUSE_MS = 300_000 // R6, R7
/** A successor has to last for half as long as the token before it, within these bounds. */
const TRIAL = { share: 1 / 2, leastMs: 10_000, mostMs: 60_000 }
const NEVER = Number.NEGATIVE_INFINITY

export class Claims {
  #mintedAt = NEVER // when the last claim caused a mint,
  #trialMs = 0 // and for how long its token has to last
  #useless = 0 // useless mints in a row,
  noMintUntil = 0 // and the end of the pause after the last
  #isForced = false // R7: the last mint was made in spite of the pause;
  #uselessForced = 0 // useless ones of these in a row,
  #forcedAt = NEVER // and when the last began or proved useless

  /** The caller claims that the current token, `ageMs` old, is rejected. Returns true if that may cause a mint now. */
  admit(ageMs: number, now: number, cooldownMs: number): boolean {
    if (now - this.#mintedAt < this.#trialMs) this.noteUselessMint(now)
    else if (this.#mintedAt !== NEVER) {
      this.#useless = this.#uselessForced = this.noMintUntil = 0
      this.#forcedAt = NEVER
    }
    const isPaused = now < this.noMintUntil
    const waitMs = pauseMs(cooldownMs, 2, this.#uselessForced, LONGEST_PAUSE_MS)
    if (isPaused && now - this.#forcedAt < waitMs) return false
    this.#isForced = isPaused
    if (isPaused) this.#forcedAt = now
    this.#mintedAt = now
    this.#trialMs = Math.min(Math.max(ageMs * TRIAL.share, TRIAL.leastMs), TRIAL.mostMs)
    return true
  }

  /** There is no successor, so the token may be claimed again. */
  noteFailedMint(): void {
    this.#mintedAt = NEVER
  }

  /** The successor was claimed, too, or the endpoint gave the same token again. */
  noteUselessMint(now: number): void {
    this.#mintedAt = NEVER
    this.noMintUntil = now + pauseMs(FIRST_PAUSE_MS, 4, this.#useless, LONGEST_PAUSE_MS)
    this.#useless += 1
    if (this.#isForced) this.#uselessForced += 1
    if (this.#isForced || this.#forcedAt === NEVER) this.#forcedAt = now
  }
}
