/** What the answers mean: pure functions, a question each. */

import type { StatedLife } from '../token/token-reply.ts'
import { CONNECTIONS, type Got, type Mint } from './asker.ts'
import { between, type Facts, type Finding, type Judgement, notSeen, only, seen, span, unasked } from './findings.ts'
import { endIn, judgeLives } from './lives.ts'
import type { Answers, Trial } from './questions.ts'
import { type Asked, isSuccess, type Sample } from './samples.ts'

/** `url` is the call of the endpoint as people read it. */
export function judge(answers: Answers, { url, field }: { readonly url: string; readonly field: string }): Judgement {
  const unknownOrg = 'answer' in answers.unknownOrg ? answers.unknownOrg.answer : undefined
  const mints = answers.mints.filter((mint) => mint !== unknownOrg)
  const judgements = [
    judgeEndpoint(mints, url),
    judgeReply(mints, field),
    judgeStatedEnd(mints),
    judgeClock(mints),
    judgeSameToken(answers),
    judgeSuccession(answers),
    judgeDelay(answers),
    judgeGoodToken(answers),
    judgeRejections(answers),
    judgeUnknownOrg(answers.unknownOrg),
    judgeLimits(answers.mints, answers.gets),
    judgeKeepAlive(answers.gets),
    judgeLives(answers.lives, answers.isSameToken),
  ]
  const facts: Facts = Object.assign({}, ...judgements.map((each) => each.facts))
  return { findings: judgements.flatMap(({ findings }) => findings), facts }
}

/** `401, Bearer error="invalid_token", application/json`. */
function answerText({ status, failure, challenge, redirect, contentType }: Got | Mint): string {
  if (status === undefined) return failure ?? 'no answer'
  const to = redirect === undefined ? undefined : `a redirect to ${redirect}`
  const parts = [String(status), to, challenge === undefined ? undefined : `challenge ${challenge}`, contentType]
  return parts.filter((part) => part !== undefined).join(', ')
}

function judgeEndpoint(mints: readonly Mint[], url: string): Judgement {
  const about = 'token endpoint'
  const good = mints.filter(({ token }) => token !== undefined)
  const [first] = mints
  if (good.length > 0) {
    const times = good.map(({ durationMs }) => durationMs).sort((a, b) => a - b)
    const slowestMintMs = times.at(-1) ?? 0
    const evidence = `${good.length} of ${mints.length} calls brought one, in ${span(times[0] ?? 0)} to ${span(slowestMintMs)}`
    return only(seen(about, `${url} gives tokens.`, evidence), { slowestMintMs })
  }
  return only(
    notSeen(about, `${url} gives no token: ${whyNoToken(first)}.`, first === undefined ? '' : answerText(first)),
  )
}

function whyNoToken(mint: Mint | undefined): string {
  const { status, allow, members } = mint ?? {}
  if (status === undefined) return 'no answer came'
  if (isSuccess(status))
    return members === undefined ? 'the answer is no JSON object' : 'no member of the answer is one'
  if (status < 400) return 'a redirect, which is not followed'
  if (status === 401) return 'it rejects the App credentials, or is not the address of the endpoint'
  if (status === 405 && allow !== undefined) return `it takes ${allow}: set tokens.endpoint`
  if ([400, 404, 405, 411, 415].includes(status)) return 'it does not take this for a token request'
  return status >= 500 || status === 408 ? 'it has a fault' : 'it refuses this Org'
}

function judgeReply(mints: readonly Mint[], configured: string): Judgement {
  const [about, good] = ['answer', mints.find(({ token }) => token !== undefined)]
  const members = (good ?? mints.find((mint) => mint.members !== undefined))?.members ?? []
  const list = members.length === 0 ? 'none' : members.join(', ')
  if (good?.token === undefined) {
    return only(unasked(about, 'What the answer holds.', members.length === 0 ? 'no token came' : `members: ${list}`))
  }
  const [field = configured] = mints.find(({ token }) => token === undefined)?.candidates ?? []
  const kind = good.token.isJwt ? 'a JWT' : 'opaque'
  const instead = field === configured ? '' : `, not ${configured}`
  return only(seen(about, `The token is the member ${field}${instead}; it is ${kind}.`, `members: ${list}`), { field })
}

