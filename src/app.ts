/** The composition root: builds every part from the configuration, starts them, and ends them in order. */

import { AdminListener, type AdminOptions } from './admin/admin-server.ts'
import type { ReadinessCheck } from './admin/health.ts'
import { type Gauges, Metrics } from './admin/metrics.ts'
import { RecentErrors } from './admin/recent-errors.ts'
import { RequestEvents, TokenEvents } from './app-events.ts'
import { assembleTokens, type TokenSide } from './app-tokens.ts'
import { readVersion } from './cli/version.ts'
import { isLoopback } from './config/address.ts'
import type { Config } from './config/schema.ts'
import { Deadlines } from './gateway/deadlines.ts'
import { Gateway } from './gateway/handler.ts'
import { Tunnels } from './gateway/tunnels.ts'
import { HostList, LOOPBACK_NAMES } from './http/host.ts'
import { requestIds } from './http/request-id.ts'
import { targetPrefix } from './http/target.ts'
import type { AdmissionOptions } from './listener/admission.ts'
import type { ListenAddress } from './listener/bind.ts'
import { callerKeyCheck } from './listener/caller-key.ts'
import { Listener } from './listener/server.ts'
import type { Log } from './log.ts'
import { Origin } from './origin/origin.ts'
import { tunnelFor } from './origin/proxy-tunnel.ts'
import { contextTrusting } from './trusted-certificates.ts'

export interface App {
  /** As it stands in a URL. */
  readonly address: string
  /** Undefined where `admin.address` is `off`. */
  readonly adminAddress: string | undefined
  /** Resolves when the orgs of `tokens.warm` have been tried. */
  readonly warmed: Promise<void>
  /** Reads the secret file again; a changed secret is proved before it is used. */
  reloadSecret(): Promise<void>
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

/** Resolves when it listens; ready it is when it is warm, too. */
export async function startApp(config: Config, log: Log): Promise<App> {
  const secureContext = contextTrusting(config.origin.caCertificates)
  const metrics = new Metrics()
  const errors = new RecentErrors()
  const requestEvents = new RequestEvents(log, metrics, errors)
  const tokenEvents = new TokenEvents(log.logger, metrics)
  const side = assembleTokens(config, secureContext, tokenEvents)
  const deadlines = new Deadlines()
  const origin = new Origin({
    baseUrl: config.baseUrl,
    connections: config.origin.connections,
    connectTimeoutMs: config.origin.connectTimeout,
    secureContext,
    tunnel: config.origin.proxies === undefined ? undefined : tunnelFor(config.baseUrl, config.origin.proxies),
    keepsAccessControl: config.listen.origins.length > 0,
  })
  const tunnels = new Tunnels({ baseUrl: config.baseUrl, secureContext, proxies: config.origin.proxies })
  const gateway = new Gateway({
    app: side.credentials,
    origin,
    tokens: side.tokens,
    tunnels,
    deadlines,
    observer: requestEvents,
    connectTimeoutMs: config.origin.connectTimeout,
    responseTimeoutMs: config.origin.responseTimeout,
    idleTimeoutMs: config.origin.idleTimeout,
    maxReplayBytes: config.replay.maxBody,
    rejectedStatuses: new Set(config.tokens.rejectedStatuses),
    keepsAccessControl: config.listen.origins.length > 0,
    clientKeepAliveSeconds: Math.floor(config.listen.keepAliveTimeout / 1_000),
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
      observer: requestEvents,
    },
    gateway,
  )

  const phase = { isListening: false, isWarm: false, isDraining: false }
  const readiness = (): ReadinessCheck[] => [
    { name: 'configuration', isOk: true },
    { name: 'listening', isOk: phase.isListening },
    { name: 'warm', isOk: phase.isWarm, detail: `${config.tokens.warm.length} orgs to be tried at start` },
    { name: 'accepting', isOk: !phase.isDraining, detail: 'false from SIGTERM on' },
    { name: 'credentials', isOk: !tokenEvents.areCredentialsRejected, detail: 'the App as the token endpoint sees it' },
  ]
  const gauges = gaugesOf(listener, side, origin, tunnels)
  const sources = { readiness, metrics, gauges, errors, tokens: side.tokens }
  const admin = openAdmin(config, (options) => new AdminListener(options, sources), log)

  const close = async (): Promise<number> => {
    const broken = listener.close()
    tunnels.close()
    deadlines.close()
    await Promise.all([side.close(), admin?.close()])
    origin.close() // last: an exchange ends because its client is cut off, not because the service was
    return broken
  }
  try {
    const adminAddress = await admin?.listen()
    const address = await listener.listen()
    phase.isListening = true
    const warmed = side.warm().then(() => {
      phase.isWarm = true
    })
    return {
      address,
      adminAddress,
      warmed,
      reloadSecret: () => side.reloadSecret(),
      setNotReady: () => {
        phase.isDraining = true
      },
      drain: async () => {
        phase.isDraining = true
        await withinMs(listener.drain(), config.shutdown.timeout)
        return close()
      },
      close,
    }
  } catch (error) {
    await close()
    throw error
  }
}

function gaugesOf(listener: Listener, side: TokenSide, origin: Origin, tunnels: Tunnels): Gauges {
  return {
    version: readVersion(),
    requestsInFlight: () => listener.requestsInFlight,
    lifetimeEstimateMs: () => side.estimator.estimateMs,
    cachedTokens: () => side.tokens.size,
    originConnections: () => {
      const { connected, free, pending } = origin.stats
      return { busy: connected - free, free, pending, tunnel: tunnels.size }
    },
  }
}

function openAdmin(
  config: Config,
  open: (options: AdminOptions) => AdminListener,
  log: Log,
): AdminListener | undefined {
  const { address, allowRemote } = config.admin
  if (address === 'off') return undefined
  return open({
    address,
    socketMode: config.listen.socketMode,
    isRemote: address.kind === 'tcp' && !isLoopback(address.host),
    allowsRemote: allowRemote,
    hosts: new HostList([...LOOPBACK_NAMES, ...hostOf(address), ...config.listen.hosts]),
    refusesForwarded: config.listen.refuseForwarded,
    orgPattern: config.orgs.pattern,
    report: (error) => log.logger.error({ detail: error instanceof Error ? error.message : undefined }, 'admin failed'),
  })
}

function admissionOptions(config: Config): AdmissionOptions {
  const { listen, orgs, routes, baseUrl } = config
  return {
    hosts: new HostList([...LOOPBACK_NAMES, ...hostOf(listen.address), ...listen.hosts]),
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

/** The host as clients write it. */
function hostOf(address: ListenAddress): string[] {
  if (address.kind === 'unix') return []
  return [address.host.includes(':') ? `[${address.host}]` : address.host]
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
