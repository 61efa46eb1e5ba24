/** Oracles of the rules of tokens and of fair shares. Each says in its first lines which stories it can judge. */

import { CALL_SHARE } from './oracles.ts'
import type { Outcome } from './peers/client.ts'
import type { Stage } from './stage.ts'
import type { Story } from './story.ts'
import { DAY_ZERO } from './world/world.ts'

/** `tokens.rejectedCooldown` is 10 s: mints that do not help may follow the first one so much later. */
const USELESS_MINTS_MS = [0, 10_000, 30_000, 70_000, 130_000]
/** Of `listen.maxInFlight`: the most for one Org. */
const ORG_SHARE = 3 / 4
const LEAST_PLACES = 8
/** 401s of a revoked App are told after a minute. */
const REVOKED_MS = 60_000
const ROOM_MS = 6_000
const SETTLED_MS = 50
const STARVED_LOOKS = 10

/** Nothing but the ends of tokens happens to the endpoint, to the network and to the process. */
function isUndisturbed({ tokens, service, stalls, operator }: Story): boolean {
  const isLeftAlone = operator.every(({ what }) => what === 'reload')
  return tokens.troubles.length === 0 && service.outages.length === 0 && stalls.length === 0 && isLeftAlone
}

const slowestMs = ({ lines }: Story): number => 10 * Math.max(...lines.map(({ latencyMs }) => latencyMs)) + SETTLED_MS

/** Requests that the proxy may hold at `at`, as its clients know it. */
function openAt(stage: Stage, at: number): Outcome[] {
  const roomMs = slowestMs(stage.story)
  return stage.outcomes().filter(({ startedAt, endedAt, end }) => {
    // Of one that its client has left, the proxy may hear later.
    const leftMs = end === 'whole' ? roomMs : 5_000
    return startedAt <= at + roomMs && endedAt + leftMs >= at
  })
}

/** Looks while the story goes on. */
export class RuleWatch {
  readonly #stage: Stage
  #isOver = false
  #isTold = false
  /** How many looks saw that a request waits beside a place. */
  readonly #starvedFor = new Map<string, number>()

  constructor(stage: Stage) {
    this.#stage = stage
    this.#look()
  }

  close(): void {
    this.#isOver = true
  }

  #look(): void {
    if (this.#isOver) return
    this.#stage.world.after(100, () => this.#look())
    if (this.#isTold || this.#stage.proxy.app === undefined) return
    this.#isTold = this.#shares() || this.#readiness() || this.#revocation() || this.#starved()
  }

  #shares(): boolean {
    const { proxy, service, story, violate, world } = this.#stage
    const { connections } = story.limits
    const held = new Map<number, number>()
    for (const { plan, at, isAnswered, goneAt } of service.attempts) {
      // The end of others may be on its way.
      if (isAnswered || goneAt < world.now || at > world.now - 500) continue
      held.set(plan.org, (held.get(plan.org) ?? 0) + 1)
    }
    const share = Math.max(1, Math.floor(connections * ORG_SHARE))
    for (const [org, count] of held) {
      if (count <= share || story.stalls.length > 0) continue
      violate('no Org has all connections', `org-${org}: ${count} of ${connections}`)
      return true
    }
    const inFlight = proxy.gauges?.orgsInFlight ?? []
    const most = Math.ceil(story.limits.maxInFlight * ORG_SHARE)
    for (const [org, count] of inFlight) {
      if (count <= most) continue
      violate('no Org has all requests in flight', `${org}: ${count} of ${story.limits.maxInFlight}`)
      return true
    }
    return false
  }

