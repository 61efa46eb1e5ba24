/** The token side of the app: Orgs, mints, endpoint, and the rotation of the secret, built from the configuration. */

import assert from 'node:assert/strict'
import * as clock from '../clock.ts'
import { parseAppSecretFor } from '../config/files.ts'
import type { Config } from '../config/schema.ts'
import type { ErrorCode } from '../errors.ts'
import type { Fleet } from '../fleet/fleet.ts'
import type { MinterSource } from '../minter/minter-source.ts'
import type { OrgId } from '../org-id.ts'
import type { ConnectionPool } from '../origin/connection-pool.ts'
import type { PartWarnings, Status } from '../part.ts'
import type { Secret } from '../secret.ts'
import { AppCredentials } from '../token/app-credentials.ts'
import { AppKey, ENDED_JWT, lifeLeft } from '../token/app-key.ts'
import { Mints } from '../token/mints.ts'
import { Orgs } from '../token/orgs.ts'
import { endpointText, idAtEndpoint } from '../token/token-request.ts'
import type { SettledMint, TokenSource } from '../token/token-source.ts'
import { mintWarnings, orgWarnings } from '../token/token-warnings.ts'
import { FileWatch, readRegularFile } from '../watched-file.ts'
import type { Events } from './events.ts'
import { openMinterSource } from './minter.ts'
import { openTokenEndpoint } from './pools.ts'
import type { Part } from './reload.ts'

/** Few at once, so that a request for one of these orgs does not wait behind all the others. */
const WARM_AT_ONCE = 8
/** While the App is rejected, or the minter is lost or refuses this sidecar. Pauses hold most of them back. */
const ASK_AGAIN_MS = 1_000
/** Node's timers wrap to 1 ms above 2^31-1 ms. */
const LONGEST_WAIT_MS = 86_400_000
const REJECTED = 'the token endpoint rejects the App credentials: check appId, the App secret and baseUrl'

export class TokenSide implements Part {
  /** Undefined for a sidecar of a minter. */
  readonly credentials: AppCredentials | undefined
  /** Set for a sidecar alone. */
  readonly minter: MinterSource | undefined
  readonly orgs: Orgs
  readonly mints: Mints
  /** Taken over last. */
  #config: Config
  readonly #pool: ConnectionPool
  readonly #events: Events
  readonly #fleet: Fleet | undefined
  readonly #secretFile: string | undefined
  readonly #secretWatch: FileWatch | undefined
  #secretFileProblem: string | undefined
  #jwtEnd: clock.Timer | undefined
  readonly #stopped = new AbortController()
  #askingAgain: clock.Timer | undefined
  /** Of a sidecar: what was told of its minter last. Undefined if all is well. */
  #minterState: ErrorCode | 'lost' | undefined

