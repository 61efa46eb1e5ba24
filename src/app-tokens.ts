/** The token side of the app: endpoint, guard, cache, and the secret that they live from. */

import type { SecureContext } from 'node:tls'
import type { TokenEvents } from './app-events.ts'
import type { Config } from './config/schema.ts'
import { SecretFile } from './config/secret-file.ts'
import { targetPrefix } from './http/target.ts'
import { AppCredentials } from './token/app-credentials.ts'
import { LifetimeEstimator } from './token/lifetime.ts'
import { MintGuard } from './token/mint-guard.ts'
import { SecretRotation } from './token/secret-rotation.ts'
import { TokenCache } from './token/token-cache.ts'
import { TokenEndpoint } from './token/token-endpoint.ts'

export interface TokenSide {
  readonly credentials: AppCredentials
  readonly estimator: LifetimeEstimator
  readonly tokens: TokenCache
  /** Tries a token for each of `tokens.warm`; what fails has been reported when it resolves. */
  warm(): Promise<void>
  /** Reads the secret file again, where there is one. */
  reloadSecret(): Promise<void>
  close(): Promise<void>
}

export function assembleTokens(
  config: Config,
  secureContext: SecureContext | undefined,
  events: TokenEvents,
): TokenSide {
  const { baseUrl, origin, tokens: settings } = config
  const credentials = new AppCredentials(config.appId, config.appSecret)
  const endpoint = new TokenEndpoint(
    {
      baseUrl,
      prefix: targetPrefix(baseUrl),
      connections: settings.mintConcurrency,
      timeoutMs: settings.mintTimeout,
      connectTimeoutMs: origin.connectTimeout,
      secureContext,
      proxies: origin.proxies,
      observer: events,
    },
    credentials,
  )
  const guard = new MintGuard(
    {
      mintTimeoutMs: settings.mintTimeout,
      mintConcurrency: settings.mintConcurrency,
      mintRate: settings.mintRate,
      recoverCredentials: (calledAt) => rotation.recover(calledAt),
      observer: events,
    },
    endpoint,
  )
  const estimator = new LifetimeEstimator({
    lifetimeMs: settings.lifetime,
    minLifetimeMs: settings.minLifetime,
    maxLifetimeMs: settings.maxLifetime,
    learns: settings.learn,
    onChange: (estimateMs) => events.estimateChanged(estimateMs),
  })
  const tokens = new TokenCache(
    {
      maxOrgs: settings.maxOrgs,
      refusalTtlMs: settings.refusalTtl,
      rejectedCooldownMs: settings.rejectedCooldown,
      estimator,
      observer: events,
    },
    guard,
  )
  const rotation = new SecretRotation({
    credentials,
    prove: (candidate, org) => endpoint.mintAs(candidate, org, { reason: 'rotation' }),
    knownOrgs: () => tokens.knownOrgs(),
    reread: () => reloadSecret('rejected'),
    limitedUntil: () => guard.limitedUntil,
    onReplaced: () => guard.credentialsChanged(),
    observer: events,
  })
  const file =
    config.appSecretFile === undefined
      ? undefined
      : new SecretFile({
          path: config.appSecretFile,
          isInUse: (secret) => credentials.holds(secret),
          onCandidate: (candidate) => rotation.offer(candidate),
          onProblem: (problem) => events.secretUnusable(problem),
        })
  const reloadSecret = async (reason: 'signalled' | 'rejected'): Promise<void> => {
    await file?.reload(reason)
  }
  return {
    credentials,
    estimator,
    tokens,
    warm: async () => {
      await Promise.allSettled(settings.warm.map((org) => tokens.warm(org)))
    },
    reloadSecret: () => reloadSecret('signalled'),
    close: async () => {
      file?.close()
      rotation.close()
      tokens.close()
      await endpoint.close()
    },
  }
}
