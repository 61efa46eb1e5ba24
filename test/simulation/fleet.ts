/** Several processes in one world: replicas that share tokens through a store, which fails as the seed says. */

import type { OrgId } from '../../src/org-id.ts'
import { groundStory } from './grounds.ts'
import { judgeEnd } from './minter.ts'
import { Client, type Outcome, PROXY_PORT } from './peers/client.ts'
import { goodUntil, type IssuedToken, type MintCall, Service } from './peers/service.ts'
import { STORE_PORT, Store, type StoreTrouble } from './peers/store.ts'
import { probeRequest, type Result, SECRET_FILE, settingsOf, type Violation } from './stage.ts'
import type { Story } from './story.ts'
import type { Stall } from './world/loop.ts'
import { ProxyProcess } from './world/program.ts'
import { Random } from './world/random.ts'
import { Network } from './world/tcp.ts'
import { World } from './world/world.ts'

interface Span {
  readonly from: number
  readonly to: number
}

type FleetStep = { readonly at: number } & (
  | { readonly what: 'purge'; readonly replica: number; readonly org: number }
  | { readonly what: 'revoke'; readonly org: number }
  /** Each replica gets the new secret so much later. */
  | { readonly what: 'rotate'; readonly delaysMs: readonly number[] }
)

interface FleetStory extends Omit<Story, 'operator' | 'stalls'> {
  readonly replicas: number
  readonly timeoutMs: number
  /** How far the clock of the store is ahead. */
  readonly storeAheadMs: number
  /** The last replica asks for tokens of another scope. */
  readonly hasOther: boolean
  readonly store: readonly (Span & { readonly kind: StoreTrouble })[]
  /** It loses connections, all keys, those of tokens or those of leases. */
  readonly losses: readonly { readonly at: number; readonly what: 'connections' | '' | ':t' | ':l' }[]
  readonly operator: readonly FleetStep[]
  readonly stalls: readonly {
    readonly at: number
    readonly lengthMs: number
    readonly kind: Stall
    readonly replica: number
  }[]
  /** A replica is killed or stopped, and started again. */
  readonly away: readonly (Span & { readonly kind: 'killed' | 'stopped'; readonly replica: number })[]
}

const ORGS = 3
const HOUR_MS = 3_600_000
const STORY_MS = 25_000
/** Then the replicas listen. */
const BEGINS_MS = 300
/** Contract: after so long, a store that is back is used. */
const BACK_MS = 5_000
/** What a replica may pause behind failures of the endpoint. */
const PAUSE_MS = 10_000
/** Each replica has read the new secret, and the service ends the one before. */
const ROTATION_MS = 3_500
/** A stated end has whole seconds of a date. */
const ROUNDED_MS = 1_000
/** For packets, turns and polls. */
const SLACK_MS = 500
/** With a token at hand; with a mint, and the store in trouble. */
const AT_ONCE_MS = 400
const MINT_MS = 1_500

const KINDS = [
  'killed',
  'emptied',
  'still',
  'slow',
  'cut',
  'read-only',
  'full',
  'error',
  'nonsense',
  'garbage',
] as const
const portOf = (replica: number) => PROXY_PORT + replica
/** The ids of requests begin with their replica, as the names of processes end. */
const replicaOf = (id: string) => Number(id[1])
const callerOf = (by: string) => Number(/^replica-(\d)/.exec(by)?.[1])

