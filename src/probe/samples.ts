/** One GET with a token, and whether the service took it. */

import { setTimeout as sleep } from 'node:timers/promises'
import { type Asker, CONNECTIONS, type Got, type Mint, type ProbeToken, Unaskable } from './asker.ts'

/** A connection of its own, for tokens other than the one on the twenty. */
export const ASIDE = CONNECTIONS
/** A new token that is not known after this time is not waited for. */
export const LONGEST_DELAY_MS = 15_000

/** An answer, or the reason why there is none. */
export type Asked<T> = { readonly answer: T } | { readonly reason: string }

/** True if the service took the token. */
export type Judge = (got: Got) => boolean

export interface Sample {
  /** The age of the token when the service saw it lies between these two. */
  readonly leastAgeMs: number
  readonly mostAgeMs: number
  readonly connection: number
  readonly isAccepted: boolean
  readonly status: number | undefined
}

export function isSuccess(status: number): boolean {
  return (status >= 200 && status <= 299) || status === 304
}

/** @throws {Unaskable} */
export function tokenOf({ token }: Mint): ProbeToken {
  if (token === undefined) throw new Unaskable('there is no token')
  return token
}

export function sampleOf(got: Got, { askedAt, gotAt }: ProbeToken, judge: Judge): Sample {
  const { at, durationMs, connection, status } = got
  const ages = { leastAgeMs: Math.max(0, at - gotAt), mostAgeMs: at + durationMs - askedAt }
  return { ...ages, connection, isAccepted: judge(got), status }
}

/** A rejection counts only if other connections have it, too: a back end may be late, or reject a good token. */
export async function getSurely(asker: Asker, token: ProbeToken, judge: Judge): Promise<Got> {
  const first = await asker.get(token, ASIDE)
  for (const connection of judge(first) ? [] : [0, 1]) {
    await sleep(100)
    const again = await asker.get(token, connection)
    if (judge(again)) return again
  }
  return first
}
