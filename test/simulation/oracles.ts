/** What must always hold. Each has a name, which the output tells; README.md says of each which fault it alone finds. */

import type { Client, Outcome } from './peers/client.ts'
import type { Attempt } from './peers/service.ts'
import type { Stage } from './stage.ts'
import type { RequestPlan } from './story.ts'
import { DAY_ZERO } from './world/world.ts'

/** When one side of a tunnel has ended, the other has ten seconds, or `listen.idleTimeout` as long as bytes wait. And some room. */
const TUNNEL_END_MS = 10_000
const ROOM_MS = 6_000
/** A tunnel is looked at each second, and bytes before an end take their time. */
const AT_ONCE_MS = 4_000
/** No time limit passes meanwhile. */
const SHORT_STALL_MS = 100
/** The end of a stop behind its deadline. */
const STOP_ROOM_MS = 2_000
/** Methods that may be carried out twice, where a connection failed (contract: repeats on connection failure). */
const IDEMPOTENT = ['GET', 'HEAD', 'OPTIONS', 'PUT', 'DELETE']

/** Of `tokens.mintTimeout`: the most for one call. */
export const CALL_SHARE = 4 / 5

/** Looks while the story goes on. */
export class Watch {
  readonly #stage: Stage
  #isOver = false
  #besideConnection = 0
  #besidePlace = 0
  #mintsSeen = 0

  constructor(stage: Stage) {
    this.#stage = stage
    this.#look()
  }

  close(): void {
    this.#isOver = true
  }

