/** How long tokens live: watches some for `--wait`, and says what that tells. */

import { setTimeout as sleep } from 'node:timers/promises'
import type { OrgId } from '../org-id.ts'
import { type Asker, type Got, type ProbeToken, Unaskable } from './asker.ts'
import { between, type Facts, type Finding, type Judgement, only, seen, span, unasked } from './findings.ts'
import {
  ASIDE,
  type Asked,
  getSurely,
  type Judge,
  LONGEST_DELAY_MS,
  type Sample,
  sampleOf,
  tokenOf,
} from './samples.ts'

/** Tokens that stay unused until each of these shares of `--wait`. */
const UNUSED_SHARES = [1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1] as const
/** Lives in a row that are measured, if there is time. */
const MOST_LIVES = 4

/** One life: the token was accepted at the first age, and rejected twice from the second on. */
export interface Life {
  readonly acceptedMs: number
  /** Undefined if it still lived when the time was over. */
  readonly rejectedMs: number | undefined
  readonly longestPauseMs: number
  readonly end: Got | undefined
}

/** Of a token that was used once. */
export interface Unused extends Sample {
  readonly got: Got
}

export interface Lives {
  /** The first one is of a token in use; the others were left alone for nine tenths of it. */
  readonly lives: readonly Life[]
  readonly unused: readonly Unused[]
  readonly whyNotUnused: string | undefined
  /** Rejections that the next GET with the same token contradicted. */
  readonly contradicted: number
  readonly asked: number
}

export async function watchLives(
  asker: Asker,
  org: OrgId,
  judge: Judge,
  waitMs: number,
  whyNotUnused: string | undefined,
  isSameToken: boolean,
): Promise<Lives> {
  const endsAt = performance.now() + waitMs
  const lives: Life[] = []
  const watch = new Watch(asker, judge)
  // It is minted first: should a new token end the one before, then this one does not outlive the others.
  let next = watchUsed(watch, org, waitMs, endsAt)
  const unused = whyNotUnused === undefined ? watchUnused(watch, org, waitMs) : Promise.resolve([])
  for (;;) {
    const life = await next
    lives.push(life)
    const { rejectedMs } = life
    const isOver = rejectedMs === undefined || performance.now() + rejectedMs * 1.2 > endsAt
    if (isOver || lives.length === MOST_LIVES || asker.getsLeft < 20) break
    next = isSameToken ? watchUsed(watch, org, waitMs, endsAt) : watchAlone(watch, org, lives, endsAt)
  }
  const { contradicted, asked } = watch
  return { lives, unused: await unused, whyNotUnused, contradicted, asked }
}

/** Asks twice before it believes a rejection. */
class Watch {
  readonly asker: Asker
  readonly judge: Judge
  contradicted = 0
  asked = 0

  constructor(asker: Asker, judge: Judge) {
    this.asker = asker
    this.judge = judge
  }

  async look(token: ProbeToken): Promise<{ readonly got: Got; readonly sample: Sample }> {
    this.asked++
    const got = await this.asker.get(token, ASIDE)
    const again = this.judge(got) ? got : await getSurely(this.asker, token, this.judge)
    const isAccepted = this.judge(again)
    if (isAccepted && again !== got) this.contradicted++
    // Of a death, the first rejection tells when.
    const counted = isAccepted ? again : got
    return { got: counted, sample: sampleOf(counted, token, this.judge) }
  }
}

async function watchUnused(watch: Watch, org: OrgId, waitMs: number): Promise<Unused[]> {
  const samples = UNUSED_SHARES.map(async (share) => {
    const token = tokenOf(await watch.asker.mint(org))
    await sleep(waitMs * share)
    const { got, sample } = await watch.look(token)
    return { ...sample, got }
  })
  const settled = await Promise.allSettled(samples)
  for (const each of settled) if (each.status === 'rejected' && !(each.reason instanceof Unaskable)) throw each.reason
  return settled.flatMap((each) => (each.status === 'fulfilled' ? [each.value] : []))
}

