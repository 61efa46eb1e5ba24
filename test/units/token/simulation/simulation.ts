/**
 * The token cache and a careful client, each in front of its own instance of a token service, under the same load, with a
 * virtual clock: minutes pass in a second, and the same seed gives the same run. The cache is real; only time and the network
 * are simulated.
 */

import { TokenError } from '../../../../src/errors.ts'
import type { OrgId } from '../../../../src/org-id.ts'
import type { Clock, Repeatability } from '../../../../src/token/org.ts'
import { Orgs } from '../../../../src/token/orgs.ts'
import { type RejectionOutcome, RequestToken, type TokenUser } from '../../../../src/token/request-token.ts'
import { AccessToken } from '../../../../src/token/token-source.ts'
import { ORGS_OPTIONS } from '../../../support/orgs-options.ts'
import type { Random } from '../../../support/seed.ts'
import { CarefulClient } from './careful-client.ts'
import { EventQueue } from './event-queue.ts'
import { type ServiceKind, TokenService } from './services.ts'

export interface Load {
  readonly orgs: number
  readonly perSecond: number
  readonly seconds: number
  /** Share of the requests whose content is not kept. */
  readonly largeShare: number
  /** Share of the requests that are POSTs; the others are GETs. */
  readonly postShare?: number
}

export interface Outcome {
  requests: number
  /** Rejections that clients saw although the request was allowed. */
  rejected: number
  /** The same, of requests whose content is not kept. */
  rejectedLarge: number
  /** The same, of POSTs that are kept, where ended tokens are told by another status than 401. */
  rejectedPosts: number
  failed: number
  mints: number
  /** Requests that the service rejected although they were allowed, and all others that it rejected. */
  rejectedByService: number
  /** Forbidden requests. */
  forbidden: number
  /** The mean time beyond one round trip, over all allowed requests. */
  meanWaitMs: number
}

const ONE_WAY_MS = 2
const MINT_MS = 20
/** A virtual instant is over when all promises have gone as many hops. */
const HOPS = 24

async function allHops(): Promise<void> {
  for (let hop = 0; hop < HOPS; hop += 1) await undefined
}

export class World {
  readonly #queue = new EventQueue()
  #now = 0

  now = () => this.#now

  get clock(): Clock {
    return { now: this.now, runningTime: this.now, day: this.now, within: this.wait, random: () => 0.999 }
  }

  after(delayMs: number, run: () => void): void {
    this.#queue.add(this.#now + Math.max(delayMs, 0), run)
  }

  wait = <T>(delayMs: number, sooner?: Promise<T>): Promise<T | undefined> => {
    const late = this.sleep(delayMs).then(() => undefined)
    return sooner === undefined ? late : Promise.race([sooner, late])
  }

  sleep = (delayMs: number) => new Promise<void>((resolve) => this.after(delayMs, resolve))

  async runUntil(at: number): Promise<void> {
    await allHops()
    while (this.#queue.nextAt <= at) {
      this.#now = this.#queue.nextAt
      this.#queue.take()?.()
      await allHops()
    }
    this.#now = at
  }
}

interface Request {
  readonly org: number
  readonly isKept: boolean
  readonly method: 'GET' | 'POST'
  readonly isForbidden: boolean
}

type Send = (request: Request) => Promise<number>

/** Runs the load against both. The careful client knows `rejected`; the proxy has to find it out. */
export async function compare(
  kind: ServiceKind,
  load: Load,
  random: Random,
): Promise<{ readonly proxy: Outcome; readonly client: Outcome }> {
  const own = { ...load, ...kind.load }
  const proxy = await run(kind, own, random.numbered(1), random.numbered(2), proxyOver)
  const client = await run(kind, own, random.numbered(1), random.numbered(2), clientOver)
  return { proxy, client }
}

async function run(
  kind: ServiceKind,
  load: Load,
  loadRandom: Random,
  serviceRandom: Random,
  start: (world: World, service: TokenService, random: Random) => Send,
): Promise<Outcome> {
  const world = new World()
  const service = new TokenService(kind, serviceRandom)
  const send = start(world, service, serviceRandom.numbered(3))
  const meter = new Meter(world, service, send)
  const next = () => {
    const isForbidden = loadRandom.next() < (kind.forbiddenShare ?? 0)
    const isKept = loadRandom.next() >= load.largeShare
    const method = isKept && loadRandom.next() >= (load.postShare ?? 0) ? 'GET' : 'POST'
    meter.request({ org: Math.floor(loadRandom.next() * load.orgs), isKept, method, isForbidden })
    world.after((1_000 / load.perSecond) * (0.5 + loadRandom.next()), next)
  }
  next()
  const { othersMintEveryMs } = kind
  const mintElsewhere = () => {
    service.mintElsewhere(world.now())
    world.after((othersMintEveryMs ?? 0) * (0.5 + loadRandom.next()), mintElsewhere)
  }
  if (othersMintEveryMs !== undefined) world.after(othersMintEveryMs, mintElsewhere)
  await world.runUntil(load.seconds * 1_000)
  return meter.outcome()
}