function judgeStatedEnd(mints: readonly Mint[]): Judgement {
  const about = 'stated end'
  const good = mints.find(({ token }) => token !== undefined)
  if (good === undefined) return only(unasked(about, 'Whether the answer states an end.', 'no token came'))
  const told = ({ by, lifeMs }: StatedLife) =>
    `${by === 'jwt' ? 'exp' : by} ${lifeMs > 0 ? `is ${span(lifeMs)} ahead` : `has passed ${span(-lifeMs)} ago`}`
  const clock = good.clockOffsetMs === undefined ? 'by our clock' : "by the endpoint's Date"
  const evidence = `${good.stated.map(told).join('; ')}, ${clock}`
  const ahead = good.stated.filter(({ lifeMs }) => lifeMs > 0)
  if (good.stated.length === 0)
    return only(notSeen(about, 'The answer states no end.', 'no exp, no expires_in or expires_at'), { statedBy: [] })
  if (ahead.length === 0)
    return only(notSeen(about, 'The answer states no end that lies ahead.', evidence), { statedBy: [] })
  const statedLifeMs = Math.min(...ahead.map(({ lifeMs }) => lifeMs))
  const statedBy = ahead.map(({ by }) => by)
  return only(seen(about, `A token states that it ends in ${span(statedLifeMs)}.`, evidence), {
    statedBy,
    statedLifeMs,
  })
}

/** `Date` has whole seconds, and is older than the answer. */
const CLOCK_TOLERANCE_MS = 2_000

function judgeClock(mints: readonly Mint[]): Judgement {
  const about = 'clock'
  const offsets = mints.flatMap(({ clockOffsetMs }) => clockOffsetMs ?? []).sort((a, b) => a - b)
  const offsetMs = offsets[offsets.length >> 1]
  if (offsetMs === undefined)
    return only(unasked(about, "Whether the service's clock is right.", 'its answers have no Date'))
  if (Math.abs(offsetMs) <= CLOCK_TOLERANCE_MS) {
    return only(notSeen(about, 'The clocks do not differ.', `Date is within ${span(CLOCK_TOLERANCE_MS)} of our time`))
  }
  const says = `The service's clock is ${span(Math.abs(offsetMs))} ${offsetMs > 0 ? 'ahead of' : 'behind'} ours.`
  return only(seen(about, says, 'its Date, and our time'), { clockOffsetMs: offsetMs })
}

function judgeSameToken({ isSameToken }: Answers): Judgement {
  const about = 'same token'
  if ('reason' in isSameToken)
    return only(unasked(about, 'Whether a second mint gives the same token.', isSameToken.reason))
  const facts = { isSameToken: isSameToken.answer }
  if (isSameToken.answer)
    return only(seen(about, 'A second mint gives the same token again.', 'two mints, one after the other'), facts)
  return only(notSeen(about, 'A second mint gives another token.', 'two mints, one after the other'), facts)
}

/** A token whose life is shorter than so many times the time that was watched may have ended by itself. */
const LEAST_LIFE_FACTOR = 20

function judgeSuccession({ succession, nextSuccession, lives }: Answers): Judgement {
  const about = 'one live token'
  const question = 'Whether a new token ends the one before.'
  if ('reason' in succession) return only(unasked(about, question, succession.reason))
  const { before, after, later, isBeforeAccepted, isAfterAccepted, isLaterAccepted } = succession.answer
  if (!isBeforeAccepted)
    return only(unasked(about, question, `the first token was not accepted: ${answerText(before)}`))
  if (isLaterAccepted) {
    const evidence = `the first token was accepted ${span(later.at - after.at)} after the second one was first used`
    return only(notSeen(about, 'Tokens of an Org live side by side.', evidence), { endsFormer: false })
  }
  if ('reason' in nextSuccession) return only(unasked(about, question, nextSuccession.reason))
  const next = nextSuccession.answer
  if (!next.isBeforeAccepted || next.isLaterAccepted) {
    const reason =
      'the first token ended after the second mint, but the second one not after the third: its time may have been over'
    return only(unasked(about, question, reason))
  }
  const ends = 'answer' in lives ? lives.answer.lives.flatMap(({ rejectedMs }) => rejectedMs ?? []) : []
  if (Math.min(...ends) < (later.at - before.at) * LEAST_LIFE_FACTOR) {
    return only(unasked(about, question, 'tokens end by themselves as soon'))
  }
  const soon = isAfterAccepted ? `within ${span(later.at - after.at)}` : 'at once'
  const evidence = 'twice, the former token was accepted before a mint and rejected behind it'
  return only(seen(about, `A new token ends the one before, ${soon}.`, evidence), { endsFormer: true })
}

