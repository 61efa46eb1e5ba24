/** Plays the story of one seed: builds the world, runs it, lets it become quiet, and asks the oracles. */

import type { OrgId } from '../../src/org-id.ts'
import { judgeConnections } from './connection-rules.ts'
import { judge, judgeProbe, judgeQuiet, judgeStopped, Watch } from './oracles.ts'
import { Client, type Outcome, PROXY_PORT } from './peers/client.ts'
import { SERVICE_PORT, Service } from './peers/service.ts'
import { judgeRules, RuleWatch } from './rules.ts'
import type { ClientPlan, Limits, RequestPlan, Story } from './story.ts'
import { ProxyProcess } from './world/program.ts'
import { Network } from './world/tcp.ts'
import { World } from './world/world.ts'

export interface Violation {
  readonly oracle: string
  readonly text: string
}

export interface Result {
  readonly violations: readonly Violation[]
  readonly hash: string
  readonly trace: readonly string[]
  readonly requests: number
  readonly virtualMs: number
}

/** What the oracles may look at. */
export interface Stage {
  readonly story: Story
  readonly world: World
  readonly network: Network
  readonly service: Service
  readonly proxy: ProxyProcess
  readonly clients: readonly Client[]
  readonly outcomes: () => Outcome[]
  stoppedAt: number | undefined
  /** The program would end now, with so many lines of its log. */
  stop: { readonly at: number; readonly lines: number } | undefined
  readonly violate: (oracle: string, text: string) => void
}

export const SECRET_FILE = '/etc/oap/secret'
/** Nobody waits for longer, whatever the story: then it hangs. */
const LONGEST_MS = 150_000
/** Behind the story, until idle connections, pauses and lingering ends are over. */
const QUIET_MS = 90_000

export function play(story: Story, isTraced = false): Result {
  const violations: Violation[] = []
  const world = new World(story.seed, isTraced)
  const network = new Network(world)
  network.lineTo = () => world.network.pick(story.lines)
  const isOut = () => story.service.outages.find(({ from, to }) => world.now >= from && world.now < to)
  network.fateOf = (_, port) => (port === SERVICE_PORT ? (isOut()?.fate ?? 'accept') : 'accept')
  const service = new Service(world, network, story)
  const proxy = new ProxyProcess(world, network, 'proxy')
  const isWrong = story.tokens.wrongSecretUntil > 0
  proxy.files.write(SECRET_FILE, isWrong ? 'a-wrong-secret\n' : `${service.secret}\n`)
  proxy.configure(settingsOf(story.limits))
  if (isWrong) world.at(story.tokens.wrongSecretUntil, () => proxy.files.write(SECRET_FILE, `${service.secret}\n`))
  const violate = (oracle: string, text: string) => {
    world.tell('ORACLE', `${oracle}: ${text}`)
    violations.push({ oracle, text })
  }
  const clients: Client[] = []
  const stage: Stage = {
    story,
    world,
    network,
    service,
    proxy,
    clients,
    outcomes: () => clients.flatMap(({ outcomes }) => outcomes),
    stoppedAt: undefined,
    stop: undefined,
    violate,
  }
  try {
    proxy.start()
    if (proxy.app === undefined) violate('starts', String(proxy.failure))
    else perform(stage)
    for (const fault of world.faults) violate('nothing is thrown', fault)
  } finally {
    proxy.end()
  }
  return { violations, hash: world.hash, trace: world.trace, requests: stage.outcomes().length, virtualMs: world.now }
}

function perform(stage: Stage): void {
  const { story, world, network, proxy } = stage
  const clients = stage.clients as Client[]
  const timersAtRest = proxy.loop.timers.active.map(({ delayMs }) => delayMs)
  for (const [i, plan] of story.clients.entries()) clients.push(new Client(world, network, `client-${i}`, plan))
  schedule(stage)
  const watches = [new Watch(stage), new RuleWatch(stage)]
  world.run(LONGEST_MS, () => clients.every(({ isDone }) => isDone))
  // Tunnels that have an end coming.
  world.run(world.now + 60_000)
  for (const watch of watches) watch.close()
  judge(stage)
  judgeRules(stage)
  judgeConnections(stage)
  for (const client of clients) client.leave()
  for (const tunnel of stage.service.tunnels.values()) tunnel.leave()
  world.run(world.now + QUIET_MS)
  judgeQuiet(stage, timersAtRest)
  if (stage.stoppedAt === undefined) probe(stage)
  if (stage.stoppedAt === undefined) proxy.do(() => void proxy.app?.close().then(() => noteStop(stage)))
  world.run(world.now + 20_000, () => stage.stop !== undefined)
  world.run(world.now + 5_000)
  judgeStopped(stage)
}

