/** What a reload changes: the settings that differ, those that need a restart, and the configuration that results. */

import type { LoadedConfig } from './load.ts'
import type { Config } from './schema.ts'
import { type SettingKey, settings } from './settings.ts'

/** Taken over by a reload. A change of any other setting needs a restart. */
export const RELOADABLE: ReadonlySet<SettingKey> = new Set<SettingKey>([
  'callers',
  'appRoutes',
  'listen.hosts',
  'listen.origins',
  'listen.callerKeyFile',
  'origin.caFile',
  'orgs.allow',
  'orgs.pattern',
  'routes.allow',
  'routes.allowTokenEndpoint',
  'log.level',
  'log.requests',
])

export interface SettingChange {
  readonly key: SettingKey
  /** As it was written; empty if it was not set. */
  readonly from: string
  readonly to: string
  readonly needsRestart: boolean
}

type Texts = Pick<ReadonlyMap<string, string>, 'get'>

export function changedSettings(before: Texts, after: Texts): SettingChange[] {
  return settings.flatMap(({ key }) => {
    const [from, to] = [before.get(key) ?? '', after.get(key) ?? '']
    return from === to ? [] : [{ key, from, to, needsRestart: !RELOADABLE.has(key) }]
  })
}

/** True if a file that the configuration names has another content. */
export function haveFilesChanged(before: LoadedConfig['files'], after: LoadedConfig['files']): boolean {
  if (before.size !== after.size) return true
  return [...after].some(([path, bytes]) => bytes === undefined || before.get(path)?.equals(bytes) !== true)
}

/** `running` with the reloadable settings of `latest`. */
export function withReloadable(running: Config, latest: Config): Config {
  const { hosts, origins, callerKeyFile, callerKey } = latest.listen
  const { caFile, caCertificates } = latest.origin
  const { level, requests } = latest.log
  return {
    ...running,
    callers: latest.callers,
    appRoutes: latest.appRoutes,
    listen: { ...running.listen, hosts, origins, callerKeyFile, callerKey },
    origin: { ...running.origin, caFile, caCertificates },
    orgs: latest.orgs,
    routes: latest.routes,
    log: { ...running.log, level, requests },
  }
}
