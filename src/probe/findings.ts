/** A finding says what was seen, never what that makes likely. */

export interface Finding {
  readonly about: string
  readonly outcome: 'seen' | 'not seen' | 'could not be asked'
  /** Empty if it could not be asked: the evidence is the reason. */
  readonly says: string
  readonly evidence: string
}

/** What is known for sure; what is not known is missing. */
export interface Facts {
  /** The member that is the token, with dots. */
  readonly field?: string
  readonly statedBy?: readonly string[]
  readonly statedLifeMs?: number
  /** Of the endpoint, against ours. */
  readonly clockOffsetMs?: number
  readonly slowestMintMs?: number
  readonly isSameToken?: boolean
  readonly endsFormer?: boolean
  /** 0 if no connection rejected a new token. `share` of them did at first. */
  readonly delay?: { readonly leastMs: number; readonly mostMs: number; readonly share: number }
  /** Of a made-up token. */
  readonly unknownStatus?: number
  readonly endedStatus?: number
  readonly unknownOrgStatus?: number
  /** Two tokens ended at this age, the first in use, the second left alone. */
  readonly life?: { readonly leastMs: number; readonly mostMs: number }
}

export interface Judgement {
  readonly finding: Finding
  readonly facts: Facts
}

const judgement =
  (outcome: Finding['outcome']) =>
  (about: string, says: string, evidence: string, facts: Facts = {}) =>
    ({ finding: { about, outcome, says, evidence }, facts }) satisfies Judgement

export const seen = judgement('seen')
export const notSeen = judgement('not seen')
export const unasked = (about: string, reason: string) => judgement('could not be asked')(about, '', reason)

/** A question cannot be asked. The message is the reason. */
export class Unaskable extends Error {}

/** As people write it: `340 ms`, `2.5 s`, `12 min`. */
export function span(ms: number): string {
  if (ms < 1_000) return `${Math.round(ms)} ms`
  if (ms < 10_000) return `${(ms / 1_000).toFixed(1)} s`
  return ms < 600_000 ? `${Math.round(ms / 1_000)} s` : `${Math.round(ms / 60_000)} min`
}
