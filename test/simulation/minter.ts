/** Several processes in one world: a minter, its sidecars, and their clients. The minter goes away, and a peer with a key claims falsely. */

import type { OrgId } from '../../src/org-id.ts'
import { groundStory } from './grounds.ts'
import { Client, type Outcome, PROXY_PORT } from './peers/client.ts'
import { MessageReader } from './peers/message.ts'
import { goodUntil, type IssuedToken, SERVICE_PORT, Service } from './peers/service.ts'
import { STORE_PORT } from './peers/store.ts'
import { Wire } from './peers/wire.ts'
import { probeRequest, type Result, SECRET_FILE, settingsOf, type Violation } from './stage.ts'
import type { OperatorStep, Story } from './story.ts'
import { ProxyProcess } from './world/program.ts'
import { Random } from './world/random.ts'
import { Network } from './world/tcp.ts'
import { World } from './world/world.ts'

interface Span {
  readonly from: number
  readonly to: number
}

interface MinterStory extends Story {
  /** The minter is killed and started again, stands still, or cannot be reached. */
  readonly away: readonly (Span & { readonly kind: 'killed' | 'still' | 'refuse' | 'swallow' | 'hang' })[]
  /** Somebody with the key of the first sidecar claims that tokens of Org 0 are rejected, all the time. */
  readonly claims: Span | undefined
}

const MINTER_PORT = 8_443
const SIDES = [0, 1] as const
const SHARED_ORGS = 3
/** Of each sidecar, one more Org, which the other may not name. */
const privateOrg = (side: number) => SHARED_ORGS + side
const mayName = (side: number, org: number) => org < SHARED_ORGS || org === privateOrg(side)
const portOf = (side: number) => PROXY_PORT + side
/** The ids of requests begin with their sidecar. */
const sideOf = (id: string) => Number(id[1])
const keyOf = (side: number) => `key-of-sidecar-${side}-0123456789`

const HOUR_MS = 3_600_000
const STORY_MS = 25_000
const COOLDOWN_MS = 10_000
/** Contract: after so long, a minter that is back is used. */
const BACK_MS = 5_000
/** That a call was given up comes with the end of its connection. */
const ROOM_MS = 100
/** The minter may pause for so long behind failures of the endpoint, which `rules.ts` judges. */
const PAUSE_MS = 30_000
/** With a token at hand. */
const AT_ONCE_MS = 1_500

export function minterStory(seed: number): MinterStory {
  const random = new Random(seed, 'minter')
  const base = groundStory(seed, 'polls')
  let lastId = 0
  const client = (side: number, org: number, count: number) => ({
    at: random.between(0, 2_000),
    stays: false,
    requests: Array.from({ length: count }, (_, i) => ({
      ...probeRequest(`s${side}r${++lastId}`, org),
      afterMs: i === 0 ? 0 : random.between(100, 900),
    })),
  })
  const orgs = SHARED_ORGS + SIDES.length
  const hasClaims = random.chance(0.5)
  const from = random.between(4_000, 8_000)
  const claims = hasClaims ? { from, to: from + random.between(6_000, 12_000) } : undefined
  const trouble = {
    from,
    to: from + random.between(3_000, 9_000),
    kind: random.pick(['hang', 'error', 'cut'] as const),
  }
  const awayAt = random.between(3_000, 12_000)
  const step = (what: 'purge' | 'revoke', org: number, at = random.between(3_000, STORY_MS)): OperatorStep => ({
    at,
    what,
    org,
  })
  return {
    ...base,
    profile: 'a minter',
    limits: { ...base.limits, mintTimeoutMs: random.pick([2_000, 10_000]), settleTimeMs: 0 },
    tokens: {
      ...base.tokens,
      livesMs: Array(orgs).fill(random.chance(0.3) ? random.between(8_000, 15_000) : HOUR_MS),
      isStated: true,
      hasOneLive: random.chance(0.4),
      troubles: hasClaims || random.chance(0.3) ? [trouble] : [],
    },
    clients: SIDES.flatMap((side) =>
      Array.from({ length: orgs }, (_, org) => client(side, org, mayName(side, org) ? 40 : 3)),
    ),
    operator: [
      ...Array.from({ length: random.whole(0, 6) }, () =>
        step('purge', 0, hasClaims ? random.between(from, from + 8_000) : undefined),
      ),
      // False claims use up what true ones may cost.
      ...(!hasClaims && random.chance(0.5) ? [step('revoke', random.whole(0, orgs - 1))] : []),
      ...(random.chance(0.3) ? [{ at: random.between(3_000, STORY_MS), what: 'rotate' as const }] : []),
    ],
    stalls: [],
    away: random.chance(0.5)
      ? [
          {
            from: awayAt,
            to: awayAt + random.spread(100, 8_000),
            kind: random.pick(['killed', 'still', 'refuse', 'swallow', 'hang'] as const),
          },
        ]
      : [],
    claims,
  }
}

