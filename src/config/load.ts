/** Loads the configuration: environment over file over default, with all problems at once and the source of each value. */

import { resolve } from 'node:path'
import type { ListenAddress } from './address.ts'
import { type Attachments, readAttachments } from './attachments.ts'
import { describeCallers } from './callers.ts'
import { Draft } from './draft.ts'
import {
  CONFIG_VARIABLE,
  type Environment,
  emptyVariables,
  environmentWarnings,
  readEnvironment,
  unknownVariables,
} from './environment.ts'
import { ConfigRefused, describeProblem, type Source } from './problem.ts'
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
  /** One line each, for the person who starts the program. */
  readonly warnings: readonly string[]
  /** The content of every file that a reload depends on, by its path. */
  readonly files: ReadonlyMap<string, Buffer | undefined>
}

/** @throws {ConfigRefused} With every problem that was found. */
export async function loadConfig(options: LoadOptions): Promise<LoadedConfig> {
  const draft = await readDraft(options)
  for (const contradiction of contradictions(draft.values)) draft.report(contradiction)
  const attachments = await readAttachments(draft, options.env)
  if (draft.problems.length > 0 || attachments.appSecret === undefined) {
    throw new ConfigRefused(draft.problems, draft.files)
  }
  return {
    config: assemble(draft.values, attachments, attachments.appSecret),
    sources: new Map(settings.map((setting) => [setting.key, draft.sourceOf(setting)])),
    texts: new Map(settings.map((setting) => [setting.key, textOf(setting, draft)])),
    warnings: [
      ...unknownVariables(options.env),
      ...emptyVariables(options.env),
      ...attachments.warnings,
      ...cautions(draft.values).map((caution) => describeProblem(draft.locate(caution))),
      ...environmentWarnings({
        env: options.env,
        execArgv: process.execArgv,
        nodeVersion: process.versions.node,
        usesProxyFromEnv: draft.values['origin.proxyFromEnv'] === true,
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
  const fromFile = await readSettingsFile(path)
  const given = new Map([...fromFile.values, ...fromEnvironment])
  const draft = new Draft(given, fromFile.problems, fromFile.isUnderstood)
  draft.files.set(resolve(path), fromFile.bytes)
  return draft
}

/** Turns flat keys into groups, and adds what was read from files. */
function assemble(values: SettingValues, attachments: Attachments, appSecret: Attachments['appSecret'] & {}): Config {
  const declared = nest(values)
  const { appSecret: _, ...rest } = declared
  return {
    ...rest,
    appSecret,
    callers: attachments.callers,
    listen: { ...declared.listen, callerKey: attachments.callerKey },
    origin: { ...declared.origin, caCertificates: attachments.caCertificates, proxies: attachments.proxies },
    fleet: {
      ...declared.fleet,
      caCertificates: attachments.fleetCaCertificates,
      password: attachments.fleetPassword,
    },
    orgs: { ...declared.orgs, allow: orgIdsOf(values, 'orgs.allow') },
    tokens: { ...declared.tokens, warm: orgIdsOf(values, 'tokens.warm') },
  }
}

function nest(values: SettingValues): DeclaredSettings {
  const nested: Record<string, unknown> = {}
  for (const { key, group, name } of settings) {
    if (group === undefined) nested[name] = values[key]
    else nested[group] = { ...(nested[group] ?? {}), [name]: values[key] }
  }
  // Every key of the declaration is present, with the type that the declaration gives it.
  return nested as DeclaredSettings
}

function textOf(setting: Setting, draft: Draft): string {
  const written = draft.writtenOf(setting)
  if (written === undefined) return ''
  if (setting.key === 'appSecret') return '[redacted]'
  if (setting.key === 'callers') return describeCallers(draft.values.callers ?? []).join('; ')
  if (!Array.isArray(written)) return String(written)
  return written.length === 0 ? '[]' : written.join(', ')
}