export function fleetStory(seed: number): FleetStory {
  const random = new Random(seed, 'fleet')
  const base = groundStory(seed, 'polls')
  const replicas = random.whole(2, 3)
  const hasOther = random.chance(0.2)
  const isBurst = random.chance(0.5)
  const isSlow = random.chance(0.5)
  let lastId = 0
  const client = (replica: number, org: number) => ({
    at: BEGINS_MS + random.between(0, isBurst ? 20 : 2_000),
    stays: false,
    requests: Array.from({ length: random.whole(20, 50) }, (_, i) => ({
      ...probeRequest(`s${replica}r${++lastId}`, org),
      afterMs: i === 0 ? 0 : random.between(50, 900),
    })),
  })
  const some = <T>(probability: number, most: number, make: () => T): T[] =>
    random.chance(probability) ? Array.from({ length: random.whole(1, most) }, make) : []
  /** Often while the first mints are under way. */
  const at = () => (random.chance(0.3) ? BEGINS_MS + random.spread(5, 900) : random.between(0, STORY_MS))
  const span = (most: number) => {
    const from = at()
    return { from, to: from + random.spread(50, most) }
  }
  const replica = () => random.whole(0, replicas - 1)
  const org = () => random.whole(0, ORGS - 1)
  // The first, and perhaps one behind it.
  const store = some(0.7, 2, () => ({ ...span(9_000), kind: random.pick(KINDS) })).filter(
    ({ from }, i, [first]) => i === 0 || from > (first?.to ?? 0),
  )
  /** Often while the store falls ill, or shortly behind that. */
  const step = () => {
    const { from, to } = store[0] ?? { from: at(), to: at() }
    return random.chance(0.5)
      ? at()
      : Math.max(0, Math.max(0, random.pick([from - random.between(-50, 600), to + random.between(0, 2_000)])))
  }
  return {
    ...base,
    profile: 'a fleet',
    limits: {
      ...base.limits,
      // Behind the lease of a dead replica, a fifth of it must do.
      mintTimeoutMs: isSlow ? 10_000 : random.pick([2_000, 10_000]),
      settleTimeMs: random.pick([0, 500]),
    },
    tokens: {
      ...base.tokens,
      livesMs: Array(ORGS).fill(random.chance(0.4) ? random.between(4_000, 15_000) : HOUR_MS),
      isStated: random.chance(0.8),
      hasOneLive: !hasOther && random.chance(0.4),
      answerMs: isSlow ? [100, 600] : base.tokens.answerMs,
      troubles: some(0.15, 1, () => ({ ...span(6_000), kind: random.pick(['hang', 'error', 'cut'] as const) })),
    },
    clients: Array.from({ length: replicas * ORGS }, (_, i) => client(i % replicas, Math.floor(i / replicas))),
    replicas,
    timeoutMs: random.pick([50, 100, 200]),
    storeAheadMs: random.pick([0, 0, -HOUR_MS, HOUR_MS]),
    hasOther,
    store,
    losses: some(0.3, 3, () => ({ at: at(), what: random.pick(['connections', '', ':t', ':l'] as const) })),
    operator: [
      ...some(0.6, 4, () => ({ at: step(), what: 'purge' as const, replica: replica(), org: org() })),
      ...some(0.6, 4, () => ({ at: step(), what: 'revoke' as const, org: org() })),
      ...some(0.2, 1, () => ({
        at: at(),
        what: 'rotate' as const,
        delaysMs: Array.from({ length: replicas }, () => random.between(0, 1_000)),
      })),
    ],
    stalls: some(0.2, 2, () => ({
      at: at(),
      lengthMs: random.spread(50, 9_000),
      kind: random.pick(['asleep', 'interrupted'] as const),
      replica: replica(),
    })),
    away: some(0.3, 1, () => ({
      ...span(5_000),
      kind: random.pick(['killed', 'stopped'] as const),
      replica: replica(),
    })),
  }
}

interface FleetStage {
  readonly story: FleetStory
  readonly world: World
  readonly network: Network
  readonly service: Service
  readonly store: Store
  readonly replicas: ProxyProcess[]
  readonly clients: readonly Client[]
  /** What was read of all its files. */
  readonly secrets: string[]
  readonly violate: (oracle: string, text: string) => void
}

export function playFleet(story: FleetStory, isTraced = false): Result {
  const violations: Violation[] = []
  const world = new World(story.seed, isTraced)
  const network = new Network(world)
  const random = new Random(story.seed, 'store')
  const toStore = { ...story.lines[0], latencyMs: random.spread(0.05, 3) } as Story['lines'][number]
  network.lineTo = (_, port) => (port === STORE_PORT ? toStore : world.network.pick(story.lines))
  const service = new Service(world, network, story as unknown as Story)
  const stage: FleetStage = {
    story,
    world,
    network,
    service,
    store: new Store(world, network, random, story.storeAheadMs),
    replicas: [],
    clients: story.clients.map((plan, i) => {
      const replica = replicaOf(plan.requests[0]?.id ?? '')
      return new Client(world, network, `client-${i}`, plan, portOf(replica))
    }),
    secrets: Array(story.replicas).fill(service.secret),
    violate(oracle, text) {
      world.tell('ORACLE', `${oracle}: ${text}`)
      violations.push({ oracle, text })
    },
  }
  for (let i = 0; i < story.replicas; i++) stage.replicas.push(newReplica(stage, i, 0))
  try {
    for (const each of stage.replicas) each.begin()
    perform(stage)
    for (const fault of world.faults) stage.violate('nothing is thrown', fault)
  } finally {
    for (const each of stage.replicas) each.end()
  }
  const requests = stage.clients.reduce((sum, { outcomes }) => sum + outcomes.length, 0)
  return { violations, hash: world.hash, trace: world.trace, requests, virtualMs: world.now }
}