function judgeDelay({ secondTrial, firstTrial, olderToken }: Answers): Judgement {
  const about = 'delay'
  const trial = 'answer' in secondTrial ? secondTrial : firstTrial
  if ('reason' in trial) return only(unasked(about, 'How soon a new token is accepted.', trial.reason))
  const { samples, isClean } = trial.answer
  const atOnce = samples.slice(0, CONNECTIONS)
  const late = atOnce.filter(({ isAccepted }) => !isAccepted)
  const count = `${CONNECTIONS - late.length} of ${CONNECTIONS} connections`
  if (late.length === 0) {
    const evidence = `${count} accepted it, ${span(Math.max(...atOnce.map(({ mostAgeMs }) => mostAgeMs)))} after the mint at the latest`
    return only(notSeen(about, 'A new token is accepted at once.', evidence), { delay: { mostMs: 0, share: 0 } })
  }
  if (!samples.some(({ isAccepted }) => isAccepted)) {
    const reason = `a good token got ${[...new Set(samples.map(({ status }) => status ?? 'no answer'))].join(', ')} for ${span(lastAge(samples))}: give another --path`
    return only(unasked(about, 'How soon a new token is accepted.', reason))
  }
  const older = 'answer' in olderToken ? olderToken.answer : []
  const rejected = older.filter(({ isAccepted }) => !isAccepted).length
  if (rejected > 0) {
    const evidence = `${rejected} of ${older.length} GETs with a token that is ${span(lastAge(older))} old`
    const flaky = seen('good tokens rejected', 'A good token is rejected now and then.', evidence)
    return {
      findings: [unasked(about, 'How soon a new token is accepted.', 'older ones are rejected, too'), flaky],
      facts: {},
    }
  }
  if (!isClean) {
    const says = `A new token is rejected for longer than ${span(lastAge(samples))}, or now and then.`
    return only(seen(about, says, `${count} accepted it at once; later ones were still rejected`))
  }
  const { leastMs, mostMs } = delayIn(trial.answer)
  const evidence = `${count} accepted it at once, all of them ${span(mostMs)} after the mint`
  const says = `A new token is accepted late: the delay was ${between(leastMs, mostMs)}.`
  return only(seen(about, says, evidence), { delay: { mostMs, share: late.length / CONNECTIONS } })
}

const lastAge = (samples: readonly Sample[]) => Math.max(...samples.map(({ mostAgeMs }) => mostAgeMs))

/** The delay lies between the last rejection and the acceptance that followed on that connection. */
function delayIn({ samples }: Trial): { leastMs: number; mostMs: number } {
  const ends = [...new Set(samples.map(({ connection }) => connection))].flatMap((connection) => {
    const own = samples.filter((sample) => sample.connection === connection)
    const last = own.findLastIndex(({ isAccepted }) => !isAccepted)
    const [rejected, accepted] = [own[last], own[last + 1]]
    return rejected === undefined || accepted === undefined
      ? []
      : [{ leastMs: rejected.leastAgeMs, mostMs: accepted.mostAgeMs }]
  })
  return ends.reduce((longest, each) => (each.leastMs > longest.leastMs ? each : longest), { leastMs: 0, mostMs: 0 })
}

/** Told only if it is no success: the path may be wrong, although it tells good tokens from others. */
function judgeGoodToken({ firstTrial }: Answers): Judgement {
  const samples = 'answer' in firstTrial ? firstTrial.answer.samples : []
  const odd = samples.find(({ isAccepted, status }) => isAccepted && status !== undefined && !isSuccess(status))
  if (odd === undefined) return { findings: [], facts: {} }
  const says = `A good token gets ${odd.status} there: choose a --path that answers 2xx to it.`
  const alike = samples.filter(({ status }) => status === odd.status).length
  return only(seen('good token', says, `${alike} of ${samples.length} GETs with the first token`))
}

function judgeRejections({ noToken, madeUp, succession, nextSuccession, lives }: Answers): Judgement {
  const findings = [
    rejectionFinding('no token', 'A request without a token', noToken),
    rejectionFinding('made-up token', 'A made-up token', madeUp),
  ]
  const unknownStatus = 'answer' in madeUp ? madeUp.answer.status : undefined
  const facts: Facts = unknownStatus === undefined ? {} : { unknownStatus }
  const isReplaced = 'answer' in succession && 'answer' in nextSuccession && !nextSuccession.answer.isLaterAccepted
  const end = 'answer' in lives ? endIn(lives.answer) : undefined
  const ended = end ?? (isReplaced ? succession.answer.later : undefined)
  if (ended?.status === undefined) {
    const reason = 'none of the tokens is known to have ended: --wait gives them time'
    return {
      findings: [...findings, unasked('ended token', 'What a token is answered that has ended.', reason)],
      facts,
    }
  }
  findings.push(rejectionFinding('ended token', 'A token that has ended', { answer: ended }))
  return { findings, facts: { ...facts, endedStatus: ended.status } }
}

