/**
 * A fleet in one process and without a real clock: replicas, a store in memory behind a network with faults, and a token
 * endpoint. Everything happens at instants of a virtual clock. The seed decides the order.
 */

import { TokenError } from '../../src/errors.ts'
import { FleetKeys } from '../../src/fleet/sealing.ts'
import { SharedTokens } from '../../src/fleet/shared-tokens.ts'
import type { FleetStore } from '../../src/fleet/store.ts'
import type { OrgId } from '../../src/http/org-id.ts'
import { Secret } from '../../src/secret.ts'
import { AccessToken, type MintOptions, type TokenSource } from '../../src/token/token-source.ts'
import { EventQueue } from '../token/simulation/event-queue.ts'
import { MemoryStore } from './memory-store.ts'

export class VirtualTime {
  readonly #events = new EventQueue()
  now = 0

  at(instant: number, run: () => void): void {
    this.#events.add(Math.max(instant, this.now), run)
  }

  wait(ms: number): Promise<void> {
    return new Promise((resolve) => this.at(this.now + Math.max(0, ms), resolve))
  }

  /** Runs until no event is left, or until the instant. */
  async run(until = Number.POSITIVE_INFINITY): Promise<void> {
    await settled()
    while (this.#events.nextAt <= until) {
      const at = this.#events.nextAt
      if (at === Number.POSITIVE_INFINITY) break
      this.now = Math.max(this.now, at)
      this.#events.take()?.()
      await settled()
    }
  }
}

/** Lets all settled promises continue. */
function settled(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve))
}

export interface EndpointCall {
  readonly org: string
  readonly replica: number
  readonly startedAt: number
  readonly token: string
}

/** One token endpoint for all replicas. */
export class VirtualEndpoint {
  readonly calls: EndpointCall[] = []
  latencyMs = () => 50
  /** Rejects instead of answering. */
  failure: () => Error | undefined = () => undefined
  issue = (token: string, mintedAt: number) => new AccessToken(token, mintedAt)
  /** The most mints of one org at one time. */
  mostAtOnce = 0
  readonly #underway = new Map<string, number>()
  readonly #time: VirtualTime
  #made = 0

  constructor(time: VirtualTime) {
    this.#time = time
  }

