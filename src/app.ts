/** The composition root: builds every part from the configuration, starts them, and ends them in order. */

import type { Config } from './config/schema.ts'
import { Deadlines } from './gateway/deadlines.ts'
import { Gateway } from './gateway/handler.ts'
import { Origin } from './gateway/origin.ts'
import type { GatewayObserver } from './gateway/request-record.ts'
import { Tunnels } from './gateway/tunnels.ts'
import { HostList, LOOPBACK_NAMES } from './http/host.ts'
import { requestIds } from './http/request-id.ts'
import { targetPrefix } from './http/target.ts'
import type { AdmissionOptions } from './listener/admission.ts'
import { callerKeyCheck } from './listener/caller-key.ts'
import { Listener } from './listener/server.ts'
import type { Log } from './log.ts'
import { AppCredentials } from './token/app-credentials.ts'
import { LifetimeEstimator } from './token/lifetime.ts'
import { MintGuard } from './token/mint-guard.ts'
import { TokenCache } from './token/token-cache.ts'
import { TokenEndpoint } from './token/token-endpoint.ts'
import { trustedCertificates } from './trusted-certificates.ts'

export interface App {
  /** As it stands in a URL. */
  readonly address: string
  readonly adminAddress: string | undefined
  /** Makes the readiness check fail, so that balancers look elsewhere while requests are still served. */
  setNotReady(): void
  /**
   * Stops taking requests and lets those in hand finish, for at most `shutdown.timeout`. Resolves with the number of
   * connections that had to be broken off. Closes everything.
   */
  drain(): Promise<number>
  /** Breaks off everything at once. Resolves with the number of connections that were at work. */
  close(): Promise<number>
}

export async function startApp(config: Config, log: Log): Promise<App> {
  const { baseUrl, origin: originConfig, tokens: tokensConfig } = config
  const ca = trustedCertificates(originConfig.caCertificates)
  const credentials = new AppCredentials(config.appId, config.appSecret)
  const endpoint = new TokenEndpoint(
    {
      baseUrl,
      prefix: targetPrefix(baseUrl),
      connections: tokensConfig.mintConcurrency,
      timeoutMs: tokensConfig.mintTimeout,
      connectTimeoutMs: originConfig.connectTimeout,
      ca,
      proxies: originConfig.proxies,
    },
    credentials,
  )
  const guard = new MintGuard(
    {
      mintTimeoutMs: tokensConfig.mintTimeout,
      mintConcurrency: tokensConfig.mintConcurrency,
      mintRate: tokensConfig.mintRate,
    },
    endpoint,
  )
  const estimator = new LifetimeEstimator({
    lifetimeMs: tokensConfig.lifetime,
    minLifetimeMs: tokensConfig.minLifetime,
    maxLifetimeMs: tokensConfig.maxLifetime,
    learns: tokensConfig.learn,
  })
  const tokens = new TokenCache(
    {
      maxOrgs: tokensConfig.maxOrgs,
      refusalTtlMs: tokensConfig.refusalTtl,
      rejectedCooldownMs: tokensConfig.rejectedCooldown,
      estimator,
    },
    guard,
  )
  const observer: GatewayObserver = {
    requestEnded: (record) => log.request(record),
    replaySettled: () => undefined,
  }
  const deadlines = new Deadlines()
  const origin = new Origin({
    baseUrl,
    connections: originConfig.connections,
    connectTimeoutMs: originConfig.connectTimeout,
    ca,
    proxies: originConfig.proxies,
  })
  const tunnels = new Tunnels({ baseUrl, ca })
  const gateway = new Gateway({
    app: credentials,
    origin,
    tokens,
    tunnels,
    deadlines,
    observer,
    connectTimeoutMs: originConfig.connectTimeout,
    responseTimeoutMs: originConfig.responseTimeout,
    idleTimeoutMs: originConfig.idleTimeout,
    maxReplayBytes: config.replay.maxBody,
    rejectedStatuses: new Set(tokensConfig.rejectedStatuses),
    keepsAccessControl: config.listen.origins.length > 0,
  })
  const listener = new Listener(
    {
      address: config.listen.address,
      socketMode: config.listen.socketMode,
      allowsRemote: config.listen.allowRemote,
      maxConnections: config.listen.maxConnections,
      maxInFlight: config.listen.maxInFlight,
      headersTimeoutMs: config.listen.headersTimeout,
      idleTimeoutMs: config.listen.idleTimeout,
      keepAliveTimeoutMs: config.listen.keepAliveTimeout,
      admission: admissionOptions(config),
      observer,
    },
    gateway,
  )
  const address = await listener.listen()

  const close = async (): Promise<number> => {
    const broken = listener.close()
    tunnels.close()
    deadlines.close()
    tokens.close()
    await Promise.all([origin.close(), endpoint.close()])
    return broken
  }
  return {
    address,
    adminAddress: undefined,
    setNotReady: () => undefined,
    drain: async () => {
      await withinMs(listener.drain(), config.shutdown.timeout)
      return close()
    },
    close,
  }
}

function admissionOptions(config: Config): AdmissionOptions {
  const { listen, orgs, routes, baseUrl } = config
  const ownHost = listen.address.kind === 'tcp' ? [inUrl(listen.address.host)] : []
  return {
    hosts: new HostList([...LOOPBACK_NAMES, ...ownHost, ...listen.hosts]),
    browserOrigins: listen.origins,
    refusesForwarded: listen.refuseForwarded,
    isCallerKey: listen.callerKey === undefined ? undefined : callerKeyCheck(listen.callerKey),
    orgPattern: orgs.pattern,
    allowedOrgs: new Set(orgs.allow),
    allowedRoutes: routes.allow,
    allowsTokenEndpoint: routes.allowTokenEndpoint,
    appRoutes: config.appRoutes,
    targetPrefix: targetPrefix(baseUrl),
    originHost: baseUrl.host,
    newRequestId: requestIds(),
  }
}

function inUrl(host: string): string {
  return host.includes(':') ? `[${host}]` : host
}

/** Resolves when `work` has ended, or when the time is over. */
async function withinMs(work: Promise<void>, limitMs: number): Promise<void> {
  let timer: NodeJS.Timeout | undefined
  const limit = new Promise<void>((resolve) => {
    timer = setTimeout(resolve, limitMs)
  })
  await Promise.race([work, limit])
  clearTimeout(timer)
}