interface MinterStage {
  readonly story: MinterStory
  readonly world: World
  readonly network: Network
  readonly service: Service
  minter: ProxyProcess
  /** When it was started. */
  readonly starts: number[]
  readonly sidecars: readonly ProxyProcess[]
  readonly clients: readonly Client[]
  readonly violate: (oracle: string, text: string) => void
}

export function playMinter(story: MinterStory, isTraced = false): Result {
  const violations: Violation[] = []
  const world = new World(story.seed, isTraced)
  const network = new Network(world)
  network.lineTo = () => world.network.pick(story.lines)
  const service = new Service(world, network, story)
  const stage: MinterStage = {
    story,
    world,
    network,
    service,
    minter: newMinter(story, world, network, service),
    starts: [0],
    sidecars: SIDES.map((side) => newSidecar(story, world, network, side)),
    clients: story.clients.map((plan, i) => {
      const side = sideOf(plan.requests[0]?.id ?? '')
      return new Client(world, network, `client-${i}`, plan, portOf(side))
    }),
    violate(oracle, text) {
      world.tell('ORACLE', `${oracle}: ${text}`)
      violations.push({ oracle, text })
    },
  }
  try {
    for (const each of [stage.minter, ...stage.sidecars]) each.begin()
    perform(stage)
    for (const fault of world.faults) stage.violate('nothing is thrown', fault)
  } finally {
    for (const each of [stage.minter, ...stage.sidecars]) each.end()
  }
  const requests = stage.clients.reduce((sum, { outcomes }) => sum + outcomes.length, 0)
  return { violations, hash: world.hash, trace: world.trace, requests, virtualMs: world.now }
}

function newMinter(story: Story, world: World, network: Network, service: Service): ProxyProcess {
  const minter = new ProxyProcess(world, network, 'minter')
  minter.files.write(SECRET_FILE, `${service.secret}\n`)
  const settings = settingsOf(story.limits) as { listen: object }
  const callers = SIDES.map((side) => {
    const keyFile = `/etc/oap/sidecar-${side}.key`
    minter.files.write(keyFile, keyOf(side))
    const orgs = Array.from({ length: SHARED_ORGS + SIDES.length }, (_, org) => org)
    const named = orgs.filter((org) => mayName(side, org)).map((org) => `org-${org}`)
    return { name: `sidecar-${side}`, keyFiles: [keyFile], tokens: true, orgs: named }
  })
  const address = `127.0.0.1:${MINTER_PORT}`
  minter.configure({ ...settings, listen: { ...settings.listen, address: 'off' }, minter: { address }, callers })
  return minter
}

function newSidecar(story: Story, world: World, network: Network, side: number): ProxyProcess {
  const sidecar = new ProxyProcess(world, network, `sidecar-${side}`)
  sidecar.files.write('/etc/oap/minter.key', keyOf(side))
  const { listen, tokens, origin, replay, shutdown, admin } = settingsOf(story.limits) as Record<string, object>
  const { mintTimeout, settleTime } = tokens as Record<string, string>
  sidecar.configure({
    baseUrl: `http://127.0.0.1:${SERVICE_PORT}`,
    listen: { ...listen, address: `127.0.0.1:${portOf(side)}` },
    minter: { url: `http://127.0.0.1:${MINTER_PORT}`, keyFile: '/etc/oap/minter.key' },
    tokens: { mintTimeout, settleTime },
    origin,
    replay,
    shutdown,
    admin,
  })
  return sidecar
}

function perform(stage: MinterStage): void {
  const { world, clients, story, violate } = stage
  schedule(stage)
  world.run(150_000, () => clients.every(({ isDone }) => isDone))
  clients.forEach((client, i) => {
    if (!client.isDone) violate('an answer in bounded time', `client-${i} waits for ${client.waiting?.plan.id}`)
  })
  judgeRequests(stage)
  judgeMints(stage)
  for (const client of clients) client.leave()
  world.run(Math.max(world.now, story.claims?.to ?? 0) + 90_000)
  // What the kernel took, and the minter did not, is nobody's; so is what the peer with the key leaves.
  const hasHung = story.away.some(({ kind }) => kind === 'hang')
  const isNobodys = (name: string) => name.startsWith('claimer') || (hasHung && name.startsWith(`${MINTER_PORT}#`))
  judgeEnd(stage, [stage.minter, ...stage.sidecars], isNobodys)
}