function rejectionFinding(about: string, what: string, got: Asked<Got>): Finding {
  if ('reason' in got) return unasked(about, `${what}: what it is answered.`, got.reason)
  const { status } = got.answer
  if (status === undefined) return unasked(about, `${what}: what it is answered.`, answerText(got.answer))
  if (isSuccess(status)) return notSeen(about, `${what} is not rejected.`, answerText(got.answer))
  return seen(about, `${what} gets ${status}.`, answerText(got.answer))
}

function judgeUnknownOrg(mint: Asked<Mint>): Judgement {
  const about = 'unknown Org'
  const question = 'How an Org that does not exist is refused.'
  if ('reason' in mint) return only(unasked(about, question, mint.reason))
  const { status, isLimited } = mint.answer
  if (status === undefined || isLimited || status === 408 || status >= 500) {
    return only(unasked(about, question, answerText(mint.answer)))
  }
  if (isSuccess(status))
    return only(notSeen(about, 'An Org with a made-up id is not refused.', answerText(mint.answer)))
  const facts = { unknownOrgStatus: status }
  return only(seen(about, `An Org with a made-up id is refused with ${status}.`, answerText(mint.answer)), facts)
}

function judgeLimits(mints: readonly Mint[], gets: readonly Got[]): Judgement {
  const about = 'limits'
  const fieldsOf = (answers: readonly (Got | Mint)[], what: string) => {
    const told = answers.filter(({ limits }) => limits.length > 0)
    return told.length === 0
      ? []
      : [
          `${what}: ${told[0]?.limits.join(', ')}${told.length > 1 ? `; at last ${told.at(-1)?.limits.join(', ')}` : ''}`,
        ]
  }
  const evidence = [...fieldsOf(mints, 'mints'), ...fieldsOf(gets, 'GETs')].join('. ')
  const met = [...mints, ...gets].find(({ isLimited }) => isLimited)
  const mintLimit = limitOf(mints)
  const facts: Facts = mintLimit === undefined ? {} : { mintLimit }
  if (met !== undefined) {
    const what = 'members' in met ? `${mints.length} mints` : `${gets.length} GETs`
    return only(
      seen(about, `A limit was met after ${what}: ${met.status}.`, evidence || 'no field tells its end'),
      facts,
    )
  }
  if (evidence !== '') return only(seen(about, 'Answers tell a limit.', evidence), facts)
  const sent = `${mints.length} mints and ${gets.length} GETs met none, and no field tells one`
  return only(notSeen(about, 'Nothing tells a limit.', sent))
}

/** If nothing of it was used before, the fields of the first mint tell how many mints there may be in which time. */
function limitOf(mints: readonly Mint[]): Facts['mintLimit'] {
  const limits = mints[0]?.limits ?? []
  const numberOf = (name: string) => {
    const [field = ''] = limits.filter((each) => new RegExp(`^(?:x-)?ratelimit-${name}: \\d{1,9}$`, 'i').test(each))
    return field === '' ? undefined : Number(field.slice(field.lastIndexOf(' ') + 1))
  }
  const [count, left, seconds] = [numberOf('limit'), numberOf('remaining'), numberOf('reset')]
  if (count === undefined || left !== count - 1 || seconds === undefined || seconds === 0 || seconds > 86_400)
    return undefined
  return { count, windowMs: seconds * 1_000 }
}

function judgeKeepAlive(gets: readonly Got[]): Judgement {
  const about = 'keep-alive'
  const answered = gets.filter(({ keepsAlive }) => keepsAlive !== undefined)
  const seconds = answered.find(({ keepAliveSeconds }) => keepAliveSeconds !== undefined)?.keepAliveSeconds
  const kept = answered.filter(({ keepsAlive }) => keepsAlive === true).length
  if (answered.length === 0) return only(unasked(about, 'Whether connections stay open.', 'no GET was answered'))
  const evidence = `${kept} of ${answered.length} answers keep the connection`
  if (kept === 0) return only(notSeen(about, 'The service closes each connection.', evidence))
  const time = seconds === undefined ? 'for a time that it does not tell' : `for ${seconds} s, as it says`
  return only(seen(about, `The service keeps idle connections ${time}.`, evidence))
}
