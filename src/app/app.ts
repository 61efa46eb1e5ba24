/** The composition root: builds every part from the configuration, starts them, and ends them in order. */

import { randomBytes } from 'node:crypto'
import type { LookupFunction } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { AdminListener } from '../admin/admin-server.ts'
import { Metrics } from '../admin/metrics.ts'
import type { AdminSources, ReadinessCheck } from '../admin/status.ts'
import type { LoadedConfig } from '../config/load.ts'
import { isRemote, placeOfCallers } from '../config/relations.ts'
import type { Config } from '../config/schema.ts'
import type { LoadOptions } from '../config/settings-file.ts'
import { admit } from '../gateway/admission.ts'
import { RepeatMemory } from '../gateway/client-content.ts'
import { Exchange, type Gateway } from '../gateway/exchange.ts'
import { Reception } from '../gateway/reception.ts'
import type { InheritedSockets } from '../listener/bind.ts'
import { Listener } from '../listener/server.ts'
import { Names } from '../lookup.ts'
import type { Traces } from '../traces/traces.ts'
import { readVersion } from '../version.ts'
import { eventsOf } from './events.ts'
import { openFleet } from './fleet.ts'
import type { Log } from './log.ts'
import { minterContext, openMinter, openMinterOrigin, tlsMaterial } from './minter.ts'
import { openEndpointOrigin, openOrigin, serviceContext } from './origin.ts'
import { ConfigReload } from './reload.ts'
import { adminHosts, callerSockets, LiveRules, minterSockets } from './rules.ts'
import { TokenSide } from './tokens.ts'
import { warningsOf } from './warnings.ts'

const REJECTED = 'the token endpoint rejects the App credentials: check appId, the App secret and baseUrl'

export type App = Awaited<ReturnType<typeof startApp>>

/**
 * Resolves when it listens. It is ready when the orgs of `tokens.warm` have been tried. Without `source` it cannot reload.
 * `sockets` come from systemd. `requestStop` is called where the admin listener is asked to end the program.
 */
