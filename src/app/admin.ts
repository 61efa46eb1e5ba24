/** What the admin listener shows of the other parts. */

import { AdminListener } from '../admin/admin-server.ts'
import type { Gauges } from '../admin/metrics.ts'
import type { AdminSources, ReadinessCheck } from '../admin/status.ts'
import { isRemote, placeOfCallers } from '../config/relations.ts'
import { hostsAt } from '../http1/host.ts'
import type { InheritedSockets } from '../listener/bind.ts'
import type { Origin } from '../origin/origin.ts'
import { readVersion } from '../version.ts'
import type { openApps } from './apps.ts'
import type { Part } from './reload.ts'
import { type WatchedParts, warningsOf } from './warnings.ts'

/** How far the program is. */
export interface Phase {
  isListening: boolean
  isWarm: boolean
  isDraining: boolean
}

/** What the admin listener may ask for. */
interface Control {
  readonly reloadAll: () => Promise<unknown>
  readonly requestStop: () => void
  /** Resolves at the end, with the number of connections that were broken off. */
  readonly brokenOff: Promise<number>
}

interface ShownParts extends WatchedParts {
  readonly apps: ReturnType<typeof openApps>
  readonly control: Control
  readonly phase: Phase
  readonly origin: Origin
}

const REJECTED = 'the token endpoint rejects the App credentials: check appId, the App secret and baseUrl'

/** The checks behind `/readyz`. */
function readinessOf({ config, phase, reload, side }: ShownParts): ReadinessCheck[] {
  const refusal = reload.problems.length === 0 ? '' : '; the last reload was refused, and the log says why'
  const isRejected = side.minter === undefined && side.budget.isAppRejected
  return [
    // Always passes: a reload that fails leaves the configuration before it in use.
    { name: 'configuration', isOk: true, detail: `applied at ${reload.takenOverAt.toISOString()}${refusal}` },
    { name: 'listening', isOk: phase.isListening },
    { name: 'warm', isOk: phase.isWarm, detail: `${config.tokens.warm.length} Orgs in tokens.warm` },
    { name: 'accepting', isOk: !phase.isDraining, detail: phase.isDraining ? 'the proxy is stopping' : undefined },
    { name: 'credentials', isOk: !isRejected, detail: isRejected ? REJECTED : undefined },
  ]
}

/** What is held and counted now. */
function gaugesOf({ side, apps, minter, origin, log, traces, fleet, tunnels }: ShownParts): Gauges {
  const { connected, free, pending } = origin.stats
  const { underway, waiting } = side.budget.calls
  return {
    requestsInFlight: apps.reception.requestsInFlight + (minter?.reception.requestsInFlight ?? 0),
    tunnels: tunnels.size,
    requestsWaitingForToken: side.tokens.waiting.count,
    mintCalls: underway,
    mintCallsWaiting: waiting,
    keptBytes: apps.repeatMemory.heldBytes,
    clientConnections: apps.listener.connections + (minter?.listener.connections ?? 0),
    connectionsRefused: apps.listener.limit.refused + (minter?.listener.limit.refused ?? 0),
    cachedTokens: side.tokens.orgs.size,
    orgsPaused: side.budget.troubled.filter(({ leftMs }) => leftMs > 0).length,
    mintPace: side.budget.pace,
    logLinesDropped: log.droppedLines,
    logLinesOmitted: log.omittedLines,
    spansDropped: traces?.queue.dropped,
    isStoreAvailable: fleet?.store.status.state === 'available',
    isMinterAvailable: side.minter?.isWell !== false,
    originConnections: { busy: connected - free, free, pending, tunnel: tunnels.size },
  }
}

export function sourcesOf(parts: ShownParts): AdminSources {
  const { config, phase, control, side, rules, metrics, reload, fleet, apps, minter, tunnels } = parts
  return {
    version: readVersion(),
    service: { baseUrl: config.baseUrl.href, appId: config.app?.appId, minter: config.minter.url?.text },
    configurationTakenOverAt: () => reload.takenOverAt,
    callers: () =>
      rules.callers.map(({ name, usage }) => ({
        name,
        requests: metrics.requests.callers.total(name),
        requestsInFlight: usage.inFlight,
      })),
    readiness: () => readinessOf(parts),
    metrics,
    gauges: () => gaugesOf(parts),
    holders: () => ({
      inFlight: [...apps.listener.orgsInFlight, ...(minter?.listener.orgsInFlight ?? [])],
      tunnels: [...tunnels].flatMap(({ record }) => record.orgId ?? []),
    }),
    tokens: side.tokens,
    refusals: () => side.budget.refusals,
    purgeTokens: (org) => {
      const purged = side.tokens.purge(org)
      side.budget.forget(org)
      if (org === undefined) fleet?.purge(purged, 'all')
      else fleet?.purge([org])
      return purged.length
    },
    resumeMints: () => {
      side.budget.resume()
      side.tokens.orgs.forEach((tokens) => {
        tokens.endPause()
      })
    },
    reload: async () => {
      const { takenOverAt } = reload
      await control.reloadAll()
      const applied = takenOverAt === reload.takenOverAt ? 'unchanged' : 'applied'
      const outcome = reload.problems.length === 0 ? applied : 'refused'
      return { outcome, problems: reload.problems, needRestart: reload.pending }
    },
    quit: config.admin.quit
      ? () => {
          if (!phase.isDraining) control.requestStop()
          return control.brokenOff
        }
      : undefined,
    warnings: warningsOf(parts),
    fleet: fleet?.store,
  }
}

/** Undefined if `admin.address` is `off`. */
export function openAdmin(
  { config, rules, log }: ShownParts,
  sources: AdminSources,
  sockets: InheritedSockets | undefined,
) {
  const { address, allowRemote } = config.admin
  if (address === 'off') return undefined
  let latest = config
  const listener = new AdminListener(
    {
      ...config.listen,
      address,
      allowRemote,
      isRemote: isRemote(address),
      inheritedSockets: sockets?.admin,
      rules: () => ({
        callers: placeOfCallers(latest),
        hosts: hostsAt(address, latest.listen.hosts),
        orgPattern: rules.current.orgPattern,
      }),
      report: (error: unknown) =>
        log.logger.error({ detail: error instanceof Error ? error.message : undefined }, 'admin failed'),
    },
    sources,
  )
  const part: Part = {
    use: (taken) => {
      latest = taken
    },
    close: () => listener.close(),
  }
  return { ...part, listen: () => listener.listen() }
}
