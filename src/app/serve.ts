/** The running program: configuration, log, app, signals, and the exit code at the end. */

import { isatty } from 'node:tty'
import * as clock from '../clock.ts'
import { loadInstances } from '../config/instances.ts'
import type { LoadedConfig } from '../config/load.ts'
import { ConfigRefused, InstancesFailed } from '../config/problem.ts'
import type { Config } from '../config/schema.ts'
import type { LoadOptions } from '../config/settings-file.ts'
import { takeInheritedSockets } from '../listener/bind.ts'
import { readVersion, revision } from '../version.ts'
import { type App, startApp } from './app.ts'
import { Log } from './log.ts'
import { Stdout, StdoutOutput } from './log-output.ts'

/** The addresses are those of the first file. */
export interface Running extends Pick<App, 'address' | 'adminAddress' | 'minterAddress'> {
  /** Resolves with the exit code: 0 after a drained stop, 1 if connections had to be cut. */
  readonly stopped: Promise<number>
}

/** The longest time to close everything after the drain deadline. */
const LAST_DEADLINE_MS = 5_000
const STOP_SIGNALS = ['SIGTERM', 'SIGINT', 'SIGQUIT'] as const

/**
 * Starts the proxy; with several files, one for each. SIGTERM, SIGINT and SIGQUIT stop it, and so does a terminal that closes. SIGHUP reloads.
 * @throws {ConfigRefused | InstancesFailed}
 */
export async function serve(options: LoadOptions, files: readonly string[] = []): Promise<Running> {
  const signals = listenForSignals()
  const sockets = takeInheritedSockets(process.env, process.pid)
  if (files.length > 0 && sockets.proxy.length + sockets.admin.length > 0) {
    const message = 'are for the addresses of one file: remove the .socket unit, or run a process for each file'
    throw new ConfigRefused([{ at: 'sockets of systemd', source: 'LISTEN_FDS', message }])
  }
  const loaded = await loadInstances(files, options)
  const stdout = new Stdout()
  const instances = loaded.map((instance) => {
    const { log } = instance.loaded.config
    return { ...instance, log: new Log({ ...log, instance: instance.name, destination: new StdoutOutput(stdout) }) }
  })
  const logs = instances.map(({ log }) => log)
  endOnFault(logs)
  for (const { log, loaded } of instances) tellStart(log, loaded)
  try {
    const started = await Promise.allSettled(
      instances.map(async ({ loaded, log, source }) => {
        const app = await startApp(loaded, log, source, sockets, () => signals.stop('POST /quitquitquit'))
        return { app, log, config: loaded.config }
      }),
    )
    const running = started.flatMap((each) => (each.status === 'fulfilled' ? [each.value] : []))
    const failures = started.flatMap((each) => (each.status === 'rejected' ? [each.reason] : []))
    const [first] = running
    if (failures.length > 0 || first === undefined) {
      await Promise.all(running.map(({ app }) => app.close()))
      throw failures.length === 1 ? failures[0] : new InstancesFailed(failures)
    }
    signals.onReload = () => {
      for (const { app } of running) void app.reload()
    }
    void notifySystemd(first.log)
    const stopped = stopOnSignal(signals, running).finally(() => flush(logs))
    const telling = running.map(async (each) => {
      const isReady = await Promise.race([each.app.warmed.then(() => true), stopped.then(() => false)])
      if (isReady) logStarted(each)
    })
    await Promise.all(telling)
    const { address, minterAddress, adminAddress } = first.app
    return { address, minterAddress, adminAddress, stopped }
  } finally {
    await flush(logs)
  }
}

/** An instance that runs. */
interface Served {
  readonly app: App
  readonly config: Config
  readonly log: Log
}

function flush(logs: readonly Log[]): Promise<unknown> {
  return Promise.all(logs.map((log) => log.flush()))
}

function tellStart({ logger }: Log, { warnings }: LoadedConfig): void {
  logger.info({ version: readVersion(), revision, node: process.versions.node, pid: process.pid }, 'start')
  const [major = 0] = process.versions.node.split('.').map(Number)
  if (!isMaintained(major)) logger.warn(`Node ${major} gets no security fixes any more: use Node 24 or 26`)
  for (const warning of warnings) logger.warn(warning)
}

/** In November 2026. Odd versions end after half a year. */
function isMaintained(major: number): boolean {
  return major === 22 || major === 24 || major >= 26
}

/**
 * Tells systemd that the start is over (`Type=notify`, `sd_notify(3)`). That takes a datagram on a unix socket, which Node
 * cannot send, so systemd's own program sends it.
 */
async function notifySystemd({ logger }: Log): Promise<void> {
  if (!process.env['NOTIFY_SOCKET']) return
  const { execFile } = await import('node:child_process')
  execFile('systemd-notify', ['--ready'], (error) => {
    if (error !== null) logger.warn({ problem: error.message.trim() }, 'systemd not told that the start is over')
  })
}

