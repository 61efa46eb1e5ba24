/** How long a token lives: watches one in use, and leaves another one alone. */

import type { Asker, Got, ProbeToken } from './asker.ts'
import { type Facts, type Judgement, notSeen, seen, span, Unaskable, unasked } from './findings.ts'
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

/** The two findings, and the answer to a token that had ended. */
export interface Lives {
  readonly judgements: readonly Judgement[]
  readonly end: Got | undefined
}

const ALONE = 'life left alone'
const RESERVED_GETS = 30

/** @throws {Unaskable} */
export async function askLives(task: LivesTask): Promise<Lives> {
  const { asker, waitMs, mint, liveSideBySide, matureMs } = task
  const endsAt = asker.now() + waitMs
  const used = await mint()
  const alone = liveSideBySide ? await mint() : undefined
  await untilAccepted(asker, used, matureMs)
  if (alone !== undefined) await untilAccepted(asker, alone, matureMs)
  const { end, longestPauseMs, stoppedBy = 'it was still accepted' } = await watch(task, used, endsAt)
  const acceptedMs = used.acceptedAt - used.gotAt
  const inUse =
    end === undefined
      ? notSeen('life in use', `No token in use ended within ${span(acceptedMs)}.`, stoppedBy)
      : seen('life in use', `A token in use ended when it was ${span(acceptedMs)} to ${span(end.ageMs)} old.`, PROOF)
  const { finding, facts } = inUse
  const evidence = `used every ${span(longestPauseMs)}; ${finding.evidence}`
  const judgements = [{ finding: { ...finding, evidence }, facts }]
  try {
    const ask = end === undefined ? askAlone(task, alone, endsAt) : askSecond(task, acceptedMs, end, alone, endsAt)
    const other = await ask
    return { judgements: [...judgements, other.judgement], end: end?.got ?? other.end }
  } catch (error) {
    if (!(error instanceof Unaskable)) throw error
    return { judgements: [...judgements, unasked(ALONE, error.message)], end: end?.got }
  }
}

const PROOF = 'then a new token was accepted'

/** The pauses grow with the age, so that the end is known within an eighth, and stay short beside the whole time. */
async function watch(task: LivesTask, token: ProbeToken, endsAt: number) {
  const { asker, waitMs, matureMs } = task
  let longestPauseMs = 0
  try {
    while (asker.now() < endsAt) {
      const ageMs = asker.now() - token.askedAt
      const pauseMs = Math.min(Math.max(ageMs / 8, Math.min(200, waitMs / 40)), waitMs / 20)
      await asker.sleepUntil(asker.getsLeft < RESERVED_GETS ? endsAt : Math.min(asker.now() + pauseMs, endsAt))
      const { acceptedAt } = token
      const { verdict, at } = await look(asker, token)
      if (verdict === 'accepted') longestPauseMs = Math.max(longestPauseMs, at - acceptedAt)
      const end = verdict === 'rejected' && at - token.askedAt >= matureMs ? await provenEnd(task, token) : undefined
      if (end !== undefined) return { end, longestPauseMs }
    }
    return { longestPauseMs }
  } catch (error) {
    if (error instanceof Unaskable) return { longestPauseMs, stoppedBy: error.message }
    throw error
  }
}

async function provenEnd({ asker, mint }: LivesTask, token: ProbeToken): Promise<End | undefined> {
  let newer: ProbeToken | undefined
  const got = await endOf(asker, token, async () => {
    newer = await mint()
    return newer
  })
  return got === undefined || newer === undefined ? undefined : { got, ageMs: got.endedAt - token.askedAt, newer }
}

/** Whether a token that nobody used has ended by then. `factsOf` says what follows from an end. */
async function askAlone(
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
  if (end === undefined) {
    return { judgement: notSeen(ALONE, `A token that was left alone did not end within ${span(leastMs)}.`, idle) }
  }
  const says = `A token that was left alone ended when it was ${span(leastMs)} to ${span(end.ageMs)} old.`
  return { judgement: seen(ALONE, says, `${idle}; ${PROOF}`, factsOf(leastMs, end.ageMs)), end: end.got }
}

/** The token in use ended: does the one that was accepted then, left alone, live as long? */
async function askSecond(task: LivesTask, acceptedMs: number, end: End, alone: ProbeToken | undefined, endsAt: number) {
  const { asker } = task
  const { newer, ageMs } = end
  const dueAt = newer.askedAt + ageMs * 1.02
  if (dueAt > endsAt) throw new Unaskable(`a second life takes --wait ${Math.ceil((ageMs * 2.2) / 1_000)}s`)
  await asker.sleepUntil((alone?.askedAt ?? 0) + ageMs)
  const isOutlived = alone !== undefined && (await look(asker, alone)).verdict === 'accepted'
  await asker.sleepUntil(newer.askedAt + acceptedMs * 0.98)
  const isAlive = (await look(asker, newer)).verdict === 'accepted'
  return await askAlone(task, newer, dueAt, (least, most) => {
    const life = { leastMs: Math.min(least, acceptedMs), mostMs: Math.max(most, ageMs) }
    // All of them are known so well that they hardly agree by chance.
    return isAlive && !isOutlived && life.mostMs <= life.leastMs * 1.5 ? { life } : {}
  })
}
