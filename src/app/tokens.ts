/** The token side of the app: endpoint, guard, cache, and the rotation of the secret, built from the configuration. */

import assert from 'node:assert/strict'
import { randomInt } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { parseAppSecretFor } from '../config/files.ts'
import type { Config } from '../config/schema.ts'
import { type ErrorCode, TokenError } from '../errors.ts'
import type { Fleet } from '../fleet/fleet.ts'
import type { MinterSource } from '../minter/minter-source.ts'
import type { OrgId } from '../org-id.ts'
import type { Origin } from '../origin/origin.ts'
import { AppCredentials } from '../token/app-credentials.ts'
import { type AppAuth, AppKey } from '../token/app-key.ts'
import { MintGuard } from '../token/mint-guard.ts'
import { TokenCache } from '../token/token-cache.ts'
import type { TokenSource } from '../token/token-source.ts'
import { FileWatch, readRegularFile } from '../watched-file.ts'
import type { Events } from './events.ts'
import { openMinterSource } from './minter.ts'
import { openTokenEndpoint } from './origin.ts'

/** Few at once, so that a request for one of these orgs does not wait behind all the others. */
const WARM_AT_ONCE = 8
/** How long a warm org may wait for the end of pauses, in all. */
const LONGEST_WARM_PAUSE_SECONDS = 5

/** A sidecar whose minter is lost, or refuses it, asks so often. */
const MINTER_PROBE_MS = 2_000

const REJECTED = 'app_credentials_rejected'

export class TokenSide {
  /** Undefined for a sidecar of a minter. */
  readonly credentials: AppCredentials | undefined
  /** Set for a sidecar alone. */
  readonly minter: MinterSource | undefined
  readonly tokens: TokenCache
  readonly guard: MintGuard
  readonly #warmOrgs: readonly OrgId[]
  readonly #origin: Origin
  readonly #events: Events
  readonly #appId: string | undefined
  readonly #auth: AppAuth
  readonly #secretFile: string | undefined
  readonly #secretWatch: FileWatch | undefined
  #secretFileProblem: string | undefined
  readonly #stopped = new AbortController()
  #probe: NodeJS.Timeout | undefined
  /** Of a sidecar, while its minter is lost or refuses it. */
  #minterProbe: NodeJS.Timeout | undefined
  /** Of a sidecar: what was told of its minter last. Undefined if all is well. */
  #minterState: ErrorCode | 'lost' | undefined

