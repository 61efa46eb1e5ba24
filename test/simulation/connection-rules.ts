/** Oracles of what one connection owes: peers that fall silent, break off, or send what nobody asked for. */

import type { Outcome } from './peers/client.ts'
import type { Attempt } from './peers/service.ts'
import type { Stage } from './stage.ts'

/** A response that nobody wants is read away for a second. */
const DISCARD_MS = 1_000
/** Time limits may end later by a quarter, and by half a second. */
const LATE_SHARE = 1.25
const ROOM_MS = 1_000
/** For a mint of an Org beside others in trouble: much less than for a call that hangs. */
const COLD_MS = 1_000
/** Three calls, and pauses of 1, 2, 4, 4, ... seconds between them. */
const TROUBLE_MS = 20_000
const MOST_TROUBLED_CALLS = 3 * 8
/** Content that the smallest buffers hold, beside a head. */
const SMALL_BYTES = 4_000

const roundTripMs = ({ story }: Stage): number => 8 * Math.max(...story.lines.map(({ latencyMs }) => latencyMs))

/** Of the story, when it is over. */
export function judgeConnections(stage: Stage): void {
  for (const { violations } of stage.clients) for (const [oracle, text] of violations) stage.violate(oracle, text)
  const attempts = groupBy(stage.service.attempts, ({ plan }) => plan.id)
  const outcomes = groupBy(stage.outcomes(), ({ plan }) => plan.id)
  for (const [id, all] of attempts) {
    const [outcome, ...others] = outcomes.get(id) ?? []
    // Its client has sent it again.
    if (outcome === undefined || others.length > 0) continue
    judgeRepeat(stage, outcome, all)
    judgeBroken(stage, outcome, all)
    judgeDiscarded(stage, all)
    judgeResent(stage, all)
  }
  for (const outcome of stage.outcomes()) judgeSilence(stage, outcome)
  judgeCalls(stage)
}

/** A connection that was opened for this request has surely brought it to the service. */
function judgeRepeat(stage: Stage, { startedAt }: Outcome, attempts: readonly Attempt[]): void {
  if (stage.story.stalls.length > 0) return
  attempts.slice(0, -1).forEach(({ plan, token, isAccepted, isReused, waitedMs }) => {
    const wasNew = !isReused && waitedMs < roundTripMs(stage) + 20 && (token?.issuedAt ?? startedAt) < startedAt
    if (isAccepted && wasNew && plan.answer.cut?.at === -1)
      stage.violate('what was surely read is not sent again', `${plan.id} ${plan.method}`)
  })
}

/** For another status than 401, nothing but GET and HEAD goes again. */
function judgeResent({ story, violate }: Stage, [first, ...again]: readonly Attempt[]): void {
  if (first === undefined || again.length === 0 || (story.tokens.rejectsWith ?? 401) === 401) return
  const { plan, isAccepted } = first
  if (!isAccepted && plan.method !== 'GET' && plan.method !== 'HEAD')
    violate('nothing is carried out twice', `${plan.id} ${plan.method}, behind ${story.tokens.rejectsWith}`)
}

/** Of the ground whose endpoint is in trouble, or whose clients leave. */
function judgeCalls(stage: Stage): void {
  const { story, service, violate } = stage
  if (story.profile === 'an endpoint in trouble') {
    const troubled = new Set(story.tokens.troubles.map(({ org }) => org))
    for (const { plan, startedAt, endedAt, answers } of stage.outcomes()) {
      if (troubled.has(plan.org)) continue
      if (answers !== plan.id || endedAt > startedAt + COLD_MS)
        violate('the trouble of one Org is its own', `${plan.id}: ${(endedAt - startedAt).toFixed(0)} ms`)
    }
    for (const org of troubled) {
      const calls = service.mints.filter((call) => call.org === org && call.at < TROUBLE_MS).length
      if (calls > MOST_TROUBLED_CALLS) violate('an endpoint in trouble is left alone', `org-${org}: ${calls} calls`)
    }
  }
  if (story.profile !== 'clients that leave the queue') return
  for (const { org, at } of service.mints) {
    const isAwaited = stage
      .outcomes()
      .some(({ plan, startedAt, endedAt }) => plan.org === org && startedAt <= at && endedAt > at - 1_000)
    if (!isAwaited) violate('a call is for somebody', `org-${org} at ${at.toFixed(0)}`)
  }
}

/** What has come of an answer that breaks is its client's. */
function judgeBroken(stage: Stage, outcome: Outcome, attempts: readonly Attempt[]): void {
  const { plan, endedAt, answers, content, end } = outcome
  const last = attempts.at(-1)
  const { cut, status } = plan.answer
  if (last?.isAccepted !== true || cut === undefined || cut.at <= 0 || cut.at > SMALL_BYTES) return
  const isLost =
    cut.how === 'reset' || plan.isHttp10 === true || plan.method === 'HEAD' || status === 204 || status === 304
  const isHindered =
    plan.content !== undefined || plan.takes !== undefined || plan.surplus !== undefined || end === 'left'
  const isLate = last.answeredAt - last.at > stage.story.limits.responseTimeoutMs / 2
  if (isLost || isHindered || isLate || endedAt >= (stage.stoppedAt ?? Number.POSITIVE_INFINITY)) return
  if (answers !== plan.id || (content?.bytes ?? 0) < cut.at)
    stage.violate('what came of a broken answer arrives', `${plan.id}: ${content ?? 'nothing'}, ${cut.at} had come`)
}

/** A rejection whose request goes again is read for a moment, and its connection ends. */
function judgeDiscarded(stage: Stage, attempts: readonly Attempt[]): void {
  if (stage.story.stalls.length > 0) return
  attempts.slice(0, -1).forEach(({ plan, isAccepted, answeredAt, goneAt }) => {
    const mostMs = DISCARD_MS * LATE_SHARE + ROOM_MS + roundTripMs(stage)
    if (!isAccepted && plan.answer.rejection !== undefined && goneAt > answeredAt + mostMs)
      stage.violate('a rejection is read for a moment', `${plan.id}: ${(goneAt - answeredAt).toFixed(0)} ms`)
  })
}

/** A client that owes content, and sends none. */
function judgeSilence(stage: Stage, { plan, silentAt, endedAt, end }: Outcome): void {
  const { limits, stalls } = stage.story
  if (silentAt === undefined || stalls.length > 0 || end === 'left') return
  const mostMs = Math.max(limits.idleTimeoutMs, limits.responseTimeoutMs) * LATE_SHARE + ROOM_MS + roundTripMs(stage)
  if (endedAt > silentAt + mostMs)
    stage.violate('who falls silent is timed out', `${plan.id}: silent since ${silentAt.toFixed(0)}`)
}

function groupBy<T>(all: readonly T[], keyOf: (one: T) => string): Map<string, T[]> {
  const groups = new Map<string, T[]>()
  for (const one of all) {
    const group = groups.get(keyOf(one))
    if (group === undefined) groups.set(keyOf(one), [one])
    else group.push(one)
  }
  return groups
}
