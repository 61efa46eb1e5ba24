/** The changes of a reload: the settings that differ, and those that need a restart. */

import type { NamedFiles } from './problem.ts'
import { type SettingKey, settings } from './settings.ts'

/** Taken over by a reload. A change of any other setting needs a restart. */
export const RELOADABLE: ReadonlySet<SettingKey> = new Set<SettingKey>([
  'callers',
  'appRoutes',
  'listen.hosts',
  'listen.callerKeyFile',
  'listen.tls.certFile',
  'listen.tls.keyFile',
  'listen.tls.clientCaFile',
  'origin.caFile',
  'origin.certFile',
  'origin.keyFile',
  'orgs.allow',
  'orgs.pattern',
  'routes.allow',
  'routes.allowTokenEndpoint',
  'log.level',
  'log.requests',
  'log.sample',
])

export interface SettingChange {
  readonly key: SettingKey
  /** As it was written; empty if it was not set. */
  readonly from: string
  /** The same as `from` if only a file has changed that the setting names. */
  readonly to: string
  readonly needsRestart: boolean
}

/** `withNewFiles`: settings that name a file whose content has changed. */
export function changedSettings(
  before: ReadonlyMap<string, string>,
  after: ReadonlyMap<string, string>,
  withNewFiles: ReadonlySet<SettingKey> = new Set(),
): SettingChange[] {
  return settings.flatMap(({ key }) => {
    const [from, to] = [before.get(key) ?? '', after.get(key) ?? '']
    if (from === to && !withNewFiles.has(key)) return []
    return [{ key, from, to, needsRestart: !RELOADABLE.has(key) }]
  })
}

/** The settings that name a file whose content differs. */
export function settingsWithNewFiles(before: NamedFiles, after: NamedFiles): Set<SettingKey> {
  const changed = [...after].filter(([path, { bytes }]) => {
    const known = before.get(path)?.bytes
    return bytes === undefined || known === undefined || !known.equals(bytes)
  })
  return new Set(changed.flatMap(([, { keys }]) => [...keys]))
}