function newReplica({ story, world, network, secrets }: FleetStage, i: number, starts: number): ProxyProcess {
  const replica = new ProxyProcess(world, network, `replica-${i}.${starts}`)
  replica.files.write(SECRET_FILE, `${secrets[i]}\n`)
  const settings = settingsOf(story.limits) as { listen: object; tokens: object }
  const isOther = story.hasOther && i === story.replicas - 1
  replica.configure({
    ...settings,
    listen: { ...settings.listen, address: `127.0.0.1:${portOf(i)}` },
    tokens: { ...settings.tokens, ...(isOther && { form: { scope: 'other' } }) },
    fleet: { store: `redis://127.0.0.1:${STORE_PORT}`, timeout: `${story.timeoutMs}ms` },
  })
  return replica
}

function perform(stage: FleetStage): void {
  const { world, clients, violate } = stage
  schedule(stage)
  world.run(150_000, () => clients.every(({ isDone }) => isDone))
  clients.forEach((client, i) => {
    if (!client.isDone) violate('an answer in bounded time', `client-${i} waits for ${client.waiting?.plan.id}`)
  })
  judgeRequests(stage)
  judgeMints(stage)
  judgePurges(stage)
  for (const client of clients) client.leave()
  world.run(Math.max(world.now, 2 * STORY_MS) + 90_000)
  judgeEnd(stage, stage.replicas, (name) => name.startsWith(`${STORE_PORT}#`))
}

function schedule(stage: FleetStage): void {
  const { story, world, network, service, store, replicas, secrets, violate } = stage
  network.fateOf = (_, port) => {
    if (port !== STORE_PORT) return 'accept'
    if (store.trouble === 'killed' || store.trouble === 'emptied') return 'refuse'
    return store.trouble === 'cut' ? 'swallow' : 'accept'
  }
  for (const { from, to, kind } of story.store) {
    world.at(from, () => {
      world.tell('world', `the store: ${kind}`)
      store.begin(kind)
    })
    world.at(to, () => {
      world.tell('world', 'the store is well')
      store.end()
    })
    world.at(to + BACK_MS, () => {
      for (const [i, { app }] of replicas.entries()) {
        if (isDisturbed(story, i, to, world.now) || isStoreIll(story, to + 1, world.now)) continue
        const state = app?.inspect().fleet?.state
        if (state !== 'available') violate('a store that is back is used', `replica-${i}: ${state}`)
      }
    })
  }
  for (const { at, what } of story.losses) {
    world.at(at, () => {
      world.tell('world', `the store loses ${what || 'all'}`)
      if (what === 'connections') store.dropConnections()
      else store.model.lose(what)
    })
  }
  for (const { at, lengthMs, kind, replica } of story.stalls) {
    world.at(at, () => {
      world.tell('world', `replica-${replica} stands still for ${lengthMs.toFixed(0)} ms, ${kind}`)
      replicas[replica]?.loop.stall(lengthMs, kind)
    })
  }
  for (const [n, { from, to, kind, replica }] of story.away.entries()) {
    world.at(from, () => {
      world.tell('world', `replica-${replica} is ${kind}`)
      const process = replicas[replica]
      if (kind === 'stopped') process?.do(() => void process.app?.close())
      else kill(stage, replica)
    })
    world.at(to, () => {
      world.tell('world', `replica-${replica} is started`)
      if (kind === 'stopped') kill(stage, replica)
      const process = newReplica(stage, replica, n + 1)
      replicas[replica] = process
      process.begin()
    })
  }
  for (const step of story.operator) {
    world.at(step.at, () => {
      world.tell('operator', JSON.stringify(step))
      if (step.what === 'revoke') service.revoke(step.org)
      else if (step.what === 'purge') {
        const { replica, org } = step
        replicas[replica]?.do(() => replicas[replica]?.app?.operator.purgeTokens(`org-${org}` as OrgId))
      } else {
        service.formerSecret = service.secret
        service.secret = `secret-of-${Math.floor(world.now)}`
        world.after(ROTATION_MS, () => (service.formerSecret = undefined))
        for (const [i, delayMs] of step.delaysMs.entries()) {
          world.after(delayMs, () => {
            secrets[i] = service.secret
            replicas[i]?.files.write(SECRET_FILE, `${service.secret}\n`)
          })
        }
      }
    })
  }
}