/** The pauses grow with the age, so that the end is known within an eighth, and stay short beside `--wait`. */
async function watchUsed(watch: Watch, org: OrgId, waitMs: number, endsAt: number): Promise<Life> {
  const token = tokenOf(await watch.asker.mint(org))
  const pauseMs = (ageMs: number) => Math.min(Math.max(ageMs / 8, waitMs / 200), waitMs / 40)
  return await watchUntilRejected(watch, token, endsAt, pauseMs, false)
}

/** A token that is left alone until it has nine tenths of the shortest life so far. */
async function watchAlone(watch: Watch, org: OrgId, lives: readonly Life[], endsAt: number): Promise<Life> {
  const shortestMs = Math.min(...lives.map(({ acceptedMs, rejectedMs = 0 }) => acceptedMs || rejectedMs / 2))
  const token = tokenOf(await watch.asker.mint(org))
  await sleep(shortestMs * 0.9)
  return await watchUntilRejected(watch, token, endsAt, () => Math.max(20, shortestMs / 30), true)
}

async function watchUntilRejected(
  watch: Watch,
  token: ProbeToken,
  endsAt: number,
  pauseMs: (ageMs: number) => number,
  isOld: boolean,
): Promise<Life> {
  let acceptedMs = 0
  let longestPauseMs = 0
  // The rejection of a new token that is not known yet is no end.
  let isKnown = isOld
  let usedAt = token.askedAt
  while (performance.now() < endsAt && watch.asker.getsLeft > 4) {
    const { got, sample } = await watch.look(token)
    if (!sample.isAccepted && (isKnown || sample.mostAgeMs > LONGEST_DELAY_MS)) {
      return { acceptedMs, rejectedMs: sample.mostAgeMs, longestPauseMs, end: got }
    }
    if (sample.isAccepted) {
      if (isKnown) longestPauseMs = Math.max(longestPauseMs, got.at - usedAt)
      isKnown = true
      usedAt = got.at
      acceptedMs = sample.leastAgeMs
    }
    await sleep(pauseMs(performance.now() - token.askedAt))
  }
  return { acceptedMs, rejectedMs: undefined, longestPauseMs, end: undefined }
}

export function judgeLives(lives: Asked<Lives>, isSameToken: Asked<boolean>): Judgement {
  const question = 'How long a token lives in use, and unused.'
  if ('reason' in lives) return only(unasked('life', question, lives.reason))
  const { unused, whyNotUnused, contradicted, asked } = lives.answer
  const flaky =
    contradicted === 0
      ? []
      : [
          seen(
            'good tokens rejected',
            'A good token is rejected now and then.',
            `${contradicted} of ${asked} GETs, each accepted when it was asked again`,
          ),
        ]
  // The endpoint had given it to others before: its age is unknown.
  const isOlder = 'answer' in isSameToken && isSameToken.answer
  const known = isOlder ? lives.answer.lives.slice(1) : lives.answer.lives
  const first = known[0]
  if (first === undefined) {
    return {
      findings: [
        unasked('life', question, 'the token is older than the probe, and its successor was not seen to end'),
        ...flaky,
      ],
      facts: {},
    }
  }
  const { says, life, outcome } = lifeFrom(known, unused, isOlder)
  const evidence = [
    ...known.map(lifeText),
    ...(unused.length === 0 ? [] : [`unused until then: ${unused.map(unusedText).join(', ')}`]),
    ...(whyNotUnused === undefined ? [] : [`no tokens were left unused beside it: ${whyNotUnused}`]),
  ].join('; ')
  return { findings: [{ about: 'life', outcome, says, evidence }, ...flaky], facts: life === undefined ? {} : { life } }
}

/** What a token was answered that had ended. An unused one may have been rejected as too young, unless a younger one was accepted. */
export function endIn({ lives, unused }: Lives): Got | undefined {
  const used = lives.find(({ end }) => end !== undefined)
  const isOld = ({ leastAgeMs }: Sample) => unused.some((each) => each.isAccepted && each.leastAgeMs < leastAgeMs)
  return used?.end ?? unused.find((each) => !each.isAccepted && isOld(each))?.got
}

