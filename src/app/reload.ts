/**
 * Takes over a changed configuration while the program runs: on SIGHUP, and when a file changes that the configuration was
 * read from. All or nothing: a configuration with a problem changes nothing, and every problem is logged.
 */

import { MAX_CERTIFICATE_FILE_BYTES } from '../config/files.ts'
import { type LoadedConfig, type LoadOptions, loadConfig } from '../config/load.ts'
import { ConfigRefused, type Files, WHOLE_FILE } from '../config/problem.ts'
import type { Config } from '../config/schema.ts'
import { RELOADABLE, type SettingKey } from '../config/settings.ts'
import { digestOf, WatchedFile } from '../watched-file.ts'

export type Reload =
  | {
      readonly outcome: 'applied'
      readonly taken: readonly SettingKey[]
      /** These need a restart. */
      readonly waiting: readonly SettingKey[]
      readonly warnings: readonly string[]
    }
  | { readonly outcome: 'unchanged' }
  | { readonly outcome: 'refused'; readonly problems: readonly string[] }

interface ConfigReloadOptions {
  /** The source of the configuration; undefined if it cannot be read again. */
  readonly source: LoadOptions | undefined
  readonly loaded: LoadedConfig
  /** Puts the configuration in use. If it rejects, the one before must still be in use, unchanged. */
  readonly apply: (config: Config) => Promise<void>
  readonly report: (reload: Reload) => void
}

const EMPTY = digestOf(Buffer.alloc(0))

export class ConfigReload {
  readonly #options: ConfigReloadOptions
  #running: LoadedConfig
  takenOverAt = new Date()
  /** Why the last reload was refused, one line each. */
  problems: readonly string[] = []
  readonly #watched = new Map<string, WatchedFile>()
  #attempt = Promise.resolve()
  #isClosed = false

  constructor(options: ConfigReloadOptions) {
    this.#options = options
    this.#running = options.loaded
    if (options.source !== undefined) this.#watch(options.loaded.files)
  }

  /** Resolves when the configuration has been read and applied, or refused. Never rejects. */
  reload(): Promise<void> {
    return this.#next(true)
  }

  close(): void {
    this.#isClosed = true
    this.#watch(new Map())
  }

  /** One attempt at a time: the running one may have read the former files. */
  #next(isAskedFor: boolean): Promise<void> {
    this.#attempt = this.#attempt.then(() => this.#reloadOnce(isAskedFor))
    return this.#attempt
  }

  /** An attempt that nobody asked for gets no line if it changes nothing and finds no new problem. */
  async #reloadOnce(isAskedFor: boolean): Promise<void> {
    if (this.#isClosed) return
    const reload = await this.#takeOver().catch((error: unknown): Reload => {
      if (!(error instanceof ConfigRefused)) return { outcome: 'refused', problems: [`cannot be applied: ${error}`] }
      this.#watch(error.files)
      return { outcome: 'refused', problems: error.lines }
    })
    const problems = reload.outcome === 'refused' ? reload.problems : []
    const isNew = problems.join('\n') !== this.problems.join('\n')
    this.problems = problems
    if (isNew || isAskedFor || reload.outcome === 'applied') this.#options.report(reload)
  }

  async #takeOver(): Promise<Reload> {
    const { source, loaded, apply } = this.#options
    if (source === undefined) return { outcome: 'unchanged' }
    const latest = await loadConfig(source, this.#running.config)
    if (this.#isClosed) return { outcome: 'unchanged' }
    this.#watch(latest.files)
    const { warnings } = this.#running
    const hasChanged = (key: SettingKey, since: LoadedConfig) => versionOf(latest, key) !== versionOf(since, key)
    const keys = [...latest.given.keys()]
    const taken = keys.filter((key) => RELOADABLE.has(key) && hasChanged(key, this.#running))
    const waiting = keys.filter((key) => !RELOADABLE.has(key) && hasChanged(key, loaded))
    if (taken.length + waiting.length === 0) return { outcome: 'unchanged' }
    // Somebody writes it at this moment. Nothing in it would be allowed to everybody.
    if ([...latest.files.values()].includes(EMPTY)) {
      const message = 'is empty: it may be only half written; write {} if nothing is to be set'
      throw new ConfigRefused([{ at: WHOLE_FILE, source: 'now', message }], latest.files)
    }
    await apply(latest.config)
    this.#running = latest
    this.takenOverAt = new Date()
    const news = latest.warnings.filter((warning) => !warnings.includes(warning))
    return { outcome: 'applied', taken, waiting, warnings: news }
  }

  /** Watches these files, and no others. */
  #watch(files: Files): void {
    for (const [path, file] of this.#watched) {
      if (files.has(path)) continue
      file.close()
      this.#watched.delete(path)
    }
    for (const [path, known] of files) {
      if (this.#watched.has(path) || this.#isClosed) continue
      // The reload reads the file as well, and reports a problem with the setting that names the file.
      const onChange = () => void this.#next(false)
      const maxBytes = MAX_CERTIFICATE_FILE_BYTES // no other file of a configuration may be larger
      this.#watched.set(path, new WatchedFile({ path, known, maxBytes, onContent: onChange, onProblem: onChange }))
    }
  }
}

/** Differs if the text of a setting does, or the content of a file that it names. */
function versionOf({ given }: LoadedConfig, key: SettingKey): string {
  const { text = '', digests = '' } = given.get(key) ?? {}
  return `${key} ${text} ${digests}`
}
