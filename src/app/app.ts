/** The composition root: a list of the parts. It starts them, walks them at a reload, and ends them, the last one first. */

import { type Gauges, Metrics } from '../admin/metrics.ts'
import type { AdminSources, ReadinessCheck } from '../admin/status.ts'
import * as clock from '../clock.ts'
import type { LoadedConfig } from '../config/load.ts'
import type { Config } from '../config/schema.ts'
import type { LoadOptions } from '../config/settings-file.ts'
import type { Gateway } from '../gateway/exchange.ts'
import type { InheritedSockets } from '../listener/bind.ts'
import { Names } from '../lookup.ts'
import type { Traces } from '../traces/traces.ts'
import { readVersion } from '../version.ts'
import { openAdmin, type Phase, sourcesOf } from './admin.ts'
import { openApps } from './apps.ts'
import { Certificates } from './certificates.ts'
import { eventsOf } from './events.ts'
import { openFleet } from './fleet.ts'
import type { Log } from './log.ts'
import { openMinter } from './minter.ts'
import { LiveConnections, openMintOrigin, openOrigin } from './origin.ts'
import { ConfigReload, type Part, takeOver } from './reload.ts'
import { LiveRules } from './rules.ts'
import { TokenSide } from './tokens.ts'

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
): Promise<App> {
  const app = new App(await makeParts(loaded, log, source, sockets, requestStop))
  try {
    await app.listen()
    return app
  } catch (error) {
    await app.close()
    throw error
  }
}

export class App {
  readonly #made: Made
  /** As in a URL, or `off`. */
  address = ''
  /** Undefined unless this instance is a minter. */
  minterAddress: string | undefined
  /** Undefined if `admin.address` is `off`. */
  adminAddress: string | undefined
  /** Resolves when the orgs of `tokens.warm` have been tried. */
  warmed = Promise.resolve()

  constructor(made: Made) {
    this.#made = made
  }

  async listen(): Promise<void> {
    const { shown, admin, parts } = this.#made
    const { config, phase, side, apps, minter } = shown
    this.adminAddress = await admin?.listen()
    await takeOver(parts, config)
    this.minterAddress = await minter?.listener.listen()
    this.address = await apps.listener.listen()
    phase.isListening = true
    this.warmed = side.warm().then(() => {
      phase.isWarm = true
    })
  }

  readiness(): ReadinessCheck[] {
    return [...this.operator.readiness()]
  }

  /** What it holds and has counted. Changes nothing. */
  inspect(): Gauges {
    return this.operator.gauges()
  }

  /** What the admin listener shows and does. */
  get operator(): AdminSources {
    return this.#made.sources
  }

  /** Reads the configuration and the secret file again. The next mint uses a changed secret. Never rejects. */
  async reload(): Promise<void> {
    await this.#made.shown.control.reloadAll()
  }

  /** Makes the readiness check fail, so that balancers look elsewhere. Requests are still served, each on its last connection. */
  setNotReady(): void {
    this.#made.shown.phase.isDraining = true
    for (const { listener } of this.#made.entrances) listener.announceEnd()
  }

  /**
   * Takes no more requests, lets those in flight finish for at most `shutdown.timeout`, and closes everything. Resolves
   * with the number of connections that it had to break off.
   */
  async drain(): Promise<number> {
    const { shown, entrances } = this.#made
    shown.phase.isDraining = true
    const drained = Promise.all(entrances.map(({ listener }) => listener.drain()))
    await clock.within(shown.config.shutdown.timeoutMs, drained)
    return await this.close()
  }

  /** Breaks off everything at once. Resolves with the number of connections that were at work. */
  async close(): Promise<number> {
    const { parts, entrances, tellBrokenOff } = this.#made
    const broken = entrances.map((entrance) => entrance.close()).reduce((sum, count) => sum + count)
    tellBrokenOff(broken)
    for (const part of parts.toReversed()) await part.close?.()
    return broken
  }
}

type Made = Awaited<ReturnType<typeof makeParts>>

async function makeParts(
  loaded: LoadedConfig,
  log: Log,
  source: LoadOptions | undefined,
  sockets: InheritedSockets | undefined,
  requestStop: () => void,
) {
  const { config } = loaded
  const metrics = new Metrics(rolesOf(config))
  const names = new Names()
  const { lookup } = names
  const traces = await openTraces(config, lookup)
  const events = eventsOf(log, metrics, traces)
  const shared = await openFleet(config, events, lookup)
  const live = LiveConnections.of(config, lookup)
  const origin = openOrigin(config, config.origin.connections, live.service, config.origin)
  const mintOrigin = openMintOrigin(config, config.tokens.mintConcurrency, live)
  const side = new TokenSide(config, mintOrigin, events, shared?.fleet)
  const rules = new LiveRules(config, events, lookup)
  const tunnels: Gateway['tunnels'] = new Set()
  const apps = openApps(config, { side, origin, rules, events, traces, tunnels }, sockets)
  const minter = openMinter(config, side, rules, events)
  const entrances = [apps, minter].filter((entrance) => entrance !== undefined)
  const certificates = new Certificates()
  const apply = (latest: Config) => takeOver([...parts, log], latest)
  const reload = new ConfigReload({ source, loaded, report: events.configReloaded, apply })
  const reloadAll = () => {
    side.budget.resume('credentials')
    return Promise.all([reload.reload(), side.reloadSecret()])
  }
  let tellBrokenOff: (connections: number) => void = () => undefined
  const brokenOff = new Promise<number>((resolve) => {
    tellBrokenOff = resolve
  })
  const phase: Phase = { isListening: false, isWarm: false, isDraining: false }
  const control = { reloadAll, requestStop, brokenOff }
  const watched = { config, side, apps, minter, rules, log, reload, traces, names, certificates, metrics, tunnels }
  const shown = { ...watched, fleet: shared?.fleet, phase, origin, control }
  const sources = sourcesOf(shown)
  const admin = openAdmin(shown, sources, sockets)
  // Each uses those before it. The pool ends after all that it serves: otherwise the log would blame the service for the exchanges
  // that end here.
  const all = [metrics, certificates, names, traces, ...Object.values(live), origin, shared, side, rules, ...entrances]
  const parts: readonly Part[] = [...all, admin, reload].filter((part) => part !== undefined)
  return { parts, entrances, admin, sources, shown, tellBrokenOff }
}

function rolesOf({ fleet, minter }: Config) {
  return {
    hasFleet: fleet.store !== undefined,
    isMinter: minter.address !== undefined,
    isSidecar: minter.url !== undefined,
  }
}

/** Undefined without `traces.endpoint`. */
async function openTraces({ traces, baseUrl, listen }: Config, lookup: Names['lookup']): Promise<Traces | undefined> {
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
