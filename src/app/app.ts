/** The composition root: a list of the parts. It starts them, walks them at a reload, and ends them, the last one first. */

import { Metrics } from '../admin/metrics.ts'
import type { AdminSources } from '../admin/status.ts'
import * as clock from '../clock.ts'
import type { LoadedConfig } from '../config/load.ts'
import type { Config } from '../config/schema.ts'
import type { LoadOptions } from '../config/settings-file.ts'
import { Tunnels } from '../gateway/tunnel.ts'
import type { InheritedSockets } from '../listener/bind.ts'
import { Names } from '../lookup.ts'
import { inspect, type PartWarnings, type Status, warningsOf } from '../part.ts'
import type { Traces } from '../traces/traces.ts'
import { readVersion } from '../version.ts'
import { openAdmin } from './admin.ts'
import { openApps } from './apps.ts'
import { Certificates } from './certificates.ts'
import { eventsOf } from './events.ts'
import { openFleet } from './fleet.ts'
import type { Log } from './log.ts'
import { openMinter } from './minter.ts'
import { LiveConnections, openMintPool, openPool } from './pools.ts'
import { ConfigReload, type Part, takeOver } from './reload.ts'
import { LiveRules } from './rules.ts'
import { watchStandstill } from './standstill.ts'
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
    const { config, parts, phase, side, admin, apps, minter } = this.#made
    this.adminAddress = await admin?.listen()
    await takeOver(parts.toReversed(), config)
    this.minterAddress = await minter?.listener.listen()
    this.address = await apps.listener.listen()
    phase.isListening = true
    this.warmed = side.warm().then(() => {
      phase.isWarm = true
    })
  }

  /** What it holds and has counted. Changes nothing. */
  inspect(): Status {
    return inspect(this.#made.parts)
  }

  /** Its bad states that last. */
  warnings(): PartWarnings {
    return warningsOf(this.#made.parts, clock.now())
  }

  /** What the admin listener shows and does. */
  get operator(): AdminSources {
    return this.#made.operator
  }

  /** Reads the configuration and the secret file again. The next mint uses a changed secret. Never rejects. */
  async reload(): Promise<void> {
    await this.operator.reload()
  }

  /** Makes the readiness check fail, so that balancers look elsewhere. Requests are still served, each on its last connection. */
  setNotReady(): void {
    this.#made.phase.isDraining = true
    for (const { listener } of this.#entrances) listener.announceEnd()
  }

  /**
   * Takes no more requests, lets those in flight finish for at most `shutdown.timeout`, and closes everything. Resolves
   * with the number of connections that it had to break off.
   */
  async drain(): Promise<number> {
    const { config, phase } = this.#made
    phase.isDraining = true
    const drained = Promise.all(this.#entrances.map(({ listener }) => listener.drain()))
    await clock.within(config.shutdown.timeoutMs, drained)
    return await this.close()
  }

  /** Breaks off everything at once. Resolves with the number of connections that were at work. */
  async close(): Promise<number> {
    const { parts, phase } = this.#made
    const broken = this.#entrances.reduce((sum, entrance) => sum + entrance.close(), 0)
    phase.tellBrokenOff(broken)
    for (const part of parts) await part.close?.()
    return broken
  }

  get #entrances() {
    const { apps, minter } = this.#made
    return [apps, minter].filter((entrance) => entrance !== undefined)
  }
}

/** How far the program is. */
class Phase implements Part {
  readonly #warmOrgs: number
  isListening = false
  isWarm = false
  isDraining = false
  tellBrokenOff: (connections: number) => void = () => undefined
  /** Resolves at the end, with the number of connections that were broken off. */
  readonly brokenOff = new Promise<number>((resolve) => {
    this.tellBrokenOff = resolve
  })

  constructor({ tokens }: Config) {
    this.#warmOrgs = tokens.warm.length
  }

  status(): Partial<Status> {
    const { isListening, isWarm, isDraining } = this
    return {
      checks: [
        { name: 'listening', isOk: isListening },
        { name: 'warm', isOk: isWarm, detail: `${this.#warmOrgs} Orgs in tokens.warm` },
        { name: 'accepting', isOk: !isDraining, detail: isDraining ? 'the proxy is stopping' : undefined },
      ],
    }
  }
}

type Made = Awaited<ReturnType<typeof makeParts>>

/** A new part is a line here. */
async function makeParts(
  loaded: LoadedConfig,
  log: Log,
  source: LoadOptions | undefined,
  sockets: InheritedSockets | undefined,
  requestStop: () => void,
) {
  const { config } = loaded
  /** Each uses those behind it. The pool ends after all that it serves: otherwise the log would blame the service. */
  const parts: Part[] = [log]
  const add = <P extends Part | undefined>(part: P): P => {
    if (part !== undefined) parts.unshift(part)
    return part
  }
  const metrics = add(new Metrics(rolesOf(config), (org) => (side.orgs.peek(org)?.acceptedAt ?? -1) >= 0))
  add(watchStandstill(log.logger))
  add(new Certificates(() => reload.problems))
  const names = add(new Names())
  const { lookup } = names
  const traces = add(await openTraces(config, lookup))
  const events = eventsOf(log, metrics, traces)
  const live = LiveConnections.of(config, lookup)
  for (const each of Object.values(live)) add(each)
  const pool = add(openPool(config, config.origin.connections, live.service, config.origin))
  const mintPool = openMintPool(config, config.tokens.mintConcurrency, live)
  const shared = add(await openFleet(config, events, lookup))
  const side = add(new TokenSide(config, mintPool, events, shared?.fleet))
  const rules = add(new LiveRules(config, events, lookup))
  const tunnels = add(new Tunnels())
  const apps = add(openApps(config, { side, pool, rules, events, traces, tunnels }, sockets))
  const minter = add(openMinter(config, side, rules, events))
  const phase = add(new Phase(config))
  const operator: AdminSources = {
    version: readVersion(),
    service: { baseUrl: config.baseUrl.href, appId: config.app?.appId, minter: config.minter.url?.text },
    parts,
    metrics,
    orgs: side.orgs,
    purgeTokens: (org) => side.purge(org),
    resumeMints: () => side.resume(),
    reload: async () => {
      const { takenOverAt } = reload
      side.mints.resume('credentials')
      await Promise.all([reload.reload(), side.reloadSecret()])
      const applied = takenOverAt === reload.takenOverAt ? 'unchanged' : 'applied'
      const outcome = reload.problems.length === 0 ? applied : 'refused'
      return { outcome, problems: reload.problems, needRestart: reload.pending }
    },
    quit: config.admin.quit
      ? () => {
          if (!phase.isDraining) requestStop()
          return phase.brokenOff
        }
      : undefined,
  }
  const admin = add(openAdmin(config, rules, log, operator, sockets))
  const apply = (latest: Config) => takeOver(parts.toReversed(), latest)
  const reload: ConfigReload = add(new ConfigReload({ source, loaded, report: events.configReloaded, apply }))
  return { config, parts, phase, side, apps, minter, operator, admin }
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