  /** A request of an Org that has a token, and less than its share, waits though connections may be opened. */
  #starved(): boolean {
    const { proxy, service, story, violate, world, clients } = this.#stage
    const { busy = 0 } = proxy.gauges?.originConnections ?? {}
    const { limits, profile } = story
    // Elsewhere, a request may wait for something else.
    if (profile !== 'one Org hangs' || busy >= limits.connections) return false
    const share = Math.max(1, Math.floor(limits.connections * ORG_SHARE))
    for (const { waiting } of clients) {
      if (waiting === undefined || waiting.startedAt > world.now - 1_500 || waiting.plan.content !== undefined) continue
      const { id, org } = waiting.plan
      const hasToken = service.tokens.some((token) => token.org === org && token.issuedAt < world.now - 1_000)
      const held = service.attempts.filter((attempt) => attempt.plan.org === org && !attempt.isAnswered).length
      if (!hasToken || held >= share || service.attempts.some(({ plan }) => plan.id === id)) continue
      const looks = (this.#starvedFor.get(id) ?? 0) + 1
      this.#starvedFor.set(id, looks)
      if (looks < STARVED_LOOKS) continue
      violate('no Org is held up by another', `${id}: ${busy} of ${limits.connections} connections are busy`)
      return true
    }
    return false
  }

  /** One Org that gets 401 may not be linked. */
  #readiness(): boolean {
    const { proxy, service, violate } = this.#stage
    const check = proxy.gauges?.checks.find(({ name }) => name === 'credentials')
    if (check === undefined || check.isOk) return false
    const rejected = service.mints.filter(({ trouble }) => trouble === 'credentials' || trouble === 'unauthorized')
    if (new Set(rejected.map(({ org }) => org)).size >= 2) return false
    violate('readiness needs two Orgs', `${check.detail}`)
    return true
  }

  /** Of two Orgs or more, no call has succeeded for more than a minute: the warning holds. */
  #revocation(): boolean {
    const { proxy, service, violate, world, story } = this.#stage
    const since = service.mints.filter(({ at }) => at >= service.appRevokedAt)
    if (since.length === 0 || story.operator.length > 1) return false
    const held = since.filter(({ org }) => service.tokens.some((token) => token.org === org))
    const began = [...new Set(held.map(({ org }) => org))].map((org) => held.find((call) => call.org === org)?.at ?? 0)
    const second = began.sort((one, other) => one - other)[1]
    const isRecent = (held.at(-1)?.at ?? 0) > world.now - 100_000
    if (second === undefined || world.now < second + REVOKED_MS + ROOM_MS || !isRecent) return false
    if (proxy.app?.warnings().app_credentials_rejected !== undefined) return false
    violate('a revoked App is told', `401s since ${second.toFixed(0)}, and no warning`)
    return true
  }
}

/** Of the story, when it is over. */
export function judgeRules(stage: Stage): void {
  judgeGoodTokens(stage)
  judgeRenewals(stage)
  judgeOrder(stage)
  judgeWrongSecret(stage)
  judgeRefusals(stage)
  judgeSilence(stage)
  judgeUnsent(stage)
  judgeIdle(stage)
  judgePurges(stage)
  judgeResume(stage)
  judgeLearnedStatus(stage)
  judgePassedRejections(stage)
}

/** Tokens that nobody ended are not replaced again and again. */
function judgeGoodTokens({ story, service, violate, world, outcomes }: Stage): void {
  const { tokens, limits } = story
  const isKnown = tokens.lagMs + slowestMs(story) < limits.settleTimeMs || tokens.lagMs === 0
  const isEndless = Math.min(...tokens.livesMs) > 1_000_000 && limits.lifetimeMs === undefined
  const revoked = story.operator.flatMap((step) => (step.what === 'revoke' ? step.org : []))
  const isOurs = isUndisturbed({ ...story, operator: story.operator.filter(({ what }) => what !== 'revoke') })
  const isApt = isOurs && isKnown && isEndless && !tokens.hasOneLive && tokens.deaf === undefined
  if (!isApt || tokens.wrongSecretUntil > 0) return
  const from = new Map<number, number>()
  const count = new Map<number, number>()
  const inTimeMs = limits.mintTimeoutMs * CALL_SHARE - slowestMs(story)
  for (const { org, at, endedAt } of service.mints) {
    // The proxy may have given it up, and got no token.
    if (endedAt - at > inTimeMs) continue
    from.set(org, from.get(org) ?? at)
    count.set(org, (count.get(org) ?? 0) + 1)
  }
  for (const [org, mints] of count) {
    const lastedMs = world.now - (from.get(org) ?? 0)
    // Only a row of other answers costs mints of good tokens.
    const hasRows = outcomes().some(({ plan }) => plan.org === org && plan.answer.status >= 300)
    const useless = hasRows ? USELESS_MINTS_MS.filter((ms) => ms <= lastedMs).length : 0
    const most = 1 + useless + revoked.filter((each) => each === org).length
    if (mints > most)
      violate('good tokens are kept', `org-${org}: ${mints} mints in ${(lastedMs / 1_000).toFixed(0)} s`)
  }
}

