/**
 * Takes over a changed configuration while the program runs: on SIGHUP, and when a file changes that the configuration was
 * read from. All or nothing: a configuration with a problem changes nothing, and every problem is logged.
 */

import type { ReloadOutcome } from '../admin/metrics.ts'
import { MAX_CERTIFICATE_FILE_BYTES } from '../config/attachments.ts'
import { changedSettings, haveFilesChanged, type SettingChange, withReloadable } from '../config/changes.ts'
import { type LoadedConfig, type LoadOptions, loadConfig } from '../config/load.ts'
import { ConfigRefused } from '../config/problem.ts'
import type { Config } from '../config/schema.ts'
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
  /** Every setting as it was written, secrets masked. Settings that wait for a restart have their running value. */
  readonly texts: ReadonlyMap<string, string>
}

export interface ConfigReloadOptions {
  /** Where the configuration came from; undefined if it cannot be read again. */
  readonly source: LoadOptions | undefined
  readonly loaded: LoadedConfig
  /** Puts the configuration in use. If it rejects, the one before must still be in use, unchanged. */
  readonly apply: (config: Config) => Promise<void>
  readonly observer: ReloadObserver
}

export class ConfigReload {
  readonly #options: ConfigReloadOptions
  #config: Config
  /** What was read last, whether or not all of it could be put in use. */
  #files: LoadedConfig['files']
  #texts: ReadonlyMap<string, string>
  #warnings: readonly string[]
  #takenOverAt = new Date()
  #lastOutcome: ReloadOutcome | undefined
  readonly #watched = new Map<string, WatchedFile>()
  #lastProblems: string | undefined
  readonly #attempts = new Reruns((isAskedFor) => this.#reloadOnce(isAskedFor))
  #isClosed = false

  constructor(options: ConfigReloadOptions) {
    const { config, files, texts, warnings } = options.loaded
    this.#options = options
    this.#config = config
    this.#files = files
    this.#texts = texts
    this.#warnings = warnings
    if (options.source !== undefined) this.#watch(files)
  }

  get state(): ReloadState {
    return { takenOverAt: this.#takenOverAt, lastOutcome: this.#lastOutcome, texts: this.#texts }
  }

  /** Resolves when the configuration has been read and put in use, or refused. Never rejects. */
  reload(): Promise<void> {
    return this.#attempt(true)
  }

  #attempt(isAskedFor: boolean): Promise<void> {
    return this.#isClosed ? Promise.resolve() : this.#attempts.next(isAskedFor)
  }

  close(): void {
    this.#isClosed = true
    for (const file of this.#watched.values()) file.close()
    this.#watched.clear()
  }

  /** If nobody asked, an attempt that changes nothing, and finds the same problem as before or none, is not worth a line. */
  async #reloadOnce(isAskedFor: boolean): Promise<void> {
    if (this.#isClosed) return
    const { observer } = this.#options
    let problems: string | undefined
    const outcome = await this.#takeOver(isAskedFor).catch((error: unknown): ReloadOutcome => {
      if (error instanceof ConfigRefused) {
        this.#watch(error.files)
        problems = error.message
        if (isAskedFor || problems !== this.#lastProblems) observer.configRefused(problems.split('\n'))
        return 'refused'
      }
      observer.configFailed(error)
      return 'failed'
    })
    const isSame = outcome === 'unchanged' || outcome === 'refused' ? problems === this.#lastProblems : false
    const isNews = isAskedFor || !isSame
    this.#lastProblems = problems
    this.#lastOutcome = outcome
    if (!isNews) return
    if (outcome === 'unchanged') observer.configUnchanged()
    observer.configReloaded(outcome)
  }

  async #takeOver(isAskedFor: boolean): Promise<ReloadOutcome> {
    const { source, apply, observer } = this.#options
    if (source === undefined) return 'unchanged'
    const latest = await loadConfig(source)
    if (this.#isClosed) return 'unchanged'
    this.#watch(latest.files)
    const changes = changedSettings(this.#texts, latest.texts)
    // A watch may report a change that a reload on demand has read already. What waits for a restart is not named again.
    const hasNews = haveFilesChanged(this.#files, latest.files) || (isAskedFor && changes.length > 0)
    if (!hasNews) return 'unchanged'
    const config = withReloadable(this.#config, latest.config)
    await apply(config)
    const warnings = latest.warnings.filter((warning) => !this.#warnings.includes(warning))
    this.#config = config
    this.#files = latest.files
    this.#warnings = latest.warnings
    this.#takenOverAt = new Date()
    // A setting that waits for a restart stays different, so that the next reload names it again.
    const taken = changes.filter(({ needsRestart }) => !needsRestart).map(({ key, to }) => [key, to] as const)
    this.#texts = new Map([...this.#texts, ...taken])
    observer.configApplied(changes, warnings)
    return 'applied'
  }

  #watch(files: LoadedConfig['files']): void {
    for (const [path, file] of this.#watched) {
      if (files.has(path)) continue
      file.close()
      this.#watched.delete(path)
    }
    for (const [path, known] of files) {
      if (this.#watched.has(path)) continue
      const file = new WatchedFile({
        path,
        known,
        maxBytes: MAX_CERTIFICATE_FILE_BYTES, // no other file of a configuration may be larger
        onContent: () => void this.#attempt(false),
        // The reload that reads the file tells the problem, with the setting that names it.
        onProblem: () => void this.#attempt(false),
      })
      this.#watched.set(path, file)
    }
  }
}
