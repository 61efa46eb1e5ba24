/** Builds the token side of the app: endpoint, guard, cache, and the rotation of the secret. */

import { setTimeout as sleep } from 'node:timers/promises'
import { hasOuterWhiteSpace, OUTER_WHITE_SPACE, parseSecretBytes } from '../config/files.ts'
import type { Config } from '../config/schema.ts'
import type { Fleet } from '../fleet/fleet.ts'
import type { OrgId } from '../http/org-id.ts'
import type { Origin } from '../origin/origin.ts'
import { AppCredentials, SecretRotation } from '../token/app-credentials.ts'
import { LifetimeEstimator } from '../token/lifetime.ts'
import { MintGuard } from '../token/mint-guard.ts'
import { TokenCache } from '../token/token-cache.ts'
import { OverBudget } from '../token/token-source.ts'
import { WatchedFile } from '../watched-file.ts'
import type { TokenEvents } from './events.ts'
import { openTokenEndpoint } from './origin.ts'

export interface TokenSide {
  readonly credentials: AppCredentials
  readonly estimator: LifetimeEstimator
  readonly tokens: TokenCache
  /** Mints for each org of `tokens.warm`. Failures have been logged when it resolves. Never rejects. */
  warm(): Promise<void>
  /** The token endpoint rejects the App, and not just one org. */
  readonly areCredentialsRejected: boolean
  /** Reads the secret file again, if there is one. */
  reloadSecret(): Promise<void>
  close(): void
}

/** Of many replicas, the earliest refreshes at 96 % of a token's life, which makes 1.04 mints per lifetime. */
const FLEET_REFRESH_SCALE = 0.4

/** `origin` is for the calls of the token endpoint alone: no request waits for a place that a mint has, nor the other way round. */
export function assembleTokens(
  config: Config,
  origin: Origin,
  events: TokenEvents,
  fleet: Fleet | undefined,
): TokenSide {
  const { tokens: settings } = config
  const stopped = new AbortController()
  const credentials = new AppCredentials(config.appId, config.appSecret)
  const endpoint = openTokenEndpoint(config, origin, credentials, events)
  const guard = new MintGuard(
    {
      mintTimeoutMs: settings.mintTimeout,
      mintConcurrency: settings.mintConcurrency,
      mintRate: settings.mintRate,
      recoverCredentials: (calledAt) => rotation.recover(calledAt),
      onLimited: (until) => fleet?.limited(until),
      observer: events,
    },
    fleet?.rationing(endpoint) ?? endpoint,
  )
  const estimator = new LifetimeEstimator({
    lifetimeMs: settings.lifetime,
    minLifetimeMs: settings.minLifetime,
    maxLifetimeMs: settings.maxLifetime,
    learns: settings.learn,
    onChange: (estimateMs) => {
      events.estimateChanged(estimateMs)
      fleet?.lifetimeLearned(estimateMs)
    },
  })
  const tokens = new TokenCache(
    {
      maxOrgs: settings.maxOrgs,
      refusalTtlMs: settings.refusalTtl,
      rejectedCooldownMs: settings.rejectedCooldown,
      refreshScale: fleet === undefined ? 1 : FLEET_REFRESH_SCALE,
      estimator,
      observer: events,
    },
    fleet?.inFrontOf(guard) ?? guard,
  )
  fleet?.listen({
    limited: (until) => guard.pauses.pauseUntil(until),
    lifetimeLearned: (lifetimeMs) => estimator.adopt(lifetimeMs),
    purged: (org) => {
      if (org === undefined) tokens.purgeAll()
      else tokens.purge(org)
    },
  })
  const rotation = new SecretRotation({
    credentials,
    prove: (candidate, org) => endpoint.mintAs(candidate, org, { reason: 'rotation' }),
    knownOrgs: () => tokens.knownOrgs(),
    isRejected: () => guard.pauses.mayCredentialsBeWrong,
    reread: () => reloadSecret(),
    limitedUntil: (org) => guard.pauses.limitedUntil(org),
    onReplaced: (secret) => {
      guard.pauses.credentialsChanged()
      fleet?.secretReplaced(secret)
    },
    observer: events,
  })
  const file =
    config.appSecretFile === undefined
      ? undefined
      : new WatchedFile({
          path: config.appSecretFile,
          onContent: (bytes) => {
            const secret = parseSecretBytes(bytes)
            if (hasOuterWhiteSpace(secret) && !credentials.holds(secret)) events.secretWarning(OUTER_WHITE_SPACE)
            rotation.offer(secret)
          },
          onProblem: (problem) => events.secretUnusable(problem),
        })
  const reloadSecret = async (): Promise<void> => {
    await file?.reload()
  }
  return {
    credentials,
    estimator,
    tokens,
    get areCredentialsRejected() {
      return guard.pauses.areCredentialsRejected
    },
    warm: async () => {
      if (settings.warm.length === 0) return
      const failed = await warmAll(settings.warm, (org) => tokens.warm(org), stopped.signal)
      events.warmed(settings.warm.length, failed)
    },
    reloadSecret,
    close: () => {
      stopped.abort()
      events.flush()
      file?.close()
      rotation.close()
      tokens.close()
      origin.close()
    },
  }
}

/** Few at once, so that a request for one of these orgs does not wait behind all the others. */
const WARM_AT_ONCE = 8

/**
 * Mints for each org once, in random order: proxies that start together should not all begin with the same org. A mint that
 * is over the budget waits and is tried again. Resolves with the number of orgs that have no token.
 */
async function warmAll(
  orgs: readonly OrgId[],
  mint: (org: OrgId) => Promise<void>,
  stopped: AbortSignal,
): Promise<number> {
  const waiting = shuffle(orgs)
  let failed = 0
  const work = async () => {
    for (let org = waiting.pop(); org !== undefined && !stopped.aborted; org = waiting.pop()) {
      if (!(await warmOne(org, mint, stopped))) failed += 1
    }
  }
  await Promise.all(Array.from({ length: WARM_AT_ONCE }, work))
  return failed + waiting.length
}

async function warmOne(org: OrgId, mint: (org: OrgId) => Promise<void>, stopped: AbortSignal): Promise<boolean> {
  for (;;) {
    try {
      await mint(org)
      return true
    } catch (error) {
      if (!(error instanceof OverBudget) || stopped.aborted) return false
      await sleep((error.retryAfterSeconds ?? 1) * 1_000, undefined, { signal: stopped }).catch(() => undefined)
    }
  }
}

function shuffle<T>(values: readonly T[]): T[] {
  return values
    .map((value) => ({ value, order: Math.random() }))
    .toSorted((a, b) => a.order - b.order)
    .map(({ value }) => value)
}