export async function startApp(
  loaded: LoadedConfig,
  log: Log,
  source?: LoadOptions,
  sockets?: InheritedSockets,
  requestStop: () => void = () => undefined,
) {
  const { config } = loaded
  const { listen, origin: settings, tokens } = config
  /** A reload changes these, so other objects read them each time. */
  const names = new Names()
  const { lookup } = names
  const live = { config, secureContext: serviceContext(settings), lookup }
  const liveMinter = { secureContext: minterContext(config.minter), lookup }
  const { url: minterUrl } = config.minter
  const metrics = new Metrics({
    hasFleet: config.fleet.store !== undefined,
    isMinter: config.minter.address !== undefined,
    isSidecar: minterUrl !== undefined,
  })
  const traces = await openTraces(config, lookup)
  const events = eventsOf(log, metrics, traces)
  const fleet = await openFleet(config, live, events)
  const mintOrigin =
    minterUrl === undefined
      ? openEndpointOrigin(config, tokens.mintConcurrency, live)
      : openMinterOrigin(minterUrl, config, liveMinter)
  const side: TokenSide = new TokenSide(config, mintOrigin, events, fleet, live)
  const origin = openOrigin(config, settings.connections, live, settings)
  const gateway: Gateway = {
    credentials: side.credentials,
    origin,
    baseUrl: config.baseUrl,
    tokens: side.tokens,
    observer: events,
    tracing: traces,
    tellsTime: listen.serverTiming,
    repeatMemory: new RepeatMemory(config.replay.maxBodyBytes),
  }
  const rules = new LiveRules(config, events, lookup)
  const knowCallers = ({ callers }: Config) => metrics.requests.callers.know(callers.map(({ name }) => name))
  knowCallers(config)
  const newRequestId = requestIds()
  const reception = new Reception({
    ...listen,
    rules: (isOnSocket) => (isOnSocket ? rules.onSocket : rules.current),
    admit: (head, current, client, verified) => admit(head, current, newRequestId, client, verified),
    begin: (client, head, onEnd) => new Exchange(gateway, client, head, newRequestId, onEnd),
  })
  // Two listeners share the descriptors.
  const outgoing = settings.connections + tokens.mintConcurrency
  const otherDescriptors =
    outgoing + (listen.address === 'off' || config.minter.address === undefined ? 0 : listen.maxConnections)
  const minter = openMinter(config, side, rules, newRequestId, otherDescriptors, events)
  const listener = new Listener(
    {
      ...listen,
      inheritedSockets: sockets?.proxy,
      tls: tlsMaterial(listen.tls),
      otherDescriptors,
      tunnels: () => origin.tunnels,
      observer: events,
    },
    reception,
  )
  const reload: ConfigReload = new ConfigReload({
    source,
    loaded,
    report: events.configReloaded,
    apply: async (latest) => {
      const { caFile, certFile } = live.config.origin
      const isSame =
        latest.origin.caFile?.digest === caFile?.digest && latest.origin.certFile?.digest === certFile?.digest
      const secureContext = isSame ? live.secureContext : serviceContext(latest.origin)
      const minterSecureContext = minterContext(latest.minter)
      const commit = await listener.prepare(callerSockets(latest), tlsMaterial(latest.listen.tls))
      const preparing = minter?.listener.prepare(minterSockets(latest), tlsMaterial(latest.minter.tls))
      const commitMinter = await preparing?.catch((error: unknown) => {
        commit(false)
        throw error
      })
      // Nothing below can fail, so later requests see the whole change.
      commit()
      commitMinter?.()
      const isLost = rules.use(latest)
      listener.endLost(isLost)
      minter?.listener.endLost(isLost)
      knowCallers(latest)
      log.setVolume(latest.log)
      live.config = latest
      // What failed for lack of trust may work now.
      if (secureContext !== live.secureContext) side.budget.resume()
      live.secureContext = secureContext
      liveMinter.secureContext = minterSecureContext
    },
  })

  const phase = { isListening: false, isWarm: false, isDraining: false }
  const refusal = () => (reload.problems.length === 0 ? '' : '; the last reload was refused, and the log says why')
  const rejection = () => (side.areCredentialsRejected ? REJECTED : undefined)
  /** The checks behind `/readyz`. */
  const readiness = (): ReadinessCheck[] => [
    // Always passes: a reload that fails leaves the configuration before it in use.
    { name: 'configuration', isOk: true, detail: `applied at ${reload.takenOverAt.toISOString()}${refusal()}` },
    { name: 'listening', isOk: phase.isListening },
    { name: 'warm', isOk: phase.isWarm, detail: `${tokens.warm.length} Orgs in tokens.warm` },
    { name: 'accepting', isOk: !phase.isDraining, detail: phase.isDraining ? 'the proxy is stopping' : undefined },
    { name: 'credentials', isOk: !side.areCredentialsRejected, detail: rejection() },
  ]
  const sources: AdminSources = {
    version: readVersion(),
    service: { baseUrl: config.baseUrl.href, appId: config.app?.appId, minter: minterUrl?.text },
    configurationTakenOverAt: () => reload.takenOverAt,
    callers: () =>
      rules.callers.map(({ name, usage }) => ({
        name,
        requests: metrics.requests.callers.total(name),
        requestsInFlight: usage.inFlight,
      })),
    readiness,
    metrics,
    gauges: () => {
      const { connected, free, pending } = origin.stats
      return {
        requestsInFlight: reception.requestsInFlight + (minter?.reception.requestsInFlight ?? 0),
        requestsWaitingForToken: side.tokens.waiting.count,
        connectionsRefused: listener.limit.refused + (minter?.listener.limit.refused ?? 0),
        cachedTokens: side.tokens.orgs.size,
        orgsPaused: side.budget.troubled.filter(({ leftMs }) => leftMs > 0).length,
        mintPace: side.budget.pace,
        logLinesDropped: log.droppedLines,
        logLinesOmitted: log.omittedLines,
        spansDropped: traces?.queue.dropped,
        isStoreAvailable: fleet?.store.status.state === 'available',
        isMinterAvailable: side.minter?.isWell !== false,
        originConnections: { busy: connected - free, free, pending, tunnel: origin.tunnels },
      }
    },
    tokens: side.tokens,
    refusals: () => side.budget.refusals,
    purgeTokens: (org) => {
      const purged = side.tokens.purge(org)
      fleet?.purge(org === undefined ? purged : [org])
      return purged.length
    },
    resumeMints: () => side.budget.resume(),
    reload: async () => {
      const { takenOverAt } = reload
      await reloadAll()
      const applied = takenOverAt === reload.takenOverAt ? 'unchanged' : 'applied'
      const outcome = reload.problems.length === 0 ? applied : 'refused'
      return { outcome, problems: reload.problems, needRestart: reload.pending }
    },
    quit: config.admin.quit
      ? () => {
          if (!phase.isDraining) requestStop()
          return brokenOff
        }
      : undefined,
    warnings: warningsOf({ side, listener, reception, rules, log, reload, fleet, minter, traces, names, live }),
    fleet: fleet?.store,
  }
  const { address, allowRemote } = config.admin
  const adminOptions = {
    ...listen,
    allowRemote,
    isRemote: isRemote(address),
    inheritedSockets: sockets?.admin,
    rules: () => ({
      callers: placeOfCallers(live.config),
      hosts: adminHosts(live.config),
      orgPattern: rules.current.orgPattern,
    }),
    report: (error: unknown) =>
      log.logger.error({ detail: error instanceof Error ? error.message : undefined }, 'admin failed'),
  }
  const admin = address === 'off' ? undefined : new AdminListener({ ...adminOptions, address }, sources)

  let tellBrokenOff: (connections: number) => void = () => undefined
  const brokenOff = new Promise<number>((resolve) => {
    tellBrokenOff = resolve
  })
  const reloadAll = () => {
    side.budget.resume('credentials')
    return Promise.all([reload.reload(), side.reloadSecret()])
  }
  /** Breaks off everything at once. Resolves with the number of connections that were at work. */
  const close = async (): Promise<number> => {
    const broken = listener.close() + (minter?.listener.close() ?? 0)
    tellBrokenOff(broken)
    reload.close()
    rules.close()
    side.close()
    await Promise.all([admin?.close(), fleet?.close()])
    origin.close() // after all that it serves: otherwise the log would blame the service for the exchanges that end here
    await traces?.close()
    names.close()
    return broken
  }
  try {
    const boundAdmin = await admin?.listen()
    const openCallerSockets = await listener.prepare(callerSockets(config))
    openCallerSockets()
    const openMinterSockets = await minter?.listener.prepare(minterSockets(config))
    openMinterSockets?.()
    const minterAddress = await minter?.listener.listen()
    const address = await listener.listen()
    phase.isListening = true
    return {
      /** As in a URL, or `off`. */
      address,
      /** Undefined unless this instance is a minter. */
      minterAddress,
      /** Undefined if `admin.address` is `off`. */
      adminAddress: boundAdmin,
      /** Resolves when the orgs of `tokens.warm` have been tried. */
      warmed: side.warm().then(() => {
        phase.isWarm = true
      }),
      readiness,
      /** Reads the configuration and the secret file again. The next mint uses a changed secret. Never rejects. */
      reload: async () => {
        await reloadAll()
      },
      /** Makes the readiness check fail, so that balancers look elsewhere. Requests are still served, each on its last connection. */
      setNotReady: () => {
        phase.isDraining = true
        listener.announceEnd()
        minter?.listener.announceEnd()
      },
      /**
       * Takes no more requests, lets those in flight finish for at most `shutdown.timeout`, and closes everything. Resolves
       * with the number of connections that it had to break off.
       */
      drain: async () => {
        phase.isDraining = true
        const drained = Promise.all([listener.drain(), minter?.listener.drain()])
        await Promise.race([drained, sleep(config.shutdown.timeoutMs, undefined, { ref: false })])
        return await close()
      },
      close,
    }
  } catch (error) {
    await close()
    throw error
  }
}

/**
 * Makes ids for requests without one, unique across processes and restarts: twelve random characters of this process, then a
 * counter in base 36.
 */
function requestIds(): () => string {
  const prefix = `${randomBytes(9).toString('base64url')}-`
  let last = 0
  return () => prefix + (++last).toString(36)
}

/** Undefined without `traces.endpoint`. */
async function openTraces({ traces, baseUrl, listen }: Config, lookup: LookupFunction): Promise<Traces | undefined> {
  if (traces.endpoint === undefined) return undefined
  const { Traces } = await import('../traces/traces.ts')
  return new Traces({
    endpoint: traces.endpoint,
    sample: traces.sample,
    baseUrl,
    scheme: listen.tls.certFile === undefined ? 'http' : 'https',
    version: readVersion(),
    lookup,
  })
}
