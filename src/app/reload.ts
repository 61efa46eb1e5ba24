/**
 * Takes over a changed configuration while the program runs: on SIGHUP, and when a file changes that the configuration was
 * read from. All or nothing: a configuration with a problem changes nothing, and every problem is logged.
 */

import type { ReloadOutcome } from '../admin/metrics.ts'
import { changedSettings, RELOADABLE, type SettingChange, settingsWithNewFiles } from '../config/changes.ts'
import { MAX_CERTIFICATE_FILE_BYTES } from '../config/files.ts'
import { type LoadedConfig, type LoadOptions, loadConfig } from '../config/load.ts'
import { ConfigRefused, type NamedFiles } from '../config/problem.ts'
import type { Config } from '../config/schema.ts'
import type { SettingKey } from '../config/settings.ts'
import { Reruns, WatchedFile } from '../watched-file.ts'

export interface ReloadObserver {
  configReloaded(outcome: ReloadOutcome): void
  configApplied(changes: readonly SettingChange[], warnings: readonly string[]): void
  /** One line each. */
  configRefused(problems: readonly string[]): void
  configUnchanged(): void
  configFailed(error: unknown): void
}

export interface ReloadState {
  readonly takenOverAt: Date
  /** Undefined before the first reload. */
  readonly lastOutcome: ReloadOutcome | undefined
  /** Why the last reload was refused, one line each. */
  readonly problems: readonly string[]
  /** Every setting as it was written, secrets masked. Settings that wait for a restart have their running value. */
  readonly texts: ReadonlyMap<string, string>
}

interface ConfigReloadOptions {
  /** The source of the configuration; undefined if it cannot be read again. */
  readonly source: LoadOptions | undefined
  readonly loaded: LoadedConfig
  /** Puts the configuration in use. If it rejects, the one before must still be in use, unchanged. */
  readonly apply: (config: Config) => Promise<void>
  readonly observer: ReloadObserver
}

export class ConfigReload {
  readonly #options: ConfigReloadOptions
  #running: LoadedConfig
  #texts: ReadonlyMap<SettingKey, string>
  /** Changes that wait for a restart, as they were last logged. */
  #waiting = ''
  #takenOverAt = new Date()
  #lastOutcome: ReloadOutcome | undefined
  #lastProblems: string | undefined
  readonly #watched = new Map<string, WatchedFile>()
  readonly #attempts = new Reruns(() => this.#reloadOnce())
  #isAskedFor = false
  #isClosed = false

  constructor(options: ConfigReloadOptions) {
    this.#options = options
    this.#running = options.loaded
    this.#texts = options.loaded.texts
    if (options.source !== undefined) this.#watch(options.loaded.files)
  }

  get state(): ReloadState {
    return {
      takenOverAt: this.#takenOverAt,
      lastOutcome: this.#lastOutcome,
      problems: this.#lastProblems?.split('\n') ?? [],
      texts: this.#texts,
    }
  }

  /** Resolves when the configuration has been read and applied, or refused. Never rejects. */
  reload(): Promise<void> {
    this.#isAskedFor = true
    return this.#attempts.next()
  }

  close(): void {
    this.#isClosed = true
    for (const file of this.#watched.values()) file.close()
    this.#watched.clear()
  }

  /** An attempt that nobody asked for gets no line if it changes nothing and finds no new problem. */
  async #reloadOnce(): Promise<void> {
    if (this.#isClosed) return
    const isAskedFor = this.#isAskedFor
    this.#isAskedFor = false
    const { observer } = this.#options
    let problems: string | undefined
    const outcome = await this.#takeOver(isAskedFor).catch((error: unknown): ReloadOutcome => {
      if (error instanceof ConfigRefused) {
        this.#watch(error.files)
        problems = error.message
        return 'refused'
      }
      observer.configFailed(error)
      return 'failed'
    })
    const isChange = outcome === 'applied' || outcome === 'failed' || problems !== this.#lastProblems
    this.#lastProblems = problems
    this.#lastOutcome = outcome
    if (!isChange && !isAskedFor) return
    if (problems !== undefined) observer.configRefused(problems.split('\n'))
    if (outcome === 'unchanged') observer.configUnchanged()
    observer.configReloaded(outcome)
  }

  async #takeOver(isAskedFor: boolean): Promise<ReloadOutcome> {
    const { source, apply, observer } = this.#options
    if (source === undefined) return 'unchanged'
    const latest = await loadConfig(source, this.#running)
    if (this.#isClosed) return 'unchanged'
    this.#watch(latest.files)
    const changes = changedSettings(this.#texts, latest.texts, this.#settingsWithNewFiles(latest.files))
    const [taken, waiting] = [changes.filter((each) => !each.needsRestart), changes.filter((each) => each.needsRestart)]
    // Changes that wait for a restart are logged once when a file changes, and at every reload by SIGHUP.
    const waitingText = waiting.map(({ key, to }) => `${key}: ${to}`).join('\n')
    const isNamed = !isAskedFor && waitingText === this.#waiting
    if (taken.length === 0 && (waiting.length === 0 || isNamed)) {
      this.#waiting = waitingText
      return 'unchanged'
    }
    await apply(latest.config)
    const warnings = latest.warnings.filter((warning) => !this.#running.warnings.includes(warning))
    this.#running = latest
    this.#texts = new Map([...this.#texts, ...taken.map(({ key, to }) => [key, to] as const)])
    this.#waiting = waitingText
    this.#takenOverAt = new Date()
    observer.configApplied(changes, warnings)
    return 'applied'
  }

  /** If a change of the setting needs a restart, the file is compared with that of the start. */
  #settingsWithNewFiles(files: NamedFiles): Set<SettingKey> {
    const sinceLast = [...settingsWithNewFiles(this.#running.files, files)].filter((key) => RELOADABLE.has(key))
    const sinceStart = [...settingsWithNewFiles(this.#options.loaded.files, files)].filter(
      (key) => !RELOADABLE.has(key),
    )
    return new Set([...sinceLast, ...sinceStart])
  }

  #watch(files: NamedFiles): void {
    for (const [path, file] of this.#watched) {
      if (files.has(path)) continue
      file.close()
      this.#watched.delete(path)
    }
    for (const [path, { bytes }] of files) {
      if (this.#watched.has(path)) continue
      const file = new WatchedFile({
        path,
        known: bytes,
        maxBytes: MAX_CERTIFICATE_FILE_BYTES, // no other file of a configuration may be larger
        onContent: () => void this.#attempts.next(),
        // The reload reads the file as well, and reports the problem with the setting that names the file.
        onProblem: () => void this.#attempts.next(),
      })
      this.#watched.set(path, file)
    }
  }
}
