/** How long a token lives: one is used all the time, and another one left alone. */

import type { Asker, Got, ProbeToken } from './asker.ts'
import { type Answer, type Facts, notSeen, seen, span, Unaskable } from './findings.ts'
import { endOf, look, untilAccepted } from './trials.ts'

export interface LivesTask {
  readonly asker: Asker
  readonly waitMs: number
  readonly mint: () => Promise<ProbeToken>
  /** A new token does not end the ones before. */
  readonly liveSideBySide: boolean
  /** A token that is younger may not be known everywhere. */
  readonly matureMs: number
}

interface End {
  readonly got: Got
  /** At most. */
  readonly ageMs: number
  /** A new token, accepted then. */
  readonly newer: ProbeToken
}

export interface Watched {
  /** The age to which the token in use was accepted. */
  readonly acceptedMs: number
  readonly end: End | undefined
  /** Undefined if a new token may end the one before. */
  readonly alone: ProbeToken | undefined
  readonly endsAt: number
}

const RESERVED_GETS = 30
const PROOF = 'then a new token was accepted'

/**
 * Uses a token until it ends or the time is over. The pauses grow with its age, so that the end is known within an eighth, and
 * stay short beside the whole time.
 * @throws {Unaskable}
 */
export async function watchInUse(task: LivesTask): Promise<Answer<Watched>> {
  const { asker, waitMs, mint, liveSideBySide, matureMs } = task
  const endsAt = asker.now() + waitMs
  const used = await mint()
  const alone = liveSideBySide ? await mint() : undefined
  await untilAccepted(asker, used, matureMs)
  if (alone !== undefined) await untilAccepted(asker, alone, matureMs)
  let end: End | undefined
  let [longestPauseMs, evidence] = [0, 'it was still accepted']
  try {
    while (end === undefined && asker.now() < endsAt) {
      const ageMs = asker.now() - used.askedAt
      const pauseMs = Math.min(Math.max(ageMs / 8, Math.min(200, waitMs / 40)), waitMs / 20)
      await asker.sleepUntil(asker.getsLeft < RESERVED_GETS ? endsAt : Math.min(asker.now() + pauseMs, endsAt))
      const { acceptedAt } = used
      const { verdict, at } = await look(asker, used)
      if (verdict === 'accepted') longestPauseMs = Math.max(longestPauseMs, at - acceptedAt)
      if (verdict === 'rejected' && at - used.askedAt >= matureMs) end = await provenEnd(task, used)
    }
  } catch (error) {
    if (!(error instanceof Unaskable)) throw error
    evidence = error.message
  }
  const acceptedMs = used.acceptedAt - used.gotAt
  const every = `used every ${span(longestPauseMs)}`
  const answer =
    end === undefined
      ? notSeen(`No token in use ended within ${span(acceptedMs)}.`, `${every}; ${evidence}`)
      : seen(`A token in use ended ${whenOld(acceptedMs, end.ageMs)}.`, `${every}; ${PROOF}`, {
          end: end.got,
          endedAgeMs: end.ageMs,
        })
  return { ...answer, value: { acceptedMs, end, alone, endsAt } }
}

/**
 * Whether a token that nobody uses has ended when the time is over; or, if the one in use ended, whether the one that was minted
 * then, left alone, lives as long.
 * @throws {Unaskable}
 */
export async function askLeftAlone(task: LivesTask, { end, acceptedMs, alone, endsAt }: Watched) {
  if (end === undefined) return await leaveAlone(task, alone, endsAt)
  const { asker } = task
  const { newer, ageMs } = end
  const dueAt = newer.askedAt + ageMs * 1.02
  if (dueAt > endsAt) throw new Unaskable(`a second life takes --wait ${Math.ceil((ageMs * 2.2) / 1_000)}s`)
  await asker.sleepUntil((alone?.askedAt ?? 0) + ageMs)
  const isOutlived = alone !== undefined && (await look(asker, alone)).verdict === 'accepted'
  await asker.sleepUntil(newer.askedAt + acceptedMs * 0.98)
  const isAlive = (await look(asker, newer)).verdict === 'accepted'
  return await leaveAlone(task, newer, dueAt, (least, most) => {
    const life = { leastMs: Math.min(least, acceptedMs), mostMs: Math.max(most, ageMs) }
    // All of them are known so well that they hardly agree by chance.
    return isAlive && !isOutlived && life.mostMs <= life.leastMs * 1.5 ? { life } : {}
  })
}

/** `factsOf` says what follows from an end. */
async function leaveAlone(
  task: LivesTask,
  token: ProbeToken | undefined,
  at: number,
  factsOf = (_leastMs: number, _mostMs: number): Facts => ({}),
) {
  if (token === undefined) throw new Unaskable('a new token may end the one before')
  const { asker } = task
  await asker.sleepUntil(at)
  const idle = `not used for ${span(asker.now() - token.acceptedAt)}`
  const end = (await look(asker, token)).verdict === 'accepted' ? undefined : await provenEnd(task, token)
  const leastMs = token.acceptedAt - token.gotAt
  if (end === undefined) return notSeen(`A token that was left alone did not end within ${span(leastMs)}.`, idle)
  const says = `A token that was left alone ended ${whenOld(leastMs, end.ageMs)}.`
  return seen(says, `${idle}; ${PROOF}`, { end: end.got, endedAgeMs: end.ageMs, ...factsOf(leastMs, end.ageMs) })
}

async function provenEnd({ asker, mint }: LivesTask, token: ProbeToken): Promise<End | undefined> {
  let newer: ProbeToken | undefined
  const got = await endOf(asker, token, async () => {
    newer = await mint()
    return newer
  })
  return got === undefined || newer === undefined ? undefined : { got, ageMs: got.endedAt - token.askedAt, newer }
}

const whenOld = (leastMs: number, mostMs: number) => `when it was ${span(leastMs)} to ${span(mostMs)} old`
