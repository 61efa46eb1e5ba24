/** The running program: configuration, log, app, signals, and the exit code at the end. */

import { setTimeout as sleep } from 'node:timers/promises'
import { type App, startApp } from './app.ts'
import { readVersion } from './cli/version.ts'
import type { Environment } from './config/environment.ts'
import { loadConfig } from './config/load.ts'
import type { Config } from './config/schema.ts'
import { type Log, openLog } from './log.ts'
import { limitMemory } from './memory.ts'

export interface ServeOptions {
  readonly file?: string | undefined
  readonly env: Environment
}

export interface Running {
  /** Where apps connect, as it stands in a URL. */
  readonly address: string
  readonly adminAddress: string | undefined
  /** Resolves with the exit code: 0 after a drained stop, 1 where something had to be broken off. */
  readonly stopped: Promise<number>
}

/**
 * Starts the proxy; SIGTERM or SIGINT stop it.
 * @throws {ConfigRefused}
 */
export async function serve(options: ServeOptions): Promise<Running> {
  limitMemory()
  const signals = awaitStopSignals()
  const { config, warnings } = await loadConfig(options)
  const log = openLog(config.log)
  guardProcess(log)
  log.logger.info({ version: readVersion(), node: process.versions.node, pid: process.pid }, 'start')
  for (const warning of warnings) log.logger.warn(warning)
  let app: App | undefined
  // Before the app is there, its secret has just been read.
  process.on('SIGHUP', () => {
    app?.reloadSecret().catch((error: unknown) => log.logger.error(describeFault(error), 'reload failed'))
  })
  app = await startApp(config, log)
  const stopped = stopWhenTold(signals, app, config, log)
  await Promise.race([app.warmed, stopped])
  log.logger.info(readyFields(config, app), 'ready')
  await log.flush()
  return { address: app.address, adminAddress: app.adminAddress, stopped }
}

/** Who may connect, where requests go, how the secret is held. */
function readyFields(config: Config, app: App): Record<string, unknown> {
  return {
    address: app.address,
    adminAddress: app.adminAddress ?? 'off',
    callers: callersOf(config),
    baseUrl: config.baseUrl.href,
    secret: config.appSecretFile === undefined ? 'from the environment' : `from ${config.appSecretFile}`,
  }
}

function callersOf(config: Config): string {
  const { address, allowRemote, callerKey } = config.listen
  const who = address.kind === 'unix' ? 'who may open the socket' : allowRemote ? 'any host' : 'this host only'
  return callerKey === undefined ? who : `${who}, with the caller key`
}

interface StopSignals {
  readonly first: Promise<NodeJS.Signals>
  readonly second: Promise<NodeJS.Signals>
}

/** Listens from the very start on: a signal that comes while the app starts is a stop, too, and not a sudden end. */
function awaitStopSignals(): StopSignals {
  const resolvers: ((signal: NodeJS.Signals) => void)[] = []
  const nextSignal = () => new Promise<NodeJS.Signals>((resolve) => resolvers.push(resolve))
  const signals = { first: nextSignal(), second: nextSignal() }
  const stop = (signal: NodeJS.Signals) => resolvers.shift()?.(signal)
  process.on('SIGTERM', stop)
  process.on('SIGINT', stop)
  return signals
}

async function stopWhenTold(signals: StopSignals, app: App, config: Config, log: Log): Promise<number> {
  const signal = await signals.first
  const atOnce = signals.second.then(async (second) => {
    log.logger.warn({ signal: second }, 'second signal: stopping at once')
    await app.close()
    return 1
  })
  const exitCode = await Promise.race([drain(app, config, log, signal), atOnce])
  await log.end()
  return exitCode
}

async function drain(app: App, config: Config, log: Log, signal: NodeJS.Signals): Promise<number> {
  log.logger.info({ signal, delayMs: config.shutdown.delay, timeoutMs: config.shutdown.timeout }, 'drain')
  app.setNotReady()
  if (config.shutdown.delay > 0) await sleep(config.shutdown.delay)
  const broken = await app.drain()
  if (broken === 0) log.logger.info('stopped')
  else log.logger.warn({ connections: broken }, 'stopped: the deadline broke off what was in flight')
  return broken === 0 ? 0 : 1
}

/** A fault that nobody handled leaves the process in no state to go on (and a supervisor starts it anew). */
function guardProcess(log: Log): void {
  const die = (error: unknown) => {
    log.logger.fatal({ fault: describeFault(error) }, 'unexpected failure')
    log.end().finally(() => process.exit(1))
  }
  process.on('uncaughtException', die)
  process.on('unhandledRejection', die)
  // Without a listener of ours Node would open its inspector, and with it the whole memory, to whoever may signal us.
  process.on('SIGUSR1', () => log.logger.warn('SIGUSR1 ignored: the inspector stays closed'))
  // A reader of our output that goes away must not take the proxy with it.
  process.stdout.on('error', () => undefined)
  process.stderr.on('error', () => undefined)
}

/** Type, code and place of an error; its properties may hold a request with its credentials. */
function describeFault(error: unknown): Record<string, unknown> {
  if (!(error instanceof Error)) return { type: typeof error }
  return {
    type: error.name,
    message: error.message,
    stack: error.stack,
    code: 'code' in error ? error.code : undefined,
  }
}