  /** `pool` is for the calls of the token endpoint alone: no request waits for a place that a mint has, nor the other way round. */
  constructor(config: Config, pool: ConnectionPool, events: Events, fleet: Fleet | undefined) {
    const { tokens: settings } = config
    const secretFile = (config.appSecretFile ?? settings.assertionFile)?.path
    this.#config = config
    this.#pool = pool
    this.#events = events
    this.#fleet = fleet
    const isEnding = () => this.#stopped.signal.aborted // what our own end breaks off tells nothing of the endpoint
    const { url } = config.minter
    if (url !== undefined) {
      this.minter = openMinterSource(url, config, pool, () => this.#config.minter, {
        minterAsked: (mint) => {
          if (isEnding()) return
          events.minterAsked(mint)
          this.#tellMinterState()
          this.#askAgainAfter(mint)
        },
      })
    }
    if (config.app !== undefined) {
      const { appId, appSecret } = config.app
      this.credentials = new AppCredentials(new AppKey(appId, appSecret, settings), (state, inUse) => {
        this.mints.resume('credentials')
        fleet?.secretReplaced(inUse)
        events.secretReloaded(state, secretFile)
      })
      this.#secretFile = secretFile
      this.#secretFileProblem = this.#endOf(appSecret)
      if (secretFile !== undefined) {
        this.#secretWatch = new FileWatch(
          () => [secretFile],
          () => this.reloadSecret(),
        )
      }
    }
    const source = this.minter ?? (this.credentials && this.#openEndpoint(config, this.credentials, isEnding))
    assert(source !== undefined)
    this.mints = new Mints(settings, source, () => this.orgs)
    this.orgs = new Orgs(
      {
        ...settings,
        lifetimeMs: settings.lifetimeMs === 'auto' ? undefined : settings.lifetimeMs,
        rejectedStatuses: config.learnsStatuses ? undefined : settings.rejectedStatuses,
        sharesTokens: fleet !== undefined || url !== undefined,
        maxWaiting: Math.max(1, Math.floor(config.listen.maxInFlight / 2)),
        observer: events,
        whyLate: () => this.mints.rejection,
      },
      fleet?.inFrontOf(this.mints) ?? this.mints,
    )
  }

  #openEndpoint(config: Config, credentials: AppCredentials, isEnding: () => boolean): TokenSource {
    const mintSettled: Events['mintSettled'] = (mint) => {
      if (isEnding()) return
      this.#events.mintSettled(mint)
      this.#askAgainAfter(mint)
    }
    return openTokenEndpoint(
      config,
      this.#pool,
      credentials,
      { mintSettled },
      () => this.reloadSecret(),
      () => this.#config,
    )
  }

  warnings(now: number): PartWarnings {
    const { baseUrl, tokens } = this.#config
    const call = this.minter === undefined ? endpointText({ baseUrl, endpoint: tokens.endpoint }) : undefined
    return {
      ...mintWarnings(this.mints, this.orgs.troubled, call),
      ...orgWarnings(this.orgs, now),
      ...this.minter?.warnings(),
      secret_refused: this.#secretProblem,
    }
  }

  status(): Partial<Status> {
    const { underway, waiting } = this.mints.calls
    const isRejected = this.minter === undefined && this.mints.isAppRejected
    return {
      requestsWaitingForToken: this.orgs.waiting,
      mintCalls: underway,
      mintCallsWaiting: waiting,
      cachedTokens: this.orgs.tokenCount,
      orgsPaused: this.orgs.troubled.filter(({ leftMs }) => leftMs > 0).length,
      mintPace: this.mints.pace,
      isMinterAvailable: this.minter?.isWell !== false,
      checks: [{ name: 'credentials', isOk: !isRejected, detail: isRejected ? REJECTED : undefined }],
    }
  }

  /** Of one org, or of all. Returns the number of tokens that it has dropped. */
  purge(org?: OrgId): number {
    const purged = this.orgs.purge(org)
    if (org === undefined) this.#fleet?.purge(purged, 'all')
    else this.#fleet?.purge([org])
    return purged.length
  }

  /** Ends the pauses and limits of mints. */
  resume(): void {
    this.mints.resume()
    this.orgs.endPauses()
  }

  /** What an operator should know about the secret file, for as long as it holds. */
  get #secretProblem(): string | undefined {
    const rejected = 'holds a secret that the token endpoint rejects: correct it'
    const problem = this.#secretFileProblem ?? (this.credentials?.state === 'rejected' ? rejected : undefined)
    if (problem === undefined) return undefined
    const setting = this.#config.tokens.assertionFile === undefined ? 'appSecretFile' : 'tokens.assertionFile'
    return `${setting} ${problem}.${problem === ENDED_JWT ? '' : ' The secret before it is used, until the service ends it.'}`
  }

  /**
   * Mints for each org of `tokens.warm` once, in random order: proxies that start together should not all begin with the same
   * org. Failures have been logged when it resolves. Never rejects.
   */
  async warm(): Promise<void> {
    const { warm } = this.#config.tokens
    if (warm.length === 0) return
    const waiting = [...warm]
    const next = () => waiting.splice(Math.floor(clock.random() * waiting.length), 1)[0]
    let failed = 0
    const work = async () => {
      for (let org = next(); org !== undefined && !this.#stopped.signal.aborted; org = next()) {
        await this.orgs.mint(org, 'warm').token.catch(() => (failed += 1))
      }
    }
    await Promise.all(Array.from({ length: WARM_AT_ONCE }, work))
    this.#events.warmed(warm.length, failed + waiting.length)
  }

  async reloadSecret(): Promise<void> {
    const { credentials } = this
    const file = this.#secretFile
    if (file === undefined || credentials === undefined) return
    const { tokens } = this.#config
    let problem: string | undefined
    try {
      const { bytes } = await readRegularFile(file)
      const secret = parseAppSecretFor(tokens, bytes)
      credentials.offer(new AppKey(credentials.key.appId, secret, tokens))
      problem = this.#endOf(secret)
    } catch (error) {
      problem = error instanceof Error ? error.message : 'cannot be read'
    }
    if (problem !== undefined && problem !== this.#secretFileProblem) this.#events.secretUnusable(file, problem)
    this.#secretFileProblem = problem
  }

  /** A JWT that somebody else signs is told once it has ended: the endpoint would only say that it is not good. */
  #endOf(secret: Secret): string | undefined {
    this.#jwtEnd?.cancel()
    if (this.#config.tokens.assertionFile === undefined) return undefined
    const leftMs = lifeLeft(secret)
    if (leftMs > 0) this.#jwtEnd = clock.after(Math.min(leftMs, LONGEST_WAIT_MS), () => void this.reloadSecret())
    return leftMs <= 0 ? ENDED_JWT : undefined
  }

  /** The tokens of an Org whose id at the endpoint has changed are those of another. */
  use(config: Config): void {
    const [before, after] = [{ orgIds: this.#config.orgs.ids }, { orgIds: config.orgs.ids }]
    this.#config = config
    if (before.orgIds === after.orgIds) return
    for (const org of new Set([...(before.orgIds?.keys() ?? []), ...(after.orgIds?.keys() ?? [])])) {
      if (idAtEndpoint(org, before) !== idAtEndpoint(org, after)) this.orgs.purge(org)
    }
  }

  close(): void {
    this.#stopped.abort()
    this.#askingAgain?.cancel()
    this.#secretWatch?.close()
    this.#jwtEnd?.cancel()
    this.orgs.purge()
    this.#pool.close()
  }

  #tellMinterState(): void {
    const { problem, refusal } = this.minter ?? {}
    const state = problem === undefined ? refusal : 'lost'
    if (state === this.#minterState) return
    this.#minterState = state
    if (problem !== undefined) this.#events.minterLost(problem)
    else if (refusal !== undefined) this.#events.minterRefused(refusal)
    else this.#events.minterBack()
  }

  /** Without a token, this proxy may get no request that finds out when the App is accepted, or the minter back. */
  #askAgainAfter({ org, error }: SettledMint): void {
    this.#askingAgain?.cancel()
    const isRejected = error?.trouble === 'credentials' && this.credentials?.wereAccepted === false
    if (!isRejected && this.minter?.isWell !== false) return
    const ask = () => {
      // In turn: the trouble of one may be its own.
      this.orgs.mint(this.orgs.troubled.at(-1)?.org ?? org, 'warm')
    }
    this.#askingAgain = clock.every(ASK_AGAIN_MS, ask)
  }
}