  #look(): void {
    if (this.#isOver) return
    const { world, proxy, service, story, violate } = this.#stage
    world.after(50, () => this.#look())
    const { limits } = story
    const { gauges } = proxy
    if (gauges === undefined) return
    const { requestsInFlight, clientConnections, mintCalls, mintCallsWaiting, originConnections, tunnels } = gauges
    const { busy, free, pending } = originConnections
    if (requestsInFlight > limits.maxInFlight) violate('limits', `${requestsInFlight} requests in flight`)
    if (clientConnections > limits.maxConnections) violate('limits', `${clientConnections} client connections`)
    if (mintCalls > limits.mintConcurrency) violate('limits', `${mintCalls} calls of the endpoint`)
    if (busy + free > limits.connections)
      violate('limits', `${busy + free} connections to the service (${tunnels} tunnels)`)
    // While nothing is busy, no Org is at its share. And connections are opened in less than a second, where the network lets them.
    const isStalled = story.stalls.some(({ at, lengthMs }) => world.now >= at && world.now <= at + lengthMs + 1_000)
    const isOut = story.service.outages.some(({ from, to }) => world.now >= from && world.now <= to + 4_000)
    const waitsBeside = free > 0 && pending > 0 && busy === 0 && !isStalled && !isOut
    this.#besideConnection = waitsBeside ? this.#besideConnection + 1 : 0
    if (this.#besideConnection === 20)
      violate('nobody waits beside a free connection', JSON.stringify(originConnections))
    // The slowest pace lets one call in within two seconds.
    const hasBegun = service.mints.length > this.#mintsSeen
    this.#mintsSeen = service.mints.length
    const waitsBesidePlace = mintCalls === 0 && mintCallsWaiting > 0 && !hasBegun && !isStalled && !isOut
    this.#besidePlace = waitsBesidePlace ? this.#besidePlace + 1 : 0
    if (this.#besidePlace === 100)
      violate('nobody waits beside a free place', `${mintCallsWaiting} calls of the endpoint`)
  }
}

/** Of the story, when everybody is done, or has waited for longer than anything may take. */
export function judge(stage: Stage): void {
  const { clients, service, violate, world } = stage
  for (const fault of [...service.faults, ...clients.flatMap(({ faults }) => faults)])
    violate('content is whole', fault)
  for (const [oracle, text] of service.violations) violate(oracle, text)
  clients.forEach((client, i) => {
    const { waiting } = client
    if (waiting !== undefined)
      violate(
        'an answer in bounded time',
        `client-${i} waits for ${waiting.plan.id} since ${waiting.startedAt.toFixed(0)}`,
      )
    else if (!client.isDone) violate('an answer in bounded time', `client-${i} cannot go on`)
  })
  const attempts = new Map<string, Attempt[]>()
  for (const attempt of service.attempts) {
    const { id } = attempt.plan
    const all = attempts.get(id) ?? []
    all.push(attempt)
    attempts.set(id, all)
  }
  for (const outcome of stage.outcomes()) judgeOutcome(stage, outcome, attempts.get(outcome.plan.id) ?? [])
  for (const [id, all] of attempts) judgeAttempts(stage, id, all)
  judgeMints(stage)
  judgeStatus(stage)
  judgeTunnels(stage)
  judgeLog(stage)
  void world
}

function judgeOutcome(stage: Stage, outcome: Outcome, attempts: readonly Attempt[]): void {
  const { violate } = stage
  const { plan, status, answers, content, code, end } = outcome
  const { id, answer } = plan
  const rejection = stage.story.tokens.rejectsWith ?? 401
  if (stage.service.poisoned.has(id)) return
  if (answers !== undefined && answers !== id) violate('the answer is that request’s', `${id}: that of ${answers}`)
  if (end === 'whole' && answers !== undefined) {
    if (!attempts.some(({ isAccepted }) => isAccepted))
      violate('the answer is that request’s', `${id}: an answer that the service did not give`)
    else if (status !== answer.status) violate('the answer is that request’s', `${id}: ${status} for ${answer.status}`)
    const hasContent = plan.method !== 'HEAD' && answer.status !== 204 && answer.status !== 304
    // Without a length, a service that closes in the middle looks like one that is done.
    const mayLookWhole = answer.framing === 'end' && answer.cut?.how === 'close'
    if (hasContent && content?.isWhole !== true && !mayLookWhole)
      violate('content is whole', `${id}: a whole answer has ${content}`)
  }
  const last = attempts.at(-1)
  const hasCome = last?.isAccepted === true && last.hasArrived && !isTooSlow(stage, outcome, last)
  if (hasCome && end !== 'left' && answers !== id) violate('an answer that came arrives', `${id}: ${code ?? end}`)
  if (end === 'whole' && code === undefined && answers === undefined && status !== rejection && status !== 101)
    violate('the answer is that request’s', `${id}: ${status} from nowhere`)
  if (code === 'proxy_internal_error') violate('nothing is thrown', `${id}: ${code}`)
  const isOurs = code !== undefined || (end === 'broken' && !outcome.isReused)
  if (isOurs && !hasCause(stage, outcome, attempts))
    violate('no failure without a cause', `${id}: ${code ?? `broken by ${outcome.how}`}`)
}

/** The proxy may have given up before: a limit that the story lets pass. */
function isTooSlow({ story, stoppedAt, world }: Stage, outcome: Outcome, { at, answeredAt }: Attempt): boolean {
  const { limits, lines, stalls } = story
  const { plan, endedAt } = outcome
  const slowest = Math.max(...lines.map(({ latencyMs }) => latencyMs))
  if (stoppedAt !== undefined && endedAt >= stoppedAt) return true
  if (stalls.some(({ lengthMs }) => lengthMs > SHORT_STALL_MS) || outcome.isReused) return true
  if (plan.readPace !== undefined || plan.writePace !== undefined || plan.content?.expects === true) return true
  if (isOdd(plan)) return true
  const limitMs = Math.min(limits.responseTimeoutMs, limits.idleTimeoutMs, limits.serviceIdleTimeoutMs)
  return answeredAt - at > limitMs / 2 || slowest > 20 || world.now < answeredAt
}

/** The client itself makes it fail. */
const isOdd = ({ takes, surplus, content }: RequestPlan) =>
  takes !== undefined || surplus !== undefined || content?.stopsAt !== undefined

/** True if something in the story explains an error of the proxy, or an answer that broke. */
function hasCause(
  { story, service, stoppedAt, outcomes }: Stage,
  outcome: Outcome,
  attempts: readonly Attempt[],
): boolean {
  const { limits, tokens } = story
  const { plan, startedAt, endedAt, code } = outcome
  const overlaps = (from: number, to: number, sinceMs = 0) => to >= startedAt - sinceMs && from <= endedAt
  if (stoppedAt !== undefined && endedAt >= stoppedAt) return true
  const isCrowded = () => {
    const all = outcomes().filter((other) => other.startedAt <= endedAt && other.endedAt >= startedAt - 1_000)
    const tunnels = [...service.tunnels.values()].filter(({ openedAt }) => openedAt <= endedAt)
    const least = Math.min(limits.maxInFlight / 2, limits.connections * 0.75, limits.maxConnections, 8)
    return all.length + tunnels.length >= least
  }
  const hasOutage = story.service.outages.some(({ from, to }) => overlaps(from, to, 5_000))
  const hasClosed = service.closedAt.some((at) => overlaps(at, at, 200)) || plan.answer.afterwards !== 'keep'
  const isBroken = attempts.some((attempt) => attempt.isBroken) || plan.answer.cut !== undefined
  const isSlow =
    plan.answer.hangs ||
    plan.answer.afterMs > limits.responseTimeoutMs / 2 ||
    plan.writePace !== undefined ||
    plan.content?.expects === true
  switch (code) {
    case 'overloaded':
      return isCrowded()
    case 'connection_refused':
    case 'connection_timeout':
      return hasOutage
    case 'connection_terminated':
      return hasOutage || hasClosed || isBroken
    case 'http_response_incomplete':
      return isBroken || hasClosed
    case 'http_response_timeout':
      return isSlow || hasOutage
    case 'request_timeout':
      return plan.writePace !== undefined || plan.content?.expects === true || isOdd(plan)
    case 'request_invalid':
      return plan.surplus !== undefined
    case 'http_protocol_error':
      return isBroken
    case 'org_access_refused':
    case 'app_credentials_rejected':
    case 'token_response_invalid':
    case 'token_endpoint_rate_limited':
    case 'token_endpoint_unavailable':
    case 'token_endpoint_timeout': {
      const hasTrouble = tokens.troubles.some(({ from, to }) => overlaps(from, to, 40_000))
      const isChanged =
        tokens.wrongSecretUntil > 0 || story.operator.some(({ what }) => what === 'rotate' || what === 'revoke the App')
      return hasTrouble || isChanged || hasOutage || isBehind(story)
    }
    case undefined:
      return (
        isBroken ||
        hasClosed ||
        hasOutage ||
        isCrowded() ||
        plan.readPace !== undefined ||
        plan.answer.pace !== undefined ||
        isSlow ||
        isOdd(plan)
      )
    default:
      return false
  }
}

/** A call, or the budget for the Orgs of the story, may take too long. */
function isBehind({ limits, tokens }: Stage['story']): boolean {
  const orgs = tokens.livesMs.length
  const [, slowestMs] = tokens.answerMs
  const callsMs = (orgs / limits.mintConcurrency) * (slowestMs + 200)
  const rateMs = (orgs / limits.mintRate) * 1_000
  const shortest = Math.min(...tokens.livesMs, limits.lifetimeMs ?? Number.POSITIVE_INFINITY)
  if (slowestMs + 200 > limits.mintTimeoutMs * CALL_SHARE) return true
  return callsMs > limits.mintTimeoutMs / 4 || rateMs > limits.mintTimeoutMs / 4 || shortest < callsMs + rateMs + 1_000
}

function judgeAttempts({ violate, story, world }: Stage, id: string, attempts: readonly Attempt[]): void {
  const [first] = attempts
  if (first === undefined) return
  const { plan } = first
  const accepted = attempts.filter(({ isAccepted }) => isAccepted)
  const hasContent = plan.content !== undefined && (plan.content.bytes > 0 || plan.content.isChunked)
  const mayBeTwice = !hasContent && IDEMPOTENT.includes(plan.method)
  if (accepted.length > (mayBeTwice ? 3 : 1))
    violate('nothing is carried out twice', `${id} ${plan.method}: ${accepted.length} times`)
  if (attempts.length > 40) violate('nothing is carried out twice', `${id} came ${attempts.length} times`)
  for (const { token, at } of attempts) {
    if (token === undefined) violate('never another Org’s token', `${id}: a token that nobody has issued`)
    else if (token.org !== plan.org)
      violate('never another Org’s token', `${id} of org-${plan.org}: one of org-${token.org}`)
    const slowest = Math.max(...story.lines.map(({ latencyMs }) => latencyMs))
    // An end that has passed when the token arrives is none: the call must be much shorter than the life.
    const hasEnd = token !== undefined && story.tokens.isStated && token.endsAt - token.issuedAt > 3_000
    const isLate = hasEnd && at > token.endsAt + 4 * slowest + 50
    const isStalled = story.stalls.length > 0
    if (isLate && !isStalled) violate('no token past its stated end', `${id}: ${(at - token.endsAt).toFixed(0)} ms`)
  }
  void world
}

function judgeMints({ service, violate, story }: Stage): void {
  const hasPurges = story.operator.some(({ what }) => what.startsWith('purge'))
  const lastOf = new Map<number, number>()
  for (const { org, at, overAt } of service.mints) {
    const runs = lastOf.get(org) ?? 0
    // That a call was given up comes with the end of its connection.
    if (runs > at + 100 && !hasPurges && story.stalls.length === 0)
      violate('one mint per Org at a time', `org-${org} at ${at.toFixed(0)}`)
    lastOf.set(org, overAt)
  }
}

/** The page calls a token fresh only if the service said so last. */
function judgeStatus({ proxy, service, violate, outcomes, story }: Stage): void {
  const lastOf = new Map<string, Attempt>()
  for (const attempt of service.attempts) lastOf.set(`org-${attempt.plan.org}`, attempt)
  for (const id of service.poisoned) lastOf.delete(`org-${service.plans.get(id)?.org}`)
  for (const { org, state } of proxy.orgStatuses()) {
    const last = lastOf.get(org)
    // The proxy may not have read the answer: its client had left, or the service was too slow.
    const isRead = outcomes().some(
      ({ plan, end, code }) => plan === last?.plan && end === 'whole' && code !== 'http_response_timeout',
    )
    // Another status than 401 may say something else. And of a later token, the service has said nothing.
    const isNewest = !service.tokens.some(
      (token) => `org-${token.org}` === org && token.issuedAt > (last?.token?.issuedAt ?? 0),
    )
    const isRejected =
      last?.isAccepted === false && last.isAnswered && story.tokens.rejectsWith === undefined && isNewest
    if ((state === 'fresh' || state === 'young') && isRejected && isRead)
      violate('the status is what the service says', `${org} is ${state}, but its last request was rejected`)
  }
  const { requests } = proxy.app?.operator.metrics.totals() ?? {}
  const omitted = proxy.app?.inspect().logLinesOmitted ?? 0
  const lines = proxy.logs.filter(({ msg }) => msg === 'request').length + omitted
  if (requests !== lines) violate('the metrics add up', `${requests} requests, ${lines} lines`)
}

/** One side has ended, and time is over. */
function judgeTunnels({ service, clients, story, violate, world, proxy, outcomes }: Stage): void {
  const slowReaders = new Set(outcomes().flatMap(({ plan }) => (plan.readPace === undefined ? [] : [plan.id])))
  const ended = new Map(
    proxy.logs
      .filter(({ msg }) => msg === 'websocket ended')
      .map(({ path, time }) => [path, Date.parse(String(time)) - DAY_ZERO]),
  )
  const ofClients = new Map(clients.flatMap(({ tunnels }) => [...tunnels]))
  const limitMs = Math.max(TUNNEL_END_MS, story.limits.idleTimeoutMs) + ROOM_MS
  const apartMs = 50 + 10 * Math.max(...story.lines.map(({ latencyMs }) => latencyMs))
  for (const [id, atService] of service.tunnels) {
    const atClient = ofClients.get(id)
    if (atClient === undefined) continue
    const leftAt = Math.min(atService.leftAt ?? Number.POSITIVE_INFINITY, atClient.leftAt ?? Number.POSITIVE_INFINITY)
    // A tunnel in which something moves is no dead one.
    const isDue = world.now > leftAt + 2 * limitMs + 15_000
    for (const { received_ } of [atService, atClient]) {
      if (received_.wrongAt !== undefined) violate('content is whole', `tunnel ${id}: ${received_}`)
    }
    if (isDue && !ended.has(`/v2/${id}`)) violate('a tunnel ends', `${id}, left at ${leftAt.toFixed(0)}`)
    const isUndisturbed = story.stalls.length === 0
    // A clean end says that all has come.
    for (const [one, other] of [
      [atService, atClient],
      [atClient, atService],
    ] as const) {
      if (one.endedBy === 'end' && other.hasLeft === 'end' && !one.received_.isWhole)
        violate('content is whole', `tunnel ${id}: a clean end behind ${one.received_}`)
      const otherLeftAt = other.leftAt ?? Number.POSITIVE_INFINITY
      // With the bytes before it, a reset reads as an end.
      const isReset = other.hasLeft === 'reset' && (other.plan.ends?.afterMs ?? 0) > apartMs
      const brokeLate = isReset && (ended.get(`/v2/${id}`) ?? world.now) > otherLeftAt + AT_ONCE_MS
      if (brokeLate && isUndisturbed)
        violate('a reset breaks both sides at once', `${id}, at ${otherLeftAt.toFixed(0)}`)
      const reads = one.plan.reads === 'all' && !(one === atClient && slowReaders.has(id))
      const isTold = reads && one.leftAt === undefined && other.hasLeft === 'end'
      if (isTold && isUndisturbed && (one.endedAt ?? world.now) > otherLeftAt + AT_ONCE_MS)
        violate('the end of one side reaches the other', `${id}, at ${otherLeftAt.toFixed(0)}`)
    }
  }
}

function judgeLog({ proxy, violate, outcomes }: Stage): void {
  let omitted = proxy.app?.inspect().logLinesOmitted ?? 0
  const lines = new Map<unknown, number>()
  for (const { msg, path } of proxy.logs) if (msg === 'request') lines.set(path, (lines.get(path) ?? 0) + 1)
  const tries = new Map<string, { all: number; answered: number }>()
  for (const { plan, status } of outcomes()) {
    const found = tries.get(plan.id) ?? { all: 0, answered: 0 }
    tries.set(plan.id, { all: found.all + 1, answered: found.answered + (status === undefined ? 0 : 1) })
  }
  for (const [id, { all, answered }] of tries) {
    const logged = lines.get(`/v2/${id}`) ?? 0
    // Of many refusals, some have none, which is told.
    const missing = Math.max(0, answered - logged)
    omitted -= missing
    if (omitted < 0 || logged > all) violate('one log line a request', `${id}: ${logged} lines`)
  }
  for (const line of proxy.logs)
    if (line.level === 'error' || line.level === 'fatal') violate('nothing is thrown', JSON.stringify(line))
}

/** Everybody has left, and all time limits have passed. */
export function judgeQuiet(
  { proxy, violate, network, service, stoppedAt, world }: Stage,
  timersAtRest: readonly number[],
): void {
  const gauges = proxy.app?.inspect()
  if (gauges === undefined) return
  const {
    requestsInFlight,
    requestsWaitingForToken,
    mintCalls,
    mintCallsWaiting,
    keptBytes,
    tunnels,
    clientConnections,
  } = gauges
  const { busy = 0, free = 0, pending = 0 } = gauges.originConnections
  const held = {
    requestsInFlight,
    requestsWaitingForToken,
    mintCalls,
    mintCallsWaiting,
    keptBytes,
    tunnels,
    clientConnections,
    busy,
    free,
    pending,
  }
  for (const [name, value] of Object.entries(held)) if (value !== 0) violate('all is given back', `${name}: ${value}`)
  const sockets = [...network.open].filter(({ name }) => name.startsWith('proxy#') || name.startsWith('8080#'))
  if (sockets.length > 0) violate('no socket is left', sockets.map(({ name }) => name).join(' '))
  if (service.connections.size > 0 && stoppedAt === undefined)
    violate('no socket is left', `${service.connections.size} at the service`)
  if (stoppedAt !== undefined) return
  const left = [...timersAtRest]
  const more = proxy.loop.timers.active.filter(({ delayMs }) => {
    const at = left.indexOf(delayMs)
    if (at !== -1) left.splice(at, 1)
    return at === -1
  })
  if (more.length > 0)
    violate('no timer is left', more.map(({ delayMs, origin }) => `${delayMs} ms ${origin ?? ''}`).join(', '))
  void world
}

export function judgeProbe({ violate }: Stage, clients: readonly Client[]): void {
  const failed = clients.flatMap(({ outcomes, waiting }) => {
    const [outcome] = outcomes
    if (outcome?.end === 'whole' && outcome.status === 200 && waiting === undefined) return []
    return [`${outcome?.plan.id} ${outcome?.status} ${outcome?.code ?? outcome?.end}`]
  })
  if (failed.length > 0) violate('all is given back', `of ${clients.length} cold requests: ${failed.join(', ')}`)
}

export function judgeStopped(stage: Stage): void {
  const { proxy, network, violate, story, stoppedAt, stop } = stage
  const stallMs = story.stalls.reduce((sum, { lengthMs }) => sum + lengthMs, 0)
  if (stop === undefined) violate('it stops', 'it does not end')
  else if (stop.at > (stoppedAt ?? stop.at) + story.limits.shutdownMs + stallMs + STOP_ROOM_MS)
    violate('it stops', `asked at ${stoppedAt?.toFixed(0)}, ended at ${stop.at.toFixed(0)}`)
  judgeTunnelLines(stage)
  const sockets = [...network.open].filter(({ name }) => name.startsWith('proxy#') || name.startsWith('8080#'))
  if (sockets.length > 0) violate('no socket is left', `after the stop: ${sockets.map(({ name }) => name).join(' ')}`)
  const listening = network.listening.filter(({ port }) => port === 8_080)
  if (listening.length > 0) violate('no listener is left', 'after the stop')
  const { active } = proxy.loop.timers
  if (active.length > 0)
    violate(
      'no timer is left',
      `after the stop: ${active.map(({ delayMs, origin }) => `${delayMs} ms ${origin ?? ''}`).join(', ')}`,
    )
}

/** When the program ends, each WebSocket that a client has seen opened has had its line. */
function judgeTunnelLines({ clients, proxy, service, stop, violate }: Stage): void {
  const lines = proxy.logs.slice(0, stop?.lines).filter(({ msg }) => msg === 'websocket ended')
  for (const id of clients.flatMap(({ tunnels }) => [...tunnels.keys()])) {
    const count = lines.filter(({ path }) => path === `/v2/${id}`).length
    const opened = service.attempts.filter(({ plan }) => plan.id === id).length
    if (count < 1 || count > opened) violate('one log line a tunnel', `${id}: ${count} lines`)
  }
}