/** Where ends are stated and an Org asks all the time, nobody waits for a renewal. */
function judgeRenewals(stage: Stage): void {
  const { story, service, violate, proxy, clients } = stage
  const { tokens, limits } = story
  const [, slowestAnswerMs] = tokens.answerMs
  const isApt = isUndisturbed(story) && tokens.isStated && tokens.lagMs === 0 && !tokens.hasOneLive
  if (!isApt || story.profile !== 'steady renewals' || limits.lifetimeMs !== undefined || slowestAnswerMs > 100) return
  // A renewal that brings the same token comes again after half of what is left: a request has to fall between that and the end.
  const gapMs = Math.max(...stage.outcomes().map(({ plan }) => plan.afterMs)) + slowestMs(story)
  if (tokens.keepsMs !== undefined && tokens.keepsMs < 2 * gapMs) return
  for (const [i, { outcomes }] of clients.entries()) {
    const org = outcomes[0]?.plan.org
    const firstAt = service.tokens.find((token) => token.org === org)?.issuedAt ?? Number.POSITIVE_INFINITY
    const late = new Set(
      outcomes.filter(({ startedAt }) => startedAt > firstAt + 1_000).map(({ plan }) => `/v2/${plan.id}`),
    )
    const waited = proxy.logs.filter(
      ({ msg, path, token }) => msg === 'request' && late.has(String(path)) && (token === 'miss' || token === 'joined'),
    )
    if (waited.length > 0) violate('nobody waits for a renewal', `client-${i}: ${waited.length} requests waited`)
  }
}

/** A renewal for which nobody waits goes behind a cold Org that has waited for a second. A mint for a rejected token is awaited. */
function judgeOrder(stage: Stage): void {
  const { story, service, violate } = stage
  if (!isUndisturbed(story) || !story.tokens.isStated || story.tokens.wrongSecretUntil > 0) return
  const firstMint = new Map<number, number>()
  for (const { org, at } of service.mints) firstMint.set(org, firstMint.get(org) ?? at)
  const waiting = stage.outcomes().filter(({ plan, startedAt, isReused }) => {
    const mintedAt = firstMint.get(plan.org) ?? Number.POSITIVE_INFINITY
    return !isReused && mintedAt > startedAt + 1_000
  })
  if (waiting.length === 0) return
  const roomMs = slowestMs(story)
  const loggedAt = requestsLoggedAt(stage)
  for (const { org, at } of service.mints) {
    const held = service.tokens.findLast((token) => token.org === org && token.issuedAt < at)
    // Whoever needs a token now may be waited for.
    if (held === undefined) continue
    const { lifetimeMs = Number.POSITIVE_INFINITY } = story.limits
    if (Math.min(held.endsAt, held.issuedAt + lifetimeMs) < at + 300) continue
    if (service.attempts.some((attempt) => attempt.token === held && !attempt.isAccepted && attempt.at < at)) continue
    const cold = waiting.find(
      ({ plan, startedAt, endedAt }) =>
        startedAt < at - 1_000 - roomMs &&
        Math.min(endedAt, loggedAt.get(plan.id) ?? endedAt) > at &&
        (firstMint.get(plan.org) ?? Number.POSITIVE_INFINITY) > at,
    )
    if (cold === undefined) continue
    violate('who is awaited goes first', `org-${org} is renewed at ${at.toFixed(0)}, and ${cold.plan.id} waits`)
    return
  }
}