class Meter {
  readonly #world: World
  readonly #service: TokenService
  readonly #send: Send
  readonly #counts = { requests: 0, rejected: 0, rejectedLarge: 0, rejectedPosts: 0, failed: 0, forbidden: 0 }
  #waitedMs = 0

  constructor(world: World, service: TokenService, send: Send) {
    this.#world = world
    this.#service = service
    this.#send = send
  }

  request(request: Request): void {
    const startedAt = this.#world.now()
    this.#counts.requests += 1
    const ended = (status: number) => {
      const waitedMs = this.#world.now() - startedAt - 2 * ONE_WAY_MS
      if (request.isForbidden) {
        this.#counts.forbidden += 1
        return
      }
      this.#waitedMs += waitedMs
      if (status === 0) this.#counts.failed += 1
      else if (status >= 300) this.#counts[this.#rowOf(request, status)] += 1
    }
    this.#send(request).then(ended, () => ended(0))
  }

  #rowOf({ isKept, method }: Request, status: number): 'rejected' | 'rejectedLarge' | 'rejectedPosts' {
    if (!isKept) return 'rejectedLarge'
    return method === 'POST' && status !== 401 ? 'rejectedPosts' : 'rejected'
  }

  outcome(): Outcome {
    const { requests, forbidden } = this.#counts
    return {
      ...this.#counts,
      mints: this.#service.mints,
      rejectedByService: this.#service.rejections,
      meanWaitMs: this.#waitedMs / Math.max(requests - forbidden, 1),
    }
  }
}

function exchange(world: World, service: TokenService, token: string, isForbidden: boolean): Promise<number> {
  return new Promise((resolve) => {
    world.after(ONE_WAY_MS, () => {
      const status = service.answer(token, isForbidden, world.now())
      world.after(ONE_WAY_MS, () => resolve(status))
    })
  })
}

function mint(world: World, service: TokenService, org: number, random: Random) {
  const mintMs = (service.kind.mintMs ?? MINT_MS) * (0.5 + random.next())
  return new Promise<NonNullable<ReturnType<TokenService['mint']>>>((resolve, reject) => {
    world.after(mintMs / 2, () => {
      const issued = service.mint(org, world.now())
      world.after(mintMs / 2, () => {
        if (issued === undefined) reject(new TokenError('token_endpoint_unavailable', 'simulated'))
        else resolve(issued)
      })
    })
  })
}

function clientOver(world: World, service: TokenService, random: Random): Send {
  const client = new CarefulClient(
    {
      now: world.now,
      sleep: world.sleep,
      mint: async (org) => {
        const at = world.now()
        return { name: (await mint(world, service, org, random)).name, at }
      },
    },
    new Set([401, service.kind.endStatus ?? 401]),
  )
  return ({ org, isForbidden }) => client.request(org, (token) => exchange(world, service, token, isForbidden))
}

function proxyOver(world: World, service: TokenService, random: Random): Send {
  const names = new Map<AccessToken, string>()
  const orgs = new Orgs(
    {
      ...ORGS_OPTIONS,
      clock: { ...world.clock, random: () => random.next() },
    },
    {
      mint: async (org) => {
        const askedAt = world.now()
        const issued = await mint(world, service, Number(org.slice(4)), random)
        const now = world.now()
        const statedLifeMs = service.kind.statesEnd === true ? issued.lifeMs - (now - askedAt) : undefined
        const token = new AccessToken(issued.name, now, statedLifeMs, now)
        names.set(token, issued.name)
        return token
      },
    },
  )
  return async ({ org, isKept, method, isForbidden }) => {
    const send = async (token: AccessToken) => ({
      status: await exchange(world, service, names.get(token) ?? '', isForbidden),
    })
    return throughOrgs(orgs, `org-${org}` as OrgId, { isKept, staysKept: isKept, isSafe: method === 'GET' }, send)
  }
}

interface ServiceAnswer {
  readonly status: number
  readonly challenge?: string
}

/** A request with its record, as far as its token needs them. */
export function tokenUser(repeatability: Repeatability = { isKept: true, staysKept: true, isSafe: true }) {
  const record: TokenUser['record'] = { token: 'none', rejection: undefined, isRepeated: false }
  return { ...repeatability, record, isOver: false }
}

/** Does what an exchange of the gateway does with the tokens. Resolves with the status that the client sees. */
export async function throughOrgs(
  orgs: Orgs,
  org: OrgId,
  repeatability: Repeatability,
  send: (token: AccessToken) => Promise<ServiceAnswer>,
  onEnd?: (outcome: RejectionOutcome | undefined) => void,
): Promise<number> {
  let shown: AccessToken | undefined
  const withToken = (token: AccessToken) => {
    shown = token
    return ''
  }
  const user = tokenUser(repeatability)
  const token = new RequestToken(orgs, org, { withToken }, user)
  try {
    for (await token.take(); ; ) {
      await token.authorize()
      if (shown === undefined) throw new Error('no token was shown')
      const { status, challenge = '' } = await send(shown)
      const rawFields = challenge === '' ? [] : ['www-authenticate', challenge]
      const next = token.judge({ status, rawFields })
      if (next === undefined) return status
      await next
    }
  } finally {
    token.end()
    onEnd?.(user.record.rejection)
  }
}
