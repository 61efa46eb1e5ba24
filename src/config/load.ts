/**
 * Loads the configuration: the environment wins over the file, the file over the default. The way of a value: source, the
 * declaration, the relations with other values. Reports all problems at once.
 */

import { z } from 'zod'
import { ENDED_JWT, lifeLeft } from '../token/app-key.ts'
import { Draft, type Given } from './draft.ts'
import type { ReadFile } from './files.ts'
import { ConfigRefused, sound, WHOLE_FILE } from './problem.ts'
import { type ReadSettings, reportContradictions, reportEnded, reportOpenings, reportRisks } from './relations.ts'
import { type Config, declaration, type Settings } from './schema.ts'
import { isReloadable, outsideName, type SettingKey } from './settings.ts'
import { type LoadOptions, openSettingsFile, type SettingsFile } from './settings-file.ts'
import { environmentWarnings, readProxyVariables, unknownVariables } from './sources.ts'
import { reportTokenRequest } from './token-relations.ts'

export interface LoadedConfig {
  readonly config: Config
  /** The latest values, also those that wait for a restart. */
  readonly given: ReadonlyMap<SettingKey, Given>
  /** One line each. */
  readonly warnings: readonly string[]
  readonly settingsFile: SettingsFile | undefined
  /** The files that a reload depends on. */
  readonly files: ReadonlySet<string>
  readonly readFiles: Draft['readFiles']
}

/**
 * `running` is in use, for a reload: the result then has the new reloadable settings and the old ones of the rest, and both the
 * new settings and the result are checked.
 * @throws {ConfigRefused} With every problem that was found.
 */
export async function loadConfig(options: LoadOptions, running?: LoadedConfig): Promise<LoadedConfig> {
  return load(options, await openSettingsFile(options), running)
}

/**
 * Reads the files of the running settings again. One with a problem keeps its former content, and so do those beside it: a
 * certificate and its key belong together.
 * @throws {ConfigRefused}
 */
export async function reloadFiles(options: LoadOptions, running: LoadedConfig): Promise<LoadedConfig> {
  const groupOf = (at: string) => at.replace(/\.[^.]*$/, '')
  const kept = new Map<string, ReadFile<unknown>>()
  for (;;) {
    const loaded = await load(options, running.settingsFile, running, kept).catch(refusalOf)
    if (!(loaded instanceof ConfigRefused)) return loaded
    const groups = new Set(loaded.problems.map(({ at }) => groupOf(at)))
    const concerned = [...running.readFiles].filter(([at]) => groups.has(groupOf(at)) && !kept.has(at))
    if (concerned.length === 0) throw loaded
    for (const [at, file] of concerned) kept.set(at, file)
  }
}

/** Rethrows every other error. */
export function refusalOf(error: unknown): ConfigRefused {
  if (error instanceof ConfigRefused) return error
  throw error
}

async function load(
  options: LoadOptions,
  file: SettingsFile | undefined,
  before: LoadedConfig | undefined,
  kept?: Draft['readFiles'],
): Promise<LoadedConfig> {
  const { env, refusesEnded = before !== undefined } = options
  const running = before?.config
  const draft = new Draft(file, env, options.folder, kept)
  const { refuse, warn } = draft
  const latest = (await draft.read(declaration, file?.content, '')) as ReadSettings
  const result = running === undefined ? latest : (mixture(declaration, running, latest, '') as ReadSettings)
  for (const settings of [latest, result]) {
    reportContradictions(settings, refuse)
    reportTokenRequest(settings, refuse)
  }
  const isFileGood = file?.problem === undefined // otherwise all that it has is missing
  if (running !== undefined && isFileGood) reportOpenings(running, result, refuse)
  if (refusesEnded) reportEnded(result, refuse, running)
  const app = appOf(latest, draft)
  const usesProxy = running === undefined && latest.origin.proxyFromEnv === true
  const proxies = usesProxy ? readProxyVariables(env, refuse) : running?.proxies
  if (draft.problems.length > 0) {
    const hints = running === undefined ? unknownVariables(env) : []
    throw new ConfigRefused(draft.problems, draft.files, hints)
  }

  // Without a problem, all values are there.
  const config: Config = {
    ...(result as Settings),
    app: running === undefined ? app : running.app,
    learnsStatuses: running?.learnsStatuses ?? draft.given.get('tokens.rejectedStatuses')?.source === 'default',
    proxies,
    instances: options.instances ?? 1,
  }
  reportRisks(config, warn)
  const warnings = [...environmentWarnings(env, config.origin.proxyFromEnv), ...draft.warnings]
  const { given, files, readFiles } = draft
  return { config, given, warnings, settingsFile: file, files, readFiles }
}

/** The running settings with the reloadable ones of `latest`. A setting that is not given has no entry. */
function mixture({ shape }: z.ZodObject, running: object, latest: object, prefix: string): object {
  const [before, after] = [new Map(Object.entries(running)), new Map(Object.entries(latest))]
  const entries = Object.entries(shape).flatMap(([name, schema]) => {
    const key = prefix + outsideName(name)
    if (schema instanceof z.ZodObject) {
      return [[name, mixture(schema, before.get(name), after.get(name), `${key}.`)] as const]
    }
    const chosen = isReloadable(key) ? after : before
    return chosen.has(name) ? [[name, chosen.get(name)] as const] : []
  })
  return Object.fromEntries(entries)
}

/** Undefined for a sidecar of a minter, or if there is a problem. */
function appOf(latest: ReadSettings, draft: Draft): Config['app'] {
  const { problems, refuse, warn } = draft
  if (latest.minter.url !== undefined) return undefined
  if (latest.appId === undefined) draft.refuseMissing({ key: 'appId', variable: 'OAP_APP_ID' })
  const [isInFile, isInEnvironment] = [latest.appSecretFile !== undefined, latest.appSecret !== undefined]
  // A secret in the wrong place is not a missing secret, and the file that could not be read may name it.
  const mayBeElsewhere = problems.some(({ at }) => at === 'appSecret' || at === WHOLE_FILE)
  if (isInFile && isInEnvironment && !mayBeElsewhere) {
    refuse('appSecret', 'is set, and so is appSecretFile: keep one, better the file')
  }
  const assertionFile = sound(latest.tokens.assertionFile)
  if (!isInFile && !isInEnvironment && !mayBeElsewhere && latest.tokens.assertionFile === undefined) {
    refuse('appSecretFile', 'is required: name the file that holds the App secret, or set OAP_APP_SECRET')
  }
  if (isInEnvironment) warn('appSecret', 'is in the environment, which other processes may read: use appSecretFile')
  if (assertionFile !== undefined && lifeLeft(assertionFile.content) <= 0) warn('tokens.assertionFile', ENDED_JWT)
  const appId = sound(latest.appId)
  const appSecret = sound(latest.appSecret) ?? (sound(latest.appSecretFile) ?? assertionFile)?.content
  return appId === undefined || appSecret === undefined ? undefined : { appId, appSecret }
}