/** From the second Org that got 401 on, whoever asks is told so at once. */
function judgeWrongSecret(stage: Stage): void {
  const { story, service, violate } = stage
  const { wrongSecretUntil, troubles, answerMs } = story.tokens
  const isApt = wrongSecretUntil > 0 && troubles.length === 0 && story.service.outages.length === 0
  if (!isApt || story.stalls.length > 0 || story.operator.length > 0) return
  const orgs = new Set<number>()
  let second = Number.POSITIVE_INFINITY
  for (const { org, endedAt } of service.mints) {
    orgs.add(org)
    if (orgs.size === 2) second = Math.min(second, endedAt)
  }
  second += slowestMs(story)
  for (const { plan, startedAt, endedAt, code, end, status } of stage.outcomes()) {
    if (end === 'left' || end === 'refused' || startedAt > wrongSecretUntil || status === undefined) continue
    const waitedMs = Math.min(endedAt, wrongSecretUntil) - Math.max(startedAt, second)
    const isLate = waitedMs > 1_500 + 2 * answerMs[1] + slowestMs(story)
    const isOther = code === 'token_endpoint_unavailable' || code === 'token_endpoint_timeout'
    if (isLate || (isOther && endedAt > second && endedAt < wrongSecretUntil))
      violate('a wrong secret is told at once', `${plan.id}: ${code} after ${(endedAt - startedAt).toFixed(0)} ms`)
  }
}

/** By the id of the request. Its client may have read the end later. */
function requestsLoggedAt({ proxy }: Stage): Map<string, number> {
  const lines = proxy.logs.filter(({ msg }) => msg === 'request')
  return new Map(
    lines.map(({ path, time }) => [String(path).slice('/v2/'.length), Date.parse(String(time)) - DAY_ZERO]),
  )
}

/** A limit that a refusal names is reached. */
function judgeRefusals(stage: Stage): void {
  const { story, proxy, violate } = stage
  const { maxInFlight, connections } = story.limits
  if (story.stalls.length > 0 || story.service.outages.length > 0) return
  const waiting = Math.max(Math.floor(maxInFlight / 2), LEAST_PLACES)
  const least: Readonly<Record<string, { readonly all?: number; readonly ofOrg?: number }>> = {
    'listen.maxInFlight': { all: maxInFlight },
    'requests of one Org': { ofOrg: Math.ceil(maxInFlight * ORG_SHARE) },
    'waiting requests': { all: waiting },
    'waiting requests of one Org': { ofOrg: Math.max(waiting / 2, LEAST_PLACES) },
    'origin.connections': { all: connections },
    'org share': { ofOrg: Math.max(1, Math.floor(connections * ORG_SHARE)) },
  }
  const refusals = new Map(proxy.logs.filter(({ msg }) => msg === 'request').map((line) => [line['path'], line]))
  const loggedAt = requestsLoggedAt(stage)
  for (const { plan, code } of stage.outcomes()) {
    const reason = refusals.get(`/v2/${plan.id}`)?.['reason']
    const at = loggedAt.get(plan.id)
    if (code !== 'overloaded' || at === undefined) continue
    const { all = 0, ofOrg = 0 } = least[String(reason)] ?? {}
    const open = openAt(stage, at).filter((other) => other.plan.id !== plan.id)
    const tunnels = [...stage.service.tunnels.values()].filter(({ openedAt }) => openedAt < at).length
    const sameOrg = open.filter((other) => other.plan.org === plan.org).length
    if (open.length + tunnels < all || sameOrg + tunnels < ofOrg)
      violate('a limit that is named is reached', `${plan.id}: ${reason}, ${open.length} open, ${sameOrg} of its Org`)
  }
}

/** A request that was never sent does not fail with the idle connection that it had got. */
function judgeUnsent({ story, violate, outcomes, service, stoppedAt }: Stage): void {
  const { idleMs, outages } = story.service
  if (outages.length > 0 || stoppedAt !== undefined || story.stalls.length > 0 || idleMs < 2 * slowestMs(story)) return
  const sent = new Set(service.attempts.map(({ plan }) => plan.id))
  for (const { plan, code } of outcomes()) {
    const isSafe = plan.content === undefined && (plan.method === 'GET' || plan.method === 'HEAD')
    if (code === 'connection_terminated' && isSafe && !sent.has(plan.id))
      violate('what was not sent goes elsewhere', `${plan.id}: ${code}`)
  }
}

