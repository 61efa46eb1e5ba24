/**
 * Takes over a changed configuration while the program runs: on SIGHUP at once, and when one of its files has changed and none of
 * them has changed between two looks. The settings file is taken over as a whole, or not at all, and every problem is
 * logged. The files that the settings name do not wait for it: a mistake there must not stop the rotation of certificates.
 */

import * as clock from '../clock.ts'
import { type LoadedConfig, loadConfig, refusalOf, reloadFiles } from '../config/load.ts'
import { ConfigRefused } from '../config/problem.ts'
import type { Config } from '../config/schema.ts'
import { isReloadable, type SettingKey } from '../config/settings.ts'
import type { LoadOptions } from '../config/settings-file.ts'
import type { PartWarnings, Status, Telling } from '../part.ts'
import { FileWatch } from '../watched-file.ts'

/** Puts in use what was made ready, or drops it if that is not taken. Cannot fail. */
export type Commit = (isTaken?: boolean) => void

/** A part of the running program. All that it needs of the settings, it takes when a configuration is taken over. */
export interface Part extends Telling {
  /** Makes ready what can fail; undefined if there is nothing to do. If it rejects, nothing has changed. */
  prepare?(config: Config): Promise<Commit> | Commit | undefined
  /** Called when all parts have committed. Cannot fail. */
  use?(config: Config): void
  close?(): unknown
}

/** All or nothing: rejects with the error of the part that cannot take `config` over; then none has changed. */
export async function takeOver(parts: readonly Part[], config: Config): Promise<void> {
  const commits: Commit[] = []
  try {
    for (const part of parts) {
      const commit = await part.prepare?.(config)
      if (commit !== undefined) commits.push(commit)
    }
  } catch (error) {
    for (const commit of commits) commit(false)
    throw error
  }
  // Nothing below waits, so later requests see the whole change.
  for (const commit of commits) commit()
  for (const part of parts) part.use?.(config)
}

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

export class ConfigReload implements Part {
  readonly #options: ConfigReloadOptions
  readonly #watch: FileWatch | undefined
  #running: LoadedConfig
  takenOverAt = new Date(clock.day())
  /** Why the last reload was refused, one line each. */
  problems: readonly string[] = []
  /** Changed settings that need a restart. */
  pending: readonly SettingKey[] = []
  /** Of the last attempt, which may have been refused. */
  #latestFiles: ReadonlySet<string> = new Set()
  #attempt = Promise.resolve()
  #next: Promise<void> | undefined
  #isNextAskedFor = false
  #isClosed = false

  constructor(options: ConfigReloadOptions) {
    const { source, loaded } = options
    this.#options = options
    this.#running = loaded
    if (source === undefined) return
    const paths = () => new Set([...this.#running.files, ...this.#latestFiles])
    this.#watch = new FileWatch(paths, () => this.#request(false))
  }

  /** Resolves when the configuration has been read and applied, or refused. Never rejects. */
  reload(): Promise<void> {
    return this.#request(true)
  }

  warnings(): PartWarnings {
    const { problems, pending } = this
    // `check` knows nothing of the running settings, and may find the file good.
    const [first, ...others] = problems
    const more = others.length === 0 ? '' : `; and ${others.length} more, which the log has`
    const end = more === '' && first?.endsWith('?') ? '' : '.'
    return {
      configuration_refused:
        first && `The changed configuration was refused, and the one before it is in use: ${first}${more}${end}`,
      restart_pending:
        pending.length === 0
          ? undefined
          : `Changed settings need a restart: ${pending.join(', ')}. Until then, their former values are in use.`,
    }
  }

  /** The check always passes: a reload that fails leaves the configuration before it in use. */
  status(): Partial<Status> {
    const { problems, takenOverAt } = this
    const refusal = problems.length === 0 ? '' : '; the last reload was refused, and the log says why'
    const detail = `applied at ${takenOverAt.toISOString()}${refusal}`
    return { takenOverAt, checks: [{ name: 'configuration', isOk: true, detail }] }
  }

  close(): void {
    this.#isClosed = true
    this.#watch?.close()
  }

  /** The running attempt may have read the former files, so one more waits, and all who ask meanwhile share it. */
  #request(isAskedFor: boolean): Promise<void> {
    this.#isNextAskedFor ||= isAskedFor
    this.#next ??= this.#attempt.then(() => {
      this.#attempt = this.#reloadOnce(this.#isNextAskedFor)
      this.#next = undefined
      this.#isNextAskedFor = false
      return this.#attempt
    })
    return this.#next
  }

  /** An attempt that nobody asked for gets no line if it changes nothing and finds no new problem. */
  async #reloadOnce(isAskedFor: boolean): Promise<void> {
    const { source, report } = this.#options
    if (source === undefined || this.#isClosed) return
    const before = [...this.problems, ...this.pending].join('\n')
    const load = async () => {
      const loaded = await loadConfig(source, this.#running).catch(refusalOf)
      this.#latestFiles = loaded.files
      if (loaded instanceof ConfigRefused) throw loaded
      return loaded
    }
    const latest = await this.#loadAndApply(load, isAskedFor)
    if (this.#isClosed) return
    this.problems = latest.outcome === 'refused' ? latest.problems : []
    const isNews = before !== [...this.problems, ...this.pending].join('\n')
    if (isNews || isAskedFor || latest.outcome === 'applied') report(latest)
    if (latest.outcome !== 'refused') return
    const files = await this.#loadAndApply(() => reloadFiles(source, this.#running), false)
    if (files.outcome === 'applied') report(files)
  }

  async #loadAndApply(load: () => Promise<LoadedConfig>, isAskedFor: boolean): Promise<Reload> {
    try {
      const running = this.#running
      const latest = await load()
      const changesSince = (since: LoadedConfig) =>
        [...latest.given.keys()].filter((key) => versionOf(latest, key) !== versionOf(since, key))
      const changed = changesSince(running)
      const taken = changed.filter(isReloadable)
      if (taken.length > 0 && !this.#isClosed) {
        await this.#options.apply(latest.config)
        this.takenOverAt = new Date(clock.day())
      }
      this.#running = latest
      const waiting = changesSince(this.#options.loaded).filter((key) => !isReloadable(key))
      this.pending = waiting
      if (taken.length + waiting.length === 0 || (changed.length === 0 && !isAskedFor)) return { outcome: 'unchanged' }
      const warnings = latest.warnings.filter((warning) => !running.warnings.includes(warning))
      return { outcome: 'applied', taken, waiting, warnings }
    } catch (error) {
      const problems = error instanceof ConfigRefused ? error.lines : [`cannot be applied: ${error}`]
      return { outcome: 'refused', problems }
    }
  }
}

/** Differs if the text of a setting does, or the content of a file that it names. */
function versionOf({ given }: LoadedConfig, key: SettingKey): string {
  const { text = '', digests = '' } = given.get(key) ?? {}
  return `${key} ${text} ${digests}`
}