function noteStop(stage: Stage): void {
  const { world, proxy } = stage
  world.tell('operator', 'the program has stopped')
  stage.stop = { at: world.now, lines: proxy.logs.length }
}

function schedule(stage: Stage): void {
  const { story, world, proxy, service } = stage
  for (const step of story.operator) {
    world.at(step.at, () => {
      const { app } = proxy
      world.tell('operator', JSON.stringify(step))
      if (app === undefined) return
      switch (step.what) {
        case 'reload':
          proxy.do(() => void app.reload())
          return
        case 'purge all':
          proxy.do(() => app.operator.purgeTokens())
          return
        case 'purge':
          proxy.do(() => app.operator.purgeTokens(`org-${step.org}` as OrgId))
          return
        case 'resume':
          proxy.do(() => app.operator.resumeMints())
          return
        case 'rotate':
          service.secret = `secret-of-${Math.floor(world.now)}`
          proxy.files.write(SECRET_FILE, `${service.secret}\n`)
          return
        case 'revoke the App':
          service.secret = 'a secret that nobody has'
          service.appRevokedAt = world.now
          return
        case 'revoke':
          service.revoke(step.org)
          return
        case 'stop':
          stage.stoppedAt = world.now
          proxy.do(() => void app.drain().then(() => noteStop(stage)))
      }
    })
  }
  for (const { at, lengthMs, kind } of story.stalls) {
    world.at(at, () => {
      world.tell('world', `the proxy stands still for ${lengthMs.toFixed(0)} ms, ${kind}`)
      proxy.loop.stall(lengthMs, kind)
    })
  }
}

/** All Orgs are new, and as many come at once as have room: whatever was not given back is missed. */
function probe(stage: Stage): void {
  const { world, network, story, service } = stage
  const { maxInFlight, mintRate, mintTimeoutMs, mintConcurrency, connections } = story.limits
  service.isCalm = true
  const byPlaces = Math.max(Math.floor(maxInFlight / 2), 8)
  const byRate = Math.floor((mintRate * mintTimeoutMs) / 4_000)
  const byCalls = Math.floor((mintConcurrency * mintTimeoutMs) / (4 * 300))
  const count = Math.max(1, Math.min(byPlaces, maxInFlight, byRate, byCalls, connections * 8))
  const plans: ClientPlan[] = Array.from({ length: count }, (_, i) => ({
    at: world.now,
    stays: false,
    requests: [probeRequest(`p${i}`, 1_000 + i)],
  }))
  for (const plan of plans) for (const request of plan.requests) service.plans.set(request.id, request)
  const clients = plans.map((plan, i) => new Client(world, network, `probe-${i}`, plan))
  world.run(world.now + 30_000, () => clients.every(({ isDone }) => isDone))
  judgeProbe(stage, clients)
}

export function probeRequest(id: string, org: number): RequestPlan {
  return {
    id,
    org,
    method: 'GET',
    afterMs: 0,
    content: undefined,
    writePace: undefined,
    readPace: undefined,
    leaves: undefined,
    socket: undefined,
    answer: {
      status: 200,
      bytes: 10,
      framing: 'length',
      when: 'end',
      afterMs: 0,
      interims: 0,
      pace: undefined,
      cut: undefined,
      hangs: false,
      stopsReading: false,
      afterwards: 'keep',
      rejectsAt: 'end',
    },
  }
}

export function settingsOf(limits: Limits): object {
  const ms = (value: number) => `${value}ms`
  return {
    appId: 'app',
    appSecretFile: SECRET_FILE,
    baseUrl: `http://127.0.0.1:${SERVICE_PORT}`,
    listen: {
      address: `127.0.0.1:${PROXY_PORT}`,
      maxInFlight: limits.maxInFlight,
      maxConnections: limits.maxConnections,
      headersTimeout: ms(limits.headersTimeoutMs),
      idleTimeout: ms(limits.idleTimeoutMs),
      keepAliveTimeout: ms(limits.keepAliveTimeoutMs),
    },
    origin: {
      connections: limits.connections,
      connectTimeout: ms(limits.connectTimeoutMs),
      responseTimeout: ms(limits.responseTimeoutMs),
      idleTimeout: ms(limits.serviceIdleTimeoutMs),
    },
    tokens: {
      mintTimeout: ms(limits.mintTimeoutMs),
      mintConcurrency: limits.mintConcurrency,
      mintRate: limits.mintRate,
      settleTime: ms(limits.settleTimeMs),
      ...(limits.rejectedStatuses !== undefined && { rejectedStatuses: limits.rejectedStatuses }),
      ...(limits.lifetimeMs !== undefined && { lifetime: ms(limits.lifetimeMs) }),
    },
    replay: { maxBody: `${limits.replayBytes}B` },
    shutdown: { timeout: ms(limits.shutdownMs) },
    admin: { address: 'off' },
  }
}