/** They have given all back; they stop, and leave nothing. */
export function judgeEnd(
  { world, network, violate }: Pick<MinterStage, 'world' | 'network' | 'violate'>,
  processes: readonly ProxyProcess[],
  isNobodys: (socket: string) => boolean,
): void {
  let closed = 0
  for (const [i, { app }] of processes.entries()) {
    const { originConnections, ...gauges } = app?.inspect() ?? { originConnections: {} }
    const held = { ...gauges, ...originConnections } as Record<string, unknown>
    for (const name of GIVEN_BACK)
      if (held[name] !== 0) violate('all is given back', `process ${i}: ${name}: ${held[name]}`)
  }
  for (const each of processes) each.do(() => void each.app?.close().then(() => closed++))
  world.run(world.now + 20_000, () => closed === processes.length)
  world.run(world.now + 5_000)
  if (closed < processes.length) violate('it stops', 'close() does not resolve')
  for (const { name } of network.open) if (!isNobodys(name)) violate('no socket is left', `after the stop: ${name}`)
  for (const { port } of network.listening)
    if (port !== SERVICE_PORT && port !== STORE_PORT) violate('no listener is left', `${port}`)
  for (const { loop } of processes)
    for (const { delayMs } of loop.timers.active) violate('no timer is left', `after the stop: ${delayMs} ms`)
}

const GIVEN_BACK = [
  'requestsInFlight',
  'requestsWaitingForToken',
  'mintCalls',
  'mintCallsWaiting',
  'keptBytes',
  'clientConnections',
  'busy',
  'free',
  'pending',
]

function schedule(stage: MinterStage): void {
  const { story, world, network, service, sidecars } = stage
  const isGone = () => story.away.find(({ from, to }) => world.now >= from && world.now < to)?.kind
  network.fateOf = (_, port) => {
    const kind = port === MINTER_PORT ? isGone() : undefined
    return kind === undefined || kind === 'killed' || kind === 'still' ? 'accept' : kind
  }
  for (const { from, to, kind } of story.away) {
    world.at(from, () => {
      world.tell('world', `the minter is away: ${kind}`)
      if (kind === 'still') stage.minter.loop.stall(to - from, 'interrupted')
      else for (const each of [...network.open]) if (each.name.startsWith(`${MINTER_PORT}#`)) each.reset()
      if (kind !== 'killed') return
      stage.minter.end()
      for (const each of [...network.open]) if (each.name.startsWith('minter#')) each.reset()
      for (const each of network.listening) if (each.port === MINTER_PORT) network.unlisten(each)
    })
    world.at(to, () => {
      world.tell('world', 'the minter is back')
      if (kind !== 'killed') return
      stage.minter = newMinter(story, world, network, service)
      stage.starts.push(world.now)
      stage.minter.begin()
    })
  }
  for (const step of story.operator) {
    world.at(step.at, () => {
      world.tell('operator', JSON.stringify(step))
      if (step.what === 'revoke') service.revoke(step.org)
      else if (step.what === 'purge') {
        // At the sidecar that claims nothing.
        const other = sidecars[1]
        other?.do(() => other.app?.operator.purgeTokens(`org-${step.org}` as OrgId))
      } else {
        service.secret = `secret-of-${Math.floor(world.now)}`
        stage.minter.files.write(SECRET_FILE, `${service.secret}\n`)
      }
    })
  }
  if (story.claims !== undefined) world.at(story.claims.from, () => claim(stage, story.claims as Span))
}

/** Asks for the token of Org 0 until the time is over, and claims each time that the last one was rejected. */
function claim({ world, network, service }: MinterStage, span: Span, rejected?: string): void {
  if (world.now >= span.to) return
  let text = ''
  const goOn = (id = rejected) => world.after(200, () => claim(stageOf, span, id))
  const stageOf = { world, network, service } as MinterStage
  const endpoint = network.connect('claimer', '127.0.0.1', MINTER_PORT, (error) => {
    if (error !== undefined) {
      endpoint.close()
      goOn()
      return
    }
    const over = () => {
      if (wire.isClosed) return
      wire.close()
      const id = /"id":"([^"]+)"/.exec(text)?.[1]
      world.tell('claimer', id ?? text.slice(0, 80))
      goOn(id)
    }
    const reader = new MessageReader(
      { head: () => false, content: (bytes) => (text += bytes), end: over, other: () => undefined },
      false,
    )
    const wire: Wire = new Wire(world, endpoint, { data: (bytes) => reader.push(bytes), ended: over })
    wire.begin()
    const content = JSON.stringify({ rejected })
    wire.write(
      `POST /v1/orgs/org-0/token HTTP/1.1\r\nHost: localhost\r\nX-Proxy-Key: ${keyOf(0)}\r\nContent-Length: ${content.length}\r\n\r\n${content}`,
    )
  })
}

