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
  readonly unknownStatus?: number | undefined
  /** What a token was answered that had ended. */
  readonly end?: { readonly status: number | undefined; readonly text: string }
  /** At most, of a token that ended by itself. */
  readonly endedAgeMs?: number
  readonly unknownOrgStatus?: number | undefined
  /** Two tokens ended at this age, the first in use, the second left alone. */
  readonly life?: { readonly leastMs: number; readonly mostMs: number }
}

/** What was found, and a `value` for the questions behind it. */
export interface Answer<T> extends Omit<Finding, 'about'> {
  readonly facts: Facts
  readonly value: T
}

const answer =
  (outcome: Finding['outcome']) =>
  (says: string, evidence: string, facts: Facts = {}): Answer<undefined> => ({
    outcome,
    says,
    evidence,
    facts,
    value: undefined,
  })

export const seen = answer('seen')
export const notSeen = answer('not seen')

/** A question cannot be asked. The message is the reason. */
export class Unaskable extends Error {}

/** As people write it: `340 ms`, `2.5 s`, `12 min`. */
export function span(ms: number): string {
  if (ms < 1_000) return `${Math.round(ms)} ms`
  if (ms < 10_000) return `${(ms / 1_000).toFixed(1)} s`
  return ms < 600_000 ? `${Math.round(ms / 1_000)} s` : `${Math.round(ms / 60_000)} min`
}