  /** `origin` is for the calls of the token endpoint alone: no request waits for a place that a mint has, nor the other way round. */
  constructor(
    config: Config,
    origin: Origin,
    events: Events,
    fleet: Fleet | undefined,
    live: { readonly config: Config },
  ) {
    const { tokens: settings } = config
    const appSecretFile = config.appSecretFile?.path
    this.#warmOrgs = settings.warm
    this.#auth = settings.auth
    this.#origin = origin
    this.#events = events
    const isEnding = () => this.#stopped.signal.aborted // what our own end breaks off tells nothing of the endpoint
    const { url } = config.minter
    if (url !== undefined) {
      this.minter = openMinterSource(url, config, origin, live, {
        minterAsked: (mint) => {
          if (isEnding()) return
          events.minterAsked(mint)
          this.#watchMinter(mint.org)
        },
      })
    }
    if (config.app !== undefined) {
      const { appId, appSecret } = config.app
      this.credentials = new AppCredentials(new AppKey(appId, appSecret, settings.auth), (state, inUse) => {
        this.guard.resume(REJECTED)
        fleet?.secretReplaced(inUse)
        events.secretReloaded(state, appSecretFile)
      })
      this.#appId = appId
      this.#secretFile = appSecretFile
      if (appSecretFile !== undefined) {
        this.#secretWatch = new FileWatch(
          () => [appSecretFile],
          () => this.reloadSecret(),
        )
      }
    }
    const source = this.minter ?? (this.credentials && this.#openEndpoint(config, this.credentials, isEnding))
    assert(source !== undefined)
    this.guard = new MintGuard(settings, source, {
      mintsPaused: (code, pauseMs) => {
        if (this.#stopped.signal.aborted) return
        events.mintsPaused(code, pauseMs)
        if (code === REJECTED) this.#probeAfter(pauseMs)
      },
      mintsResumed: () => events.mintsResumed(),
    })
    this.tokens = new TokenCache(
      {
        ...settings,
        lifetimeMs: settings.lifetimeMs === 'auto' ? undefined : settings.lifetimeMs,
        rejectedStatuses: config.learnsStatuses ? undefined : settings.rejectedStatuses,
        observer: events,
      },
      fleet?.inFrontOf(this.guard) ?? this.guard,
    )
  }

  #openEndpoint(config: Config, credentials: AppCredentials, isEnding: () => boolean): TokenSource {
    const mintSettled: Events['mintSettled'] = (mint) => {
      if (!isEnding()) this.#events.mintSettled(mint)
    }
    return openTokenEndpoint(config, this.#origin, credentials, { mintSettled }, () => this.reloadSecret())
  }

  /** The token endpoint rejects the App, and has never accepted it. False at a sidecar: the App is that of the minter. */
  get areCredentialsRejected(): boolean {
    return this.guard.pauseOfAll?.code === REJECTED && this.credentials?.areRejected === true
  }

  get seemCredentialsRejected(): boolean {
    return this.guard.pauseOfAll?.code === REJECTED || this.credentials?.areRejected === true
  }

  /** What an operator should know about the secret file, for as long as it holds. */
  get secretProblem(): string | undefined {
    const rejected = 'holds a secret that the token endpoint rejects: correct it'
    return this.#secretFileProblem ?? (this.credentials?.state === 'rejected' ? rejected : undefined)
  }

  /**
   * Mints for each org of `tokens.warm` once, in random order: proxies that start together should not all begin with the same
   * org. Failures have been logged when it resolves. Never rejects.
   */
  async warm(): Promise<void> {
    if (this.#warmOrgs.length === 0) return
    const waiting = [...this.#warmOrgs]
    const next = () => waiting.splice(Math.floor(Math.random() * waiting.length), 1)[0]
    let failed = 0
    const work = async () => {
      for (let org = next(); org !== undefined && !this.#stopped.signal.aborted; org = next()) {
        if (!(await this.#warmOne(org))) failed += 1
      }
    }
    await Promise.all(Array.from({ length: WARM_AT_ONCE }, work))
    this.#events.warmed(this.#warmOrgs.length, failed + waiting.length)
  }

  /** Returns true if there is a token. A mint that is over the budget waits and is tried again, and so is one in a short pause. */
  async #warmOne(org: OrgId): Promise<boolean> {
    const { signal } = this.#stopped
    for (let pauses = 0; ; ) {
      try {
        await this.tokens.mint(org, 'warm')
        return true
      } catch (error) {
        const seconds = error instanceof TokenError ? error.retryAfterSeconds : undefined
        if (signal.aborted || seconds === undefined) return false
        if (this.guard.status !== undefined) pauses += seconds
        if (pauses > LONGEST_WARM_PAUSE_SECONDS) return false
        await sleep(seconds * 1_000, undefined, { signal }).catch(() => undefined)
      }
    }
  }

  /** Reads the file of the secret again, if there is one. Never rejects. */
  async reloadSecret(): Promise<void> {
    const [file, appId] = [this.#secretFile, this.#appId]
    if (file === undefined || appId === undefined) return
    const former = this.#secretFileProblem
    try {
      const { bytes } = await readRegularFile(file)
      this.credentials?.offer(new AppKey(appId, parseAppSecretFor(this.#auth, bytes), this.#auth))
      this.#secretFileProblem = undefined
    } catch (error) {
      const problem = error instanceof Error ? error.message : 'cannot be read'
      this.#secretFileProblem = problem
      if (problem !== former) this.#events.secretUnusable(file, problem)
    }
  }

  close(): void {
    this.#stopped.abort()
    clearTimeout(this.#probe)
    clearTimeout(this.#minterProbe)
    this.#secretWatch?.close()
    this.tokens.purge()
    this.#origin.close()
  }

  /** A proxy whose App is rejected is not ready, so it may get no request that finds out when the App is accepted again. */
  #probeAfter(pauseMs: number): void {
    clearTimeout(this.#probe)
    this.#probe = setTimeout(() => {
      if (this.guard.pauseOfAll?.code !== REJECTED) return
      this.#probeAfter(pauseMs) // unless another pause begins
      // Any of them: the trouble of one may be its own.
      const orgs = this.guard.status?.orgs ?? []
      const org = orgs[randomInt(Math.max(orgs.length, 1))]
      if (org !== undefined) this.tokens.mint(org, 'probe').catch(() => undefined)
    }, pauseMs).unref()
  }

  /** While the minter is lost, or refuses this sidecar, the end of that is noticed without a request. */
  #watchMinter(org: OrgId): void {
    const { problem, refusal } = this.minter ?? {}
    const state = problem === undefined ? refusal : 'lost'
    clearTimeout(this.#minterProbe)
    if (state !== this.#minterState) {
      this.#minterState = state
      if (problem !== undefined) this.#events.minterLost(problem)
      else if (refusal !== undefined) this.#events.minterRefused(refusal)
      else this.#events.minterBack()
    }
    if (state === undefined) return
    const probe = () => {
      this.#minterProbe?.refresh() // in case that a pause lets no call through
      this.tokens.mint(org, 'probe').catch(() => undefined)
    }
    this.#minterProbe = setTimeout(probe, MINTER_PROBE_MS).unref()
  }
}