/** A supervisor that waits for readiness does not show why it waits, so the log says why. */
function logStarted({ app, config, log }: Served): void {
  const fields = {
    address: app.address,
    adminAddress: app.adminAddress ?? 'off',
    baseUrl: config.baseUrl.href,
    minterAddress: app.minterAddress,
    ...sourceOf(config),
  }
  const failing = app.inspect().checks.filter(({ isOk }) => !isOk)
  const failed = failing.map(({ name, detail }) => `${name}: ${detail ?? 'failed'}`)
  if (failed.length === 0) log.logger.info(fields, 'ready')
  else log.logger.error({ ...fields, failed }, 'listening, but not ready')
}

function sourceOf({ minter, appSecretFile, tokens }: Config) {
  if (minter.url !== undefined) return { minter: minter.url.text }
  const { path } = appSecretFile ?? tokens.assertionFile ?? {}
  return { secret: path === undefined ? 'from the environment' : `from ${path}` }
}

type StopReason = NodeJS.Signals | 'POST /quitquitquit'
type Signals = ReturnType<typeof listenForSignals>

/** Listens from the start: without a listener, a signal that comes while the app starts would end the process. */
function listenForSignals() {
  const waiting: ((reason: StopReason) => void)[] = []
  const nextStop = () => new Promise<StopReason>((resolve) => waiting.push(resolve))
  const signals = {
    firstStop: nextStop(),
    secondStop: nextStop(),
    stop: (reason: StopReason) => waiting.shift()?.(reason),
    /** Called on SIGHUP. Until it is set there is nothing to reload: all files have just been read. */
    onReload: () => {},
  }
  for (const signal of STOP_SIGNALS) {
    // Until now, a signal ended the process: see main.ts. One that has come, but was not told yet, would be lost with the last listener.
    const former = process.listeners(signal)
    process.on(signal, signals.stop)
    for (const listener of former) process.off(signal, listener)
  }
  const terminals = [0, 1, 2].filter((descriptor) => isatty(descriptor))
  process.on('SIGHUP', (signal) => {
    // A terminal that closes sends SIGHUP, too, and is then no longer a terminal.
    if (terminals.every((descriptor) => isatty(descriptor))) signals.onReload()
    else signals.stop(signal)
  })
  return signals
}

const exitAfter = (ms: number) => clock.after(ms, () => process.exit(1))

/** Ends all. Resolves with the worst exit code. */
async function stopOnSignal(signals: Signals, running: readonly Served[]): Promise<number> {
  const signal = await signals.firstStop
  const drains = running.map(({ config: { shutdown } }) => shutdown.delayMs + shutdown.timeoutMs)
  exitAfter(Math.max(...drains) + LAST_DEADLINE_MS)
  return Math.max(...(await Promise.all(running.map((each) => stop(each, signal, signals.secondStop)))))
}

/** Resolves with the exit code. */
async function stop(
  { app, config: { shutdown }, log: { logger } }: Served,
  signal: StopReason,
  secondStop: Promise<StopReason>,
): Promise<number> {
  logger.info({ signal, ...shutdown }, 'drain')
  app.setNotReady()
  const atOnce = secondStop.then(async (second) => {
    logger.warn({ signal: second }, 'second signal: stopping at once')
    exitAfter(LAST_DEADLINE_MS)
    return (await app.close()) === 0 ? 0 : 1
  })
  const drained = clock.sleep(shutdown.delayMs).then(async () => {
    const connections = await app.drain()
    if (connections === 0) logger.info('stopped')
    else logger.warn({ connections }, 'stopped: the drain deadline cut connections with requests in flight')
    return connections === 0 ? 0 : 1
  })
  return Promise.race([drained, atOnce])
}

/** After a fault that nobody handled, the state is unknown. The supervisor starts a new process. */
function endOnFault(logs: readonly Log[]): void {
  const end = (error: unknown) => {
    for (const { logger } of logs) logger.fatal({ fault: describeFault(error) }, 'unexpected failure')
    flush(logs).finally(() => process.exit(1))
  }
  process.on('uncaughtException', end)
  process.on('unhandledRejection', end)
  process.on('SIGUSR1', () => {
    for (const { logger } of logs) logger.warn('SIGUSR1 ignored: the inspector stays closed')
  })
  // With an option such as --heapsnapshot-signal, Node listens for it.
  if (process.listenerCount('SIGUSR2') === 0) {
    process.on('SIGUSR2', () => {
      for (const { logger } of logs) logger.warn('SIGUSR2 ignored')
    })
  }
  // A reader of stderr that goes away must not end the proxy.
  process.stderr.on('error', () => undefined)
}

/** Type, code and stack of an error. Its other properties may hold a request with its credentials. */
function describeFault(error: unknown): Record<string, unknown> {
  if (!(error instanceof Error)) return { type: typeof error }
  const { name: type, message, stack, code }: NodeJS.ErrnoException = error
  return { type, message, stack, code }
}
