/** A finding says what was seen, never what that makes likely. */

export interface Finding {
  readonly about: string
  readonly outcome: 'seen' | 'not seen' | 'could not be asked'
  readonly says: string
  readonly evidence: string
}

/** What is known for sure; what is not known is missing. */
export interface Facts {
  /** The member that is the token, with dots. */
  readonly field?: string
  readonly statedBy?: readonly string[]
  readonly statedLifeMs?: number
  readonly clockOffsetMs?: number
  readonly slowestMintMs?: number
  readonly isSameToken?: boolean
  readonly endsFormer?: boolean
  /** 0 if a new token was known at once. `share` of the connections came to know it late. */
  readonly delay?: { readonly mostMs: number; readonly share: number }
  /** Of a made-up token. */
  readonly unknownStatus?: number
  readonly endedStatus?: number
  readonly unknownOrgStatus?: number
  readonly mintLimit?: { readonly count: number; readonly windowMs: number }
  /** `regular`: two lives in a row agree, and one of them was of a token that was left alone. */
  readonly life?: {
    readonly kind: 'regular' | 'sliding' | 'irregular'
    readonly leastMs: number
    readonly mostMs: number
  }
}

export interface Judgement {
  readonly findings: readonly Finding[]
  readonly facts: Facts
}

export const seen = (about: string, says: string, evidence: string): Finding => ({
  about,
  outcome: 'seen',
  says,
  evidence,
})
export const notSeen = (about: string, says: string, evidence: string): Finding => ({
  about,
  outcome: 'not seen',
  says,
  evidence,
})
export const unasked = (about: string, says: string, reason: string): Finding => ({
  about,
  outcome: 'could not be asked',
  says,
  evidence: reason,
})
export const only = (finding: Finding, facts: Facts = {}): Judgement => ({ findings: [finding], facts })

/** As people write it: `340 ms`, `2.5 s`, `12 min`. */
export function span(ms: number): string {
  if (ms < 1_000) return `${Math.round(ms)} ms`
  if (ms < 10_000) return `${(ms / 1_000).toFixed(1)} s`
  return ms < 600_000 ? `${Math.round(ms / 1_000)} s` : `${Math.round(ms / 60_000)} min`
}

export function between(leastMs: number, mostMs: number): string {
  return span(leastMs) === span(mostMs) ? `about ${span(mostMs)}` : `between ${span(leastMs)} and ${span(mostMs)}`
}
