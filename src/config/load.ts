/** Loads the configuration: the environment wins over the file, the file over the default. Reports all problems at once. */

import { resolve } from 'node:path'
import type { ListenAddress } from './address.ts'
import { callerCautions, callerContradictions, readCallers } from './callers.ts'
import { RELOADABLE } from './changes.ts'
import { Draft } from './draft.ts'
import {
  CONFIG_VARIABLE,
  type Environment,
  environmentWarnings,
  misspelt,
  readEnvironment,
  readProxyVariables,
} from './environment.ts'
import { readAppSecret, readCertificates, readKeyFile, readKeyPair, readWatchedSecret } from './files.ts'
import { ConfigRefused, type NamedFiles, type Remark, type Source } from './problem.ts'
import { cautions, contradictions, openings, orgIdsOf } from './relations.ts'
import type { Config, DeclaredSettings } from './schema.ts'
import { type Setting, type SettingKey, type SettingValues, settings } from './settings.ts'
import { readSettingsFile } from './settings-file.ts'

export interface LoadOptions {
  /** As given on the command line. If undefined, `OAP_CONFIG` may name the file. */
  readonly file?: string | undefined
  readonly env: Environment
  /** Relative paths in the file begin here. If undefined: in the folder of the file. */
  readonly folder?: string | undefined
}

export interface LoadedConfig {
  readonly config: Config
  /** By key, without the secret. */
  readonly values: SettingValues
  readonly sources: ReadonlyMap<SettingKey, Source>
  /** The latest values as they were written, with the secret masked; empty for a setting without a value. */
  readonly texts: ReadonlyMap<SettingKey, string>
  /** One line each. */
  readonly warnings: readonly string[]
  /** The files that a reload depends on. */
  readonly files: NamedFiles
}

/**
 * `running` is the configuration in use, for a reload: the result then has the new reloadable settings and the old ones of the
 * rest, and both the new settings and the result are checked.
 * @throws {ConfigRefused} With every problem that was found.
 */
export async function loadConfig(options: LoadOptions, running?: LoadedConfig): Promise<LoadedConfig> {
  const { env } = options
  const draft = await readDraft(options)
  const { values } = draft
  const resulting = running === undefined ? values : reloaded(running.values, values)
  const remarks = [values, resulting].flatMap((each) => [...contradictions(each), ...callerContradictions(draft, each)])
  if (running !== undefined) remarks.push(...openings(running.values, resulting))
  for (const remark of distinct(remarks)) draft.report(remark)
  const appSecret = await readAppSecret(draft)
  const callers = await readCallers(draft)
  const callerKey = await readKeyFile(draft, { key: 'listen.callerKeyFile' }, values['listen.callerKeyFile'])
  const keyPair = await readKeyPair(draft, 'listen.tls.certFile', 'listen.tls.keyFile')
  const clientCaFile = { key: 'listen.tls.clientCaFile' } as const
  const clientCaCertificates = await readCertificates(draft, clientCaFile, values[clientCaFile.key])
  const caCertificates = await readCertificates(draft, { key: 'origin.caFile' }, values['origin.caFile'])
  const clientCertificate = await readKeyPair(draft, 'origin.certFile', 'origin.keyFile')
  const fleetCaCertificates = await readCertificates(draft, { key: 'fleet.caFile' }, values['fleet.caFile'])
  const password = await readWatchedSecret(draft, 'fleet.passwordFile')
  const usesProxy = values['origin.proxyFromEnv'] === true
  const proxies = usesProxy
    ? await draft.attempt({ key: 'origin.proxyFromEnv' }, () => readProxyVariables(env))
    : undefined
  if (draft.problems.length > 0 || appSecret === undefined) throw new ConfigRefused(draft.problems, draft.files)

  for (const remark of [...cautions(resulting), ...callerCautions(resulting)]) draft.warn(remark)
  const declared = nest(resulting)
  const kept = running?.config
  return {
    config: {
      ...declared,
      appSecret: kept?.appSecret ?? appSecret,
      callers,
      listen: { ...declared.listen, callerKey, tls: { ...declared.listen.tls, keyPair, clientCaCertificates } },
      origin: { ...declared.origin, caCertificates, clientCertificate, proxies: kept ? kept.origin.proxies : proxies },
      fleet: kept?.fleet ?? { ...declared.fleet, caCertificates: fleetCaCertificates, password },
      orgs: { ...declared.orgs, allow: orgIdsOf(resulting, 'orgs.allow') },
      tokens: { ...declared.tokens, warm: orgIdsOf(resulting, 'tokens.warm') },
    },
    values: { ...resulting, appSecret: undefined },
    sources: new Map(settings.map((setting) => [setting.key, draft.sourceOf(setting)])),
    texts: new Map(settings.map((setting) => [setting.key, textOf(setting, draft)])),
    warnings: [...environmentWarnings(env, usesProxy), ...draft.warnings],
    files: draft.files,
  }
}

