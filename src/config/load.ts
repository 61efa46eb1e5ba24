/** Loads the configuration: the environment wins over the file, the file over the default. Reports all problems at once. */

import { resolve } from 'node:path'
import type { ListenAddress } from './address.ts'
import { callerCautions, callerContradictions, describeCallers, readCallers } from './callers.ts'
import { Draft } from './draft.ts'
import {
  CONFIG_VARIABLE,
  type Environment,
  emptyVariables,
  environmentWarnings,
  readEnvironment,
  readProxyVariables,
  unknownVariables,
} from './environment.ts'
import { readAppSecret, readCertificates, readKeyFile, readKeyPair, readWatchedSecret } from './files.ts'
import { tryOrgPattern } from './org-pattern.ts'
import { ConfigRefused, type NamedFiles, type Source } from './problem.ts'
import { cautions, contradictions, orgIdsOf } from './relations.ts'
import type { Config, DeclaredSettings } from './schema.ts'
import { type Setting, type SettingKey, type SettingValues, settings } from './settings.ts'
import { readSettingsFile, WHOLE_FILE } from './settings-file.ts'

export interface LoadOptions {
  /** As given on the command line. If undefined, `OAP_CONFIG` may name the file. */
  readonly file?: string | undefined
  readonly env: Environment
}

export interface LoadedConfig {
  readonly config: Config
  readonly sources: ReadonlyMap<SettingKey, Source>
  /** Values as they were written, with the secret masked; empty for a setting without a value. */
  readonly texts: ReadonlyMap<SettingKey, string>
  /** One line each. */
  readonly warnings: readonly string[]
  /** The files that a reload depends on. */
  readonly files: NamedFiles
}

/** @throws {ConfigRefused} With every problem that was found. */
export async function loadConfig({ file, env }: LoadOptions): Promise<LoadedConfig> {
  const draft = await readDraft({ file, env })
  const { values } = draft
  for (const remark of [...contradictions(values), ...callerContradictions(draft)]) draft.report(remark)
  const pattern = values['orgs.pattern']
  if (pattern !== undefined) await draft.attempt({ key: 'orgs.pattern' }, () => tryOrgPattern(pattern))
  const appSecret = await readAppSecret(draft)
  const callers = await readCallers(draft)
  const callerKey = await readKeyFile(draft, { key: 'listen.callerKeyFile' }, values['listen.callerKeyFile'])
  const caCertificates = await readCertificates(draft, { key: 'origin.caFile' }, values['origin.caFile'])
  const clientCertificate = await readKeyPair(draft, 'origin.certFile', 'origin.keyFile')
  const fleetCaCertificates = await readCertificates(draft, { key: 'fleet.caFile' }, values['fleet.caFile'])
  const password = await readWatchedSecret(draft, 'fleet.passwordFile')
  const usesProxy = values['origin.proxyFromEnv'] === true
  const proxies = usesProxy
    ? await draft.attempt({ key: 'origin.proxyFromEnv' }, () => readProxyVariables(env))
    : undefined
  if (draft.problems.length > 0 || appSecret === undefined) throw new ConfigRefused(draft.problems, draft.files)

  for (const remark of [...cautions(values), ...callerCautions(values)]) draft.warn(remark)
  const declared = nest(values)
  return {
    config: {
      ...declared,
      appSecret,
      callers,
      listen: { ...declared.listen, callerKey },
      origin: { ...declared.origin, caCertificates, clientCertificate, proxies },
      fleet: { ...declared.fleet, caCertificates: fleetCaCertificates, password },
      orgs: { ...declared.orgs, allow: orgIdsOf(values, 'orgs.allow') },
      tokens: { ...declared.tokens, ...lifetimeBounds(declared.tokens), warm: orgIdsOf(values, 'tokens.warm') },
    },
    sources: new Map(settings.map((setting) => [setting.key, draft.sourceOf(setting)])),
    texts: new Map(settings.map((setting) => [setting.key, textOf(setting, draft)])),
    warnings: [
      ...unknownVariables(env),
      ...emptyVariables(env),
      ...draft.warnings,
      ...environmentWarnings({
        env,
        execArgv: process.execArgv,
        nodeVersion: process.versions.node,
        usesProxyFromEnv: usesProxy,
      }),
    ],
    files: draft.files,
  }
}

/**
 * Loads only the address of the admin listener. A health check must not fail because a file that it does not need is being
 * replaced.
 * @throws {ConfigRefused} With the problems of that setting, or of the config file as a whole.
 */
export async function loadAdminAddress(options: LoadOptions): Promise<ListenAddress | 'off'> {
  const draft = await readDraft(options)
  const address = draft.values['admin.address']
  const problems = draft.problems.filter(({ key }) => key === 'admin.address' || key === WHOLE_FILE)
  if (address === undefined || problems.length > 0) throw new ConfigRefused(problems)
  return address
}

async function readDraft({ file, env }: LoadOptions): Promise<Draft> {
  // Compose turns a variable that is not set into an empty one.
  const path = file ?? (env[CONFIG_VARIABLE] || undefined)
  const fromEnvironment = readEnvironment(env)
  if (path === undefined) return new Draft(fromEnvironment, [], true)
  const { values, problems, isUnderstood, bytes } = await readSettingsFile(path)
  const draft = new Draft(new Map([...values, ...fromEnvironment]), problems, isUnderstood)
  draft.files.set(resolve(path), { bytes, keys: new Set() })
  return draft
}

/** A first guess outside of the bounds widens them: the first change of the estimate must not jump to a bound. */
function lifetimeBounds({ lifetime, minLifetime, maxLifetime }: DeclaredSettings['tokens']) {
  return { minLifetime: Math.min(minLifetime, lifetime), maxLifetime: Math.max(maxLifetime, lifetime) }
}

/** Turns flat keys into groups. */
function nest(values: SettingValues): DeclaredSettings {
  const nested: Record<string, unknown> = {}
  for (const { key, group, name } of settings) {
    if (group === undefined) nested[name] = values[key]
    else nested[group] = { ...(nested[group] ?? {}), [name]: values[key] }
  }
  // Every key of the declaration is present, with the type that the declaration gives it.
  return nested as DeclaredSettings
}

function textOf({ key, defaultValue }: Setting, draft: Draft): string {
  const written = draft.givenValue(key) ?? defaultValue
  if (written === undefined) return ''
  if (key === 'appSecret') return '[redacted]'
  if (key === 'callers') return describeCallers(draft.values.callers ?? []).join('; ')
  if (!Array.isArray(written)) return String(written)
  return written.length === 0 ? '[]' : written.join(', ')
}