function judgeRequests(stage: MinterStage): void {
  const { service, clients, violate } = stage
  for (const fault of [...service.faults, ...clients.flatMap(({ faults }) => faults)])
    violate('content is whole', fault)
  for (const { plan, token } of service.attempts) {
    const isOwn = token === undefined || token.org === plan.org
    if (!isOwn || !mayName(sideOf(plan.id), plan.org))
      violate('never another Org’s token', `${plan.id} for org-${plan.org} has ${token?.value}`)
  }
  for (const { outcomes } of clients) {
    // A sidecar that has failed for a reason pauses by itself. Each client has one Org.
    let pausedUntil = 0
    for (const outcome of outcomes) {
      const isExcused = judgeRequest(stage, outcome, pausedUntil)
      if (isExcused && outcome.status !== 200) pausedUntil = outcome.endedAt + BACK_MS
    }
  }
}

function judgeRequest(
  stage: MinterStage,
  { plan, startedAt, endedAt, status, code, end, isReused }: Outcome,
  pausedUntil: number,
): boolean {
  const { service, story, starts, violate } = stage
  const side = sideOf(plan.id)
  if (end === undefined || (end === 'refused' && isReused)) return false
  const told = `${plan.id} for org-${plan.org} at ${startedAt.toFixed(0)}: ${status} ${code ?? end}, ${(endedAt - startedAt).toFixed(0)} ms`
  if (!mayName(side, plan.org)) {
    if (status !== 403 && status !== 503) violate('never another Org’s token', told)
    return false
  }
  const isDuring = (span: Span, laterMs: number) => span.from <= endedAt && startedAt <= span.to + laterMs
  // The minter and the sidecar take it to end a little sooner.
  const isGoodNow = (token: IssuedToken) => goodUntil(stage, token) > endedAt + 200
  const last = service.attempts.findLast(
    ({ plan: of, at, isAccepted }) => isAccepted && at < startedAt && of.org === plan.org && sideOf(of.id) === side,
  )
  const isPurged = story.operator.some(
    ({ what, at }) => what === 'purge' && side === 1 && at > (last?.at ?? 0) - 100 && at <= endedAt,
  )
  const isHeld = last?.token !== undefined && isGoodNow(last.token) && !isPurged
  const startAt = starts.findLast((at) => at <= startedAt) ?? 0
  const isAtMinter = service.tokens.some(
    (token) =>
      token.org === plan.org && token.issuedAt > startAt && token.issuedAt + 200 < startedAt && isGoodNow(token),
  )
  const isAway = story.away.some((span) => isDuring(span, BACK_MS))
  const hasTrouble =
    story.tokens.troubles.some((span) => isDuring(span, PAUSE_MS)) ||
    story.operator.some(({ what, at }) => what === 'rotate' && isDuring({ from: at, to: at }, 2 * BACK_MS))
  if (!isHeld && (isAway || (hasTrouble && !isAtMinter) || startedAt < pausedUntil)) return true
  if (status !== 200) violate(isHeld ? 'held tokens go on' : 'the minter is used', told)
  else if (endedAt - startedAt > AT_ONCE_MS && (isHeld || isAtMinter)) violate('a held token comes at once', told)
  return false
}

function judgeMints({ service, story, starts, violate, world }: MinterStage): void {
  const until = new Map<number, number>()
  for (const { org, at, overAt } of service.mints) {
    if ((until.get(org) ?? 0) > at + ROOM_MS) violate('one mint per Org at a time', `org-${org} at ${at}`)
    until.set(org, overAt)
  }
  for (const [org, lifeMs] of story.tokens.livesMs.entries()) {
    const issued = service.tokens.filter((token) => token.org === org).length
    const revokes = story.operator.filter((step) => step.what === 'revoke' && step.org === org).length
    const { from = 0, to = -COOLDOWN_MS } = (org === 0 && story.claims) || {}
    // A minter that stood still reads the last claim then.
    const readAt = story.away.find((span) => span.kind === 'still' && span.from < to && span.to > to)?.to ?? to
    const byClaims = Math.floor((readAt - from) / COOLDOWN_MS) + 1
    const byEnds = lifeMs === HOUR_MS ? 0 : Math.ceil(world.now / (lifeMs * 0.85))
    // A new minter knows nothing of claims before it.
    const most = starts.length * (1 + byClaims) + revokes + byEnds
    if (issued > most) violate('one mint for all sidecars', `org-${org}: ${issued} tokens, not ${most}`)
  }
}