/** The running values with the reloadable ones of `latest`. */
function reloaded(running: SettingValues, latest: SettingValues): SettingValues {
  return Object.fromEntries(settings.map(({ key }) => [key, (RELOADABLE.has(key) ? latest : running)[key]]))
}

function distinct(remarks: readonly Remark[]): Iterable<Remark> {
  return new Map(remarks.map((remark) => [JSON.stringify(remark), remark])).values()
}

/**
 * Loads only the address of the admin listener. A health check must not fail because of a setting or a file that it does not
 * need.
 * @throws {ConfigRefused} With the problems of that setting, or of the config file as a whole.
 */
export async function loadAdminAddress(options: LoadOptions): Promise<ListenAddress | 'off'> {
  const draft = await readDraft(options)
  const address = draft.values['admin.address']
  // A file that is being edited must not fail the check of a proxy that serves. If it cannot be read, the default is tried.
  const problems = draft.problems.filter(({ key }) => key === 'admin.address')
  if (address === undefined || problems.length > 0) throw new ConfigRefused(problems)
  return address
}

async function readDraft({ file, env, folder }: LoadOptions): Promise<Draft> {
  // Compose turns a variable that is not set into an empty one.
  const path = file ?? (env[CONFIG_VARIABLE] || undefined)
  const fromEnvironment = readEnvironment(env)
  const found = path === undefined ? undefined : await readSettingsFile(path)
  const { values = [], problems = [], isUnderstood = true } = found ?? {}
  const draft = new Draft(new Map([...values, ...fromEnvironment]), problems, isUnderstood, folder)
  if (path !== undefined) draft.files.set(resolve(path), { bytes: found?.bytes, keys: new Set() })
  for (const { key, variable, isRequired } of settings) {
    if (!isRequired || draft.givenValue(key) !== undefined) continue
    const meant = misspelt(env, variable)
    const hint = meant === undefined ? '' : ` (${meant} is set: is it meant?)`
    draft.reportMissing(key, `is required: set it in the config file, or as ${variable}${hint}`)
  }
  if (env['OAP_CALLERS']) {
    const source = { kind: 'environment', variable: 'OAP_CALLERS' } as const
    draft.problems.push({ key: 'callers', source, message: 'cannot be set by a variable: use a config file' })
  }
  return draft
}

/** Turns flat keys into groups. */
function nest(values: SettingValues): DeclaredSettings {
  const nested: Record<string, unknown> = {}
  for (const { key, group = '', name } of settings) {
    let inner = nested
    for (const step of group.split('.').filter((part) => part !== '')) {
      inner[step] ??= {}
      inner = inner[step] as Record<string, unknown>
    }
    inner[name] = values[key]
  }
  // Every key of the declaration is present, with the type that the declaration gives it.
  return nested as DeclaredSettings
}

function textOf({ key, defaultValue }: Setting, draft: Draft): string {
  const written = draft.givenValue(key) ?? defaultValue
  if (written === undefined) return ''
  if (key === 'appSecret') return '[redacted]'
  if (key === 'callers' && Array.isArray(written)) return written.map((caller) => JSON.stringify(caller)).join('; ')
  if (!Array.isArray(written)) return String(written)
  return written.length === 0 ? '[]' : written.join(', ')
}
