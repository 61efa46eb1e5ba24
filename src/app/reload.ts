/**
 * Takes over a changed configuration while the program runs: on SIGHUP at once, and when a file that the configuration was read
 * from has changed, and all of them stand still. All or nothing: a configuration with a problem changes nothing, and every
 * problem is logged.
 */

import { MAX_CERTIFICATE_FILE_BYTES } from '../config/files.ts'
import { type LoadedConfig, loadConfig } from '../config/load.ts'
import { ConfigRefused, type Files, WHOLE_FILE } from '../config/problem.ts'
import type { Config } from '../config/schema.ts'
import { isReloadable, type SettingKey } from '../config/settings.ts'
import type { LoadOptions } from '../config/settings-file.ts'
import { digestOf, LOOK_MS, WatchedFile } from '../watched-file.ts'

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
  #nextLook: NodeJS.Timeout | undefined
  #isClosed = false

  constructor(options: ConfigReloadOptions) {
    this.#options = options
    this.#running = options.loaded
    if (options.source !== undefined) this.#watch(options.loaded.files, true)
  }

  /** Resolves when the configuration has been read and applied, or refused. Never rejects. */
  reload(): Promise<void> {
    return this.#next(true)
  }

  close(): void {
    this.#isClosed = true
    clearTimeout(this.#nextLook)
    this.#watch(new Map(), true)
  }

  /** One attempt at a time: the running one may have read the former files. */
  #next(isAskedFor: boolean): Promise<void> {
    this.#attempt = this.#attempt.then(() => this.#reloadOnce(isAskedFor))
    return this.#attempt
  }

  /** An attempt that nobody asked for gets no line if it changes nothing and finds no new problem. */
  async #reloadOnce(isAskedFor: boolean): Promise<void> {
    if (this.#isClosed) return
    const reload = await this.#takeOver(isAskedFor).catch((error: unknown): Reload => {
      const problems = error instanceof ConfigRefused ? error.lines : [`cannot be applied: ${error}`]
      return { outcome: 'refused', problems }
    })
    if (reload === undefined) return
    const problems = reload.outcome === 'refused' ? reload.problems : []
    const isNew = problems.join('\n') !== this.problems.join('\n')
    this.problems = problems
    if (isNew || isAskedFor || reload.outcome === 'applied') this.#options.report(reload)
  }

  /** Resolves with undefined if a file is still being written. @throws {ConfigRefused} */
  async #takeOver(isAskedFor: boolean): Promise<Reload | undefined> {
    const { source, loaded, apply } = this.#options
    if (source === undefined) return { outcome: 'unchanged' }
    const running = this.#running
    const latest = await loadConfig(source, running.config).catch((error: unknown) => {
      if (error instanceof ConfigRefused) return error
      throw error
    })
    if (this.#isClosed) return undefined
    this.#watch(latest.files, isAskedFor)
    clearTimeout(this.#nextLook)
    if (!isAskedFor && !this.#stand(latest.files)) {
      this.#nextLook = setTimeout(() => void this.#next(false), LOOK_MS).unref()
      return undefined
    }
    if (latest instanceof ConfigRefused) throw latest
    const changesSince = (since: LoadedConfig) =>
      [...latest.given.keys()].filter((key) => versionOf(latest, key) !== versionOf(since, key))
    const changed = changesSince(running)
    const taken = changed.filter(isReloadable)
    const waiting = changesSince(loaded).filter((key) => !isReloadable(key))
    const isNews = isAskedFor ? taken.length + waiting.length > 0 : changed.length > 0
    if (!isNews) return { outcome: 'unchanged' }
    // Somebody writes it at this moment. Nothing in it would be allowed to everybody.
    if ([...latest.files.values()].includes(EMPTY)) {
      const message = 'is empty: it may be only half written; write {} if nothing is to be set'
      throw new ConfigRefused([{ at: WHOLE_FILE, source: 'now', message }], latest.files)
    }
    await apply(latest.config)
    this.#running = latest
    this.takenOverAt = new Date()
    const news = latest.warnings.filter((warning) => !running.warnings.includes(warning))
    return { outcome: 'applied', taken, waiting, warnings: news }
  }

  /** Returns true if two looks in a row have found this content in each file, or it was read on demand. */
  #stand(files: Files): boolean {
    return [...files].every(([path, digest]) => this.#watched.get(path)?.stands(digest))
  }

  /** Watches these files, and no others. `areKnown`: their contents are taken over now. */
  #watch(files: Files, areKnown: boolean): void {
    for (const [path, file] of this.#watched) {
      if (files.has(path)) continue
      file.close()
      this.#watched.delete(path)
    }
    for (const [path, digest] of files) {
      if (this.#watched.has(path) || this.#isClosed) continue
      // The reload reads the file as well, and reports a problem with the setting that names the file.
      const onChange = () => void this.#next(false)
      const known = areKnown ? digest : undefined
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