function lifeText({ acceptedMs, rejectedMs, longestPauseMs }: Life, index: number): string {
  const how = index === 0 ? `used every ${span(longestPauseMs)} or sooner` : 'left alone at first'
  if (rejectedMs === undefined) return `one ${how} was still accepted after ${span(acceptedMs)}`
  return `one ${how} ended ${between(acceptedMs, rejectedMs)} after its mint`
}

function unusedText({ isAccepted, leastAgeMs }: Sample): string {
  return `${span(leastAgeMs)} ${isAccepted ? 'accepted' : 'rejected'}`
}

type LifeJudgement = Pick<Finding, 'says' | 'outcome'> & { readonly life?: Facts['life'] }

/** An unused token that ends at a quarter of the age that a used one outlives. */
const SLIDING_FACTOR = 4

function lifeFrom(lives: readonly Life[], unused: readonly Sample[], isOlder: boolean): LifeJudgement {
  const [used, ...others] = lives
  if (used === undefined) return { outcome: 'not seen', says: 'No token was seen to end.' }
  const deaths = unused.filter(({ isAccepted }) => !isAccepted)
  const lastAlive = Math.max(0, ...unused.filter(({ isAccepted }) => isAccepted).map(({ leastAgeMs }) => leastAgeMs))
  const firstDead = Math.min(...deaths.map(({ mostAgeMs }) => mostAgeMs))
  const outlived = deaths.filter(({ mostAgeMs }) => used.acceptedMs > mostAgeMs)
  const isFarOutlived = outlived.length >= 2 && used.acceptedMs > firstDead * SLIDING_FACTOR
  if (isFarOutlived && lastAlive < firstDead && used.longestPauseMs < firstDead) {
    const says = `A use makes a token live longer: unused, it ends ${between(lastAlive, firstDead)} after its mint.`
    return { outcome: 'seen', says, life: { kind: 'sliding', leastMs: lastAlive, mostMs: firstDead } }
  }
  const ended = lives.filter(({ rejectedMs }) => rejectedMs !== undefined)
  if (ended.length === 0) {
    if (deaths.length > 0)
      return {
        outcome: 'seen',
        says: `Unused, a token ended ${between(lastAlive, firstDead)} after its mint; in use, none ended.`,
      }
    return { outcome: 'not seen', says: `No token ended within ${span(used.acceptedMs)}.` }
  }
  const leastMs = Math.max(...ended.map(({ acceptedMs }) => acceptedMs))
  const mostMs = Math.min(...ended.map(({ rejectedMs = 0 }) => rejectedMs))
  const fitsUnused = unused.every(({ isAccepted, leastAgeMs, mostAgeMs }) =>
    isAccepted ? leastAgeMs <= mostMs * 1.05 : mostAgeMs >= leastMs * 0.95,
  )
  // They may differ by as much as a life is known, and a twentieth.
  const agree = leastMs <= mostMs * 1.05 && fitsUnused
  if (!agree) {
    const range = [
      Math.min(...ended.map(({ acceptedMs }) => acceptedMs)),
      Math.max(...ended.map(({ rejectedMs = 0 }) => rejectedMs)),
    ] as const
    const says = `Lives differ: tokens ended ${between(...range)} after their mint.`
    // Two lives may differ for a reason of that moment, such as a new version of the service.
    if (ended.length < 3 || ended.some(({ acceptedMs }) => acceptedMs === 0)) return { outcome: 'seen', says }
    return { outcome: 'seen', says, life: { kind: 'irregular', leastMs: range[0], mostMs: range[1] } }
  }
  const [low, high] = [Math.min(leastMs, mostMs), Math.max(leastMs, mostMs)]
  if (others.length >= 2 && ended.length >= 3 && !isOlder) {
    const says = `A token lives ${between(low, high)}, in use or not.`
    return { outcome: 'seen', says, life: { kind: 'regular', leastMs: low, mostMs: high } }
  }
  const count = ended.length === 1 ? 'One token' : `${ended.length} tokens`
  return {
    outcome: 'seen',
    says: `${count} ended ${between(low, high)} after the mint; give it more time to see whether all do.`,
  }
}