/** What is left of it is gone, as the kernel does it. */
function kill({ replicas, network }: FleetStage, replica: number): void {
  replicas[replica]?.end()
  for (const each of [...network.open])
    if (each.name.startsWith(`replica-${replica}.`) || each.name.startsWith(`${portOf(replica)}#`)) each.reset()
  for (const each of network.listening) if (each.port === portOf(replica)) network.unlisten(each)
}

// ---- what was the matter

const meets = (span: Span, from: number, to: number) => span.from <= to && from <= span.to

/** Some replica may not have used it then. */
function isStoreIll({ store, losses }: FleetStory, from: number, to: number): boolean {
  // Nobody tells a replica that its connection is dead.
  const until = ({ kind, to: end }: FleetStory['store'][number]) =>
    kind === 'cut' ? Number.POSITIVE_INFINITY : end + BACK_MS
  const isIll = store.some((span) => meets({ from: span.from, to: until(span) }, from, to))
  return isIll || losses.some(({ at }) => meets({ from: at, to: at + BACK_MS }, from, to))
}

/** This replica did not run all the time. */
function isDisturbed({ stalls, away }: FleetStory, replica: number, from: number, to: number): boolean {
  const ofIt = <T extends { readonly replica: number }>(list: readonly T[]) =>
    list.filter((each) => each.replica === replica)
  return (
    ofIt(stalls).some(({ at, lengthMs }) => meets({ from: at, to: at + lengthMs + SLACK_MS }, from, to)) ||
    ofIt(away).some((span) => meets({ from: span.from, to: span.to + SLACK_MS }, from, to))
  )
}

/** The same of those that may hold a lease. */
function isAnyDisturbed(story: FleetStory, from: number, to: number): boolean {
  return Array.from({ length: story.replicas }).some((_, i) => isDisturbed(story, i, from, to))
}

function isEndpointIll({ tokens }: FleetStory, from: number, to: number): boolean {
  return tokens.troubles.some((span) => meets({ from: span.from, to: span.to + PAUSE_MS }, from, to))
}

function isRotating({ operator }: FleetStory, from: number, to: number): boolean {
  return operator.some(({ what, at }) => what === 'rotate' && meets({ from: at, to: at + ROTATION_MS }, from, to))
}

/** Those that share. */
const groupOf = ({ hasOther, replicas }: FleetStory, replica: number) => hasOther && replica === replicas - 1

function wasPurged({ operator }: FleetStory, org: number, from: number, to: number): boolean {
  return operator.some((step) => step.what === 'purge' && step.org === org && step.at >= from && step.at <= to)
}

// ---- what must hold

function judgeRequests(stage: FleetStage): void {
  const { service, clients, violate, story } = stage
  for (const fault of [...service.faults, ...clients.flatMap(({ faults }) => faults)])
    violate('content is whole', fault)
  for (const { plan, token, at } of service.attempts) {
    const replica = replicaOf(plan.id)
    const told = `${plan.id} for org-${plan.org} has ${token?.value} at ${at.toFixed(0)}`
    if (token !== undefined && token.org !== plan.org) violate('never another Org’s token', told)
    if (token !== undefined && groupOf(story, callerOf(token.by)) !== groupOf(story, replica))
      violate('never a token of another declaration', told)
    const isLate = token !== undefined && story.tokens.isStated && at > token.endsAt + 100
    if (isLate && !isDisturbed(story, replica, token.endsAt, at)) violate('no token past its stated end', told)
  }
  for (const { outcomes } of clients) for (const outcome of outcomes) judgeRequest(stage, outcome)
}

