/** Replicas without a proxy around them: each is a fleet's part with a real store, in front of one token endpoint for all. */

import { Fleet } from '../../../src/fleet/fleet.ts'
import { RedisStore, type StoreObserver } from '../../../src/fleet/redis-store.ts'
import type { OrgId } from '../../../src/org-id.ts'
import { Secret } from '../../../src/secret.ts'
import { AccessToken, type MintOptions, type TokenSource } from '../../../src/token/token-source.ts'
import { eventually, type Gate } from '../../support/changes.ts'

export interface Told {
  /** `operation outcome`, in order. */
  readonly asked: string[]
  readonly lost: string[]
  readonly back: string[]
}

function recorder(): Told & { readonly observer: StoreObserver } {
  const told: Told = { asked: [], lost: [], back: [] }
  const observer: StoreObserver = {
    storeAsked: (operation, outcome) => told.asked.push(`${operation} ${outcome}`),
    storeLost: (reason) => told.lost.push(reason),
    storeBack: () => told.back.push('back'),
  }
  return { ...told, observer }
}

export interface StoreSettings {
  readonly timeoutMs?: number
  readonly cluster?: boolean
  readonly password?: () => Secret | undefined
}

function optionsFor(port: number, { timeoutMs = 5_000, cluster = false, password }: StoreSettings) {
  return {
    address: { kind: 'tcp', host: '127.0.0.1', port, tls: false, database: 0 },
    cluster,
    username: undefined,
    password: password ?? (() => undefined),
    secureContext: undefined,
    prefix: 'test',
    timeoutMs,
  } as const
}

/** The store alone. */
export function openStore(
  port: number,
  settings: StoreSettings = {},
): Told & { readonly store: RedisStore } & Disposable {
  const { observer, ...told } = recorder()
  const store = new RedisStore({ ...optionsFor(port, settings), observer })
  return { ...told, store, [Symbol.dispose]: () => store.close() }
}

/** Makes the tokens `ORG.1`, `ORG.2`, … */
export class Endpoint {
  readonly calls: OrgId[] = []
  latencyMs = 30
  /** Holds the answers. */
  gate: Gate | undefined
  /** Rejects instead of answering. */
  failure: () => Error | undefined = () => undefined
  issue = (token: string, mintedAt: number) => new AccessToken(token, mintedAt)

  async mint(org: OrgId): Promise<AccessToken> {
    const number = this.calls.push(org)
    const failure = this.failure()
    await (this.gate?.pass() ?? passed(this.latencyMs))
    if (failure !== undefined) throw failure
    return this.issue(`${org}.${number}`, performance.now())
  }
}

export function passed(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, Math.max(0, ms)))
}

interface ReplicaOptions extends StoreSettings {
  readonly secret?: string
  readonly mintTimeoutMs?: number
  readonly sharedAs?: (org: OrgId) => string
}

export class Replica implements AsyncDisposable {
  readonly fleet: Fleet
  readonly told: Told
  readonly #source: TokenSource

  constructor(
    port: number,
    endpoint: Endpoint,
    { secret, mintTimeoutMs = 20_000, sharedAs = (org) => org, ...settings }: ReplicaOptions = {},
  ) {
    const { observer, ...told } = recorder()
    this.told = told
    this.fleet = new Fleet({
      appId: 'app',
      baseUrl: 'https://api.example',
      tokenRequest: '',
      appSecret: new Secret(secret ?? 'the secret'),
      store: { ...optionsFor(port, settings), observer },
      mintTimeoutMs,
      sharedAs,
    })
    this.#source = this.fleet.inFrontOf({
      mint: (org) => endpoint.mint(org),
    })
  }

  /** Resolves when each has reached the store. */
  static async start(
    count: number,
    port: number,
    endpoint: Endpoint,
    options?: ReplicaOptions,
  ): Promise<readonly Replica[] & AsyncDisposable> {
    const replicas = Array.from({ length: count }, () => new Replica(port, endpoint, options))
    for (const { fleet } of replicas)
      await eventually(() => fleet.store.status.state === 'available' || undefined, 'the store')
    const dispose = async () => {
      await Promise.all(replicas.map((replica) => replica[Symbol.asyncDispose]()))
    }
    return Object.assign(replicas, { [Symbol.asyncDispose]: dispose })
  }

  async mint(org: string, options?: MintOptions): Promise<AccessToken> {
    return await this.#source.mint(org as OrgId, options)
  }

  /** The token alone. */
  async text(org: string, options?: MintOptions): Promise<string> {
    return (await this.mint(org, options)).reveal()
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.fleet.close()
  }
}