  asSeenBy(replica: Replica): TokenSource {
    return {
      mint: async (org: OrgId, { deadlineAt = Number.POSITIVE_INFINITY }: MintOptions = {}) => {
        const startedAt = replica.now()
        const latencyMs = this.latencyMs()
        const restMs = deadlineAt - startedAt
        const token = `tok.${org}.${++this.#made}`
        this.calls.push({ org, replica: replica.id, startedAt: this.#time.now, token })
        const underway = (this.#underway.get(org) ?? 0) + 1
        this.#underway.set(org, underway)
        this.mostAtOnce = Math.max(this.mostAtOnce, underway)
        await replica.wait(Math.min(latencyMs, restMs))
        this.#underway.set(org, (this.#underway.get(org) ?? 1) - 1)
        if (latencyMs > restMs) throw new TokenError('token_endpoint_timeout', 'no answer in time')
        const failure = this.failure()
        if (failure !== undefined) throw failure
        return this.issue(token, startedAt)
      },
    }
  }
}

export interface WorldOptions {
  readonly random: () => number
  readonly timeoutMs?: number
  readonly mintTimeoutMs?: number
  readonly lifetimeMs?: number
}

/** The behaviour of the network between a replica and the store for one operation. */
export type Passage = { readonly kind: 'ok' | 'lost' | 'answer lost'; readonly delayMs: number }

export class World {
  readonly time = new VirtualTime()
  readonly store = new MemoryStore(() => this.time.now)
  readonly endpoint = new VirtualEndpoint(this.time)
  readonly options: Required<WorldOptions>
  readonly replicas: Replica[] = []
  /** Asked for each operation of each replica. */
  passage: (replica: Replica) => Passage = () => ({ kind: 'ok', delayMs: 1 })
  unusable = 0

  constructor(options: WorldOptions) {
    this.options = { timeoutMs: 100, mintTimeoutMs: 5_000, lifetimeMs: 300_000, ...options }
  }

  addReplica(secret = 'the secret'): Replica {
    const replica = new Replica(this, this.replicas.length, secret)
    this.replicas.push(replica)
    return replica
  }
}

export class Replica {
  readonly id: number
  readonly tokens: SharedTokens
  readonly keys: FleetKeys
  readonly #world: World
  /** Each has its own clock, which began at another instant. */
  readonly #skewMs: number
  #frozenUntil = 0
  isDead = false
  purgedAt = Number.NEGATIVE_INFINITY

  constructor(world: World, id: number, secret: string) {
    const { random, timeoutMs, mintTimeoutMs, lifetimeMs } = world.options
    this.#world = world
    this.id = id
    this.#skewMs = Math.floor(random() * 1e9)
    this.keys = new FleetKeys({ appId: 'app', baseUrl: 'https://api.example', appSecret: new Secret(secret) })
    this.tokens = new SharedTokens(
      {
        store: this.#storeAsSeen(),
        keys: this.keys,
        timeoutMs,
        mintTimeoutMs,
        maxLifetimeMs: 3_600_000,
        maxOrgs: 100,
        lifetimeMs: () => lifetimeMs,
        purgedAt: () => this.purgedAt,
        onUnusable: () => {
          world.unusable += 1
        },
        now: () => this.now(),
        random,
        wait: (ms) => this.wait(ms),
      },
      world.endpoint.asSeenBy(this),
    )
  }

  mint(org: string, options: MintOptions = {}): Promise<AccessToken> {
    return this.tokens.mint(org as OrgId, options)
  }

  now(): number {
    return this.#world.time.now + this.#skewMs
  }

  /** The replica is stopped until then. */
  freeze(ms: number): void {
    this.#frozenUntil = Math.max(this.#frozenUntil, this.#world.time.now + ms)
  }

  /** Never resolves for a replica that has died. */
  async wait(ms: number): Promise<void> {
    const { time } = this.#world
    await time.wait(ms)
    while (time.now < this.#frozenUntil) await time.wait(this.#frozenUntil - time.now)
    if (this.isDead) await new Promise(() => undefined)
  }

  #storeAsSeen(): FleetStore {
    const { store, options } = this.#world
    const ask = async <T extends { readonly kind: string } | undefined>(
      operate: () => Promise<T>,
      limitMs: number,
    ): Promise<T | { readonly kind: 'error' }> => {
      const { kind, delayMs } = this.#world.passage(this)
      const halfMs = delayMs / 2
      const isLate = kind !== 'ok' || delayMs > limitMs
      if (kind !== 'lost') {
        const reply = this.#world.time.wait(halfMs).then(operate)
        if (!isLate) {
          const answer = await reply
          await this.wait(halfMs)
          return answer
        }
      }
      await this.wait(limitMs)
      return { kind: 'error' }
    }
    const { timeoutMs } = options
    return {
      claim: (name, request, limitMs) => ask(() => store.claim(name, request), limitMs),
      publish: (name, request) => ask(() => store.publish(name, request), timeoutMs),
      release: async (name, owner, note) => {
        await ask(async () => void (await store.release(name, owner, note)), timeoutMs)
      },
      forget: async (name) => {
        await ask(async () => void (await store.forget(name)), timeoutMs)
      },
      permit: (name, request, limitMs) => ask(() => store.permit(name, request), limitMs),
      readBoard: (name, since) => ask(() => store.readBoard(name, since), timeoutMs),
      setLifetime: (name, sealed) => store.setLifetime(name, sealed),
      setLimit: (name, sealed, limitMs) => store.setLimit(name, sealed, limitMs),
      addPurge: (name, sealed) => store.addPurge(name, sealed),
    }
  }
}