function judgeRequest(stage: FleetStage, { plan, startedAt, endedAt, status, code, end, isReused }: Outcome): void {
  const { service, story, violate } = stage
  const replica = replicaOf(plan.id)
  const { mintTimeoutMs } = story.limits
  if (isDisturbed(story, replica, startedAt, endedAt) || end === undefined || (end === 'refused' && isReused)) return
  const told = `${plan.id} for org-${plan.org} at ${startedAt.toFixed(0)}: ${status} ${code ?? end}, ${(endedAt - startedAt).toFixed(0)} ms`
  const last = service.attempts.findLast(
    ({ plan: of, at, isAccepted }) =>
      isAccepted && at < startedAt && of.org === plan.org && replicaOf(of.id) === replica,
  )
  const isHeld =
    last?.token !== undefined &&
    goodUntil(stage, last.token) > endedAt + SLACK_MS + ROUNDED_MS &&
    !isDisturbed(story, replica, last.at, startedAt) &&
    // Also while it was minted: such a token serves only those who wait for it.
    !wasPurged(story, plan.org, Math.min(last.at, last.token.calledAt) - SLACK_MS, endedAt)
  if (!isHeld && isEndpointIll(story, startedAt - mintTimeoutMs, endedAt)) return
  // Replicas that do not share end each other’s tokens.
  const areRivals =
    story.tokens.hasOneLive &&
    (isStoreIll(story, startedAt - PAUSE_MS, endedAt) || isRotating(story, startedAt - PAUSE_MS, endedAt))
  if (status !== 200) {
    if (!areRivals || status !== 401) violate(isHeld ? 'held tokens go on' : 'a replica serves alone', told)
    return
  }
  const mayLeaseLast = isAnyDisturbed(story, startedAt - mintTimeoutMs, endedAt)
  const mostMs = isHeld ? AT_ONCE_MS : mayLeaseLast || areRivals ? mintTimeoutMs + SLACK_MS : MINT_MS
  if (endedAt - startedAt > mostMs) violate(isHeld ? 'a held token comes at once' : 'nobody waits for the store', told)
}

function judgeMints(stage: FleetStage): void {
  const { service, story, violate } = stage
  for (const [i, call] of service.mints.entries()) {
    const { org, at, by } = call
    const told = `org-${org} at ${at.toFixed(0)} by ${by}`
    const group = groupOf(story, callerOf(by))
    const isOfGroup = (of: MintCall | IssuedToken) => of.org === org && groupOf(story, callerOf(of.by)) === group
    const other = service.mints.slice(0, i).findLast((of) => isOfGroup(of) && of.endedAt > at)
    if (other !== undefined && isShared(stage, call, other.at))
      violate('one mint per Org at a time', `${told}, and by ${other.by}`)
    const held = service.tokens.findLast((token) => isOfGroup(token) && token.issuedAt < at - SLACK_MS)
    if (
      held === undefined ||
      wasPurged(story, org, held.calledAt - SLACK_MS, at) ||
      !isShared(stage, call, held.calledAt)
    )
      continue
    const lifeMs = held.endsAt - held.issuedAt
    if (goodUntil(stage, held) > at + lifeMs / 5 + ROUNDED_MS)
      violate('a token serves all replicas', `${told}, who could have ${held.value}`)
  }
}

/** What was in the store then, this caller could see. */
function isShared({ story }: FleetStage, { at, by }: MintCall, since: number): boolean {
  return !(
    isStoreIll(story, since - SLACK_MS, at) ||
    isRotating(story, since - SLACK_MS, at) ||
    isEndpointIll(story, since - PAUSE_MS, at) ||
    isAnyDisturbed(story, since - SLACK_MS, since + SLACK_MS) ||
    isDisturbed(story, callerOf(by), at - SLACK_MS, at)
  )
}

function judgePurges({ service, story, violate }: FleetStage): void {
  for (const step of story.operator) {
    if (step.what !== 'purge' || isDisturbed(story, step.replica, step.at - SLACK_MS, step.at + SLACK_MS)) continue
    const endAt = Math.min(
      ...story.away.filter((span) => span.replica === step.replica && span.from > step.at).map(({ from }) => from),
    )
    const isOfIt = (replica: number) => replica === step.replica
    const old = service.attempts.filter(
      ({ plan, token, at }) =>
        plan.org === step.org && at > step.at && token !== undefined && token.issuedAt < step.at - 2 * SLACK_MS,
    )
    for (const { plan, at, token } of old) {
      const replica = replicaOf(plan.id)
      const told = `${plan.id} has ${token?.value} at ${at.toFixed(0)}, from before the purge at ${step.at.toFixed(0)}`
      if (isDisturbed(story, replica, step.at, at)) continue
      // Who stands still reads late what came long ago.
      if (token !== undefined && isDisturbed(story, callerOf(token.by), token.calledAt, step.at)) continue
      if (isOfIt(replica)) {
        if (at > step.at + SLACK_MS && at < endAt) violate('a purge forgets', told)
        continue
      }
      const isNew = !service.attempts.some(
        (of) => of.token === token && of.at < step.at + 2_000 && replicaOf(of.plan.id) === replica,
      )
      if (isNew && !isStoreIll(story, step.at - BACK_MS, at)) violate('a purge forgets the shared token', told)
    }
  }
}