/** A client that waits for 100 (Continue) is silent because of us. */
function judgeSilence({ violate, outcomes }: Stage): void {
  for (const { plan, code, isInvited, isSent } of outcomes()) {
    if (code === 'request_timeout' && plan.content?.expects === true && !isInvited && !isSent)
      violate('nobody is timed out for our silence', plan.id)
  }
}

function judgeIdle({ clients, story, violate }: Stage): void {
  for (const { dribbledMs } of clients) {
    if (dribbledMs > story.limits.keepAliveTimeoutMs + ROOM_MS)
      violate('an idle connection ends', `parts of empty lines for ${dribbledMs} ms`)
  }
}

/** What was remembered or begun before a purge of its Org serves nobody who comes behind it. */
function judgePurges(stage: Stage): void {
  const { story, service, violate } = stage
  if (story.stalls.length > 0) return
  const roomMs = slowestMs(story)
  for (const step of story.operator) {
    if (step.what !== 'purge' && step.what !== 'purge all') continue
    const only = step.what === 'purge' ? step.org : undefined
    const isMeant = (org: number) => only === undefined || only === org
    const isAsked = (org: number, until: number) =>
      service.mints.some((call) => call.org === org && call.at >= step.at && call.at <= until)
    for (const { plan, startedAt, endedAt, code } of stage.outcomes()) {
      if (startedAt < step.at + roomMs || !isMeant(plan.org)) continue
      if (code === 'org_access_refused' && !isAsked(plan.org, endedAt))
        violate('a purge forgets', `${plan.id}: a refusal from before the purge at ${step.at.toFixed(0)}`)
    }
    // A mint that was under way serves those who wait for it, and nobody else.
    const startOf = new Map(stage.outcomes().map(({ plan, startedAt }) => [plan.id, startedAt]))
    for (const { plan, token } of service.attempts) {
      if (token === undefined || !isMeant(plan.org) || (startOf.get(plan.id) ?? 0) < step.at + roomMs) continue
      if (token.calledAt < step.at - roomMs)
        violate('a purge forgets', `${plan.id} has a token from before the purge at ${step.at.toFixed(0)}`)
    }
  }
}

/** Behind a resume, a rejection that a client gets was held against a new token. */
function judgeResume(stage: Stage): void {
  const { story, service, violate } = stage
  if (story.profile !== 'useless mints') return
  const resumedAt = story.operator.find(({ what }) => what === 'resume')?.at ?? Number.POSITIVE_INFINITY
  for (const { plan, startedAt, endedAt, status } of stage.outcomes()) {
    if (status !== 401 || startedAt < resumedAt + slowestMs(story)) continue
    const isAsked = service.mints.some(({ org, at }) => org === plan.org && at >= resumedAt && at <= endedAt)
    if (!isAsked) violate('resume ends each pause', `${plan.id}: 401, and no mint since`)
  }
}

/** Where tokens end by another status than 401, a warning names it, though the app only POSTs. */
function judgeLearnedStatus({ story, violate, proxy, service }: Stage): void {
  const { rejectsWith } = story.tokens
  if (rejectsWith === undefined || story.limits.rejectedStatuses !== undefined || service.tokens.length < 5) return
  const told = proxy.app?.warnings().rejection_status_learned
  if (told === undefined)
    violate('a status that ends tokens is named', `${rejectsWith}: ${service.tokens.length} tokens`)
}

/** A request that can be sent again does not get the rejection of a token that was only too young. */
function judgePassedRejections({ story, violate, outcomes }: Stage): void {
  const { tokens, limits } = story
  const isEndless = Math.min(...tokens.livesMs) > 1_000_000 && limits.lifetimeMs === undefined
  const isYoung = tokens.lagMs + slowestMs(story) < limits.settleTimeMs || tokens.lagMs === 0
  const isApt = isUndisturbed(story) && isEndless && isYoung && !tokens.hasOneLive && tokens.deaf === undefined
  if (!isApt || tokens.rejectsWith !== undefined) return
  for (const { plan, status, answers } of outcomes()) {
    const isRejection = status === 401 && answers === undefined
    if (isRejection && plan.content === undefined) violate('a young token is waited for', `${plan.id} gets 401`)
  }
}
