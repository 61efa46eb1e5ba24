/** The configuration: environment over file over default, all problems at once, each value with where it came from. */

import type { ListenAddress } from './address.ts'
import { type Attachments, readAttachments } from './attachments.ts'
import { Draft } from './draft.ts'
import { CONFIG_VARIABLE, type Environment, emptyVariables, unknownVariables } from './environment.ts'
import { environmentWarnings } from './environment-warnings.ts'
import { ConfigRefused, describeProblem, type Source } from './problem.ts'
import { cautions, contradictions, orgIdsOf } from './relations.ts'
import type { Config, DeclaredSettings } from './schema.ts'
import { type SettingKey, type SettingValues, settings } from './settings.ts'
import { WHOLE_FILE } from './settings-file.ts'

export interface LoadOptions {
  /** As given on the command line; `OAP_CONFIG` names it otherwise. */
  readonly file?: string | undefined
  readonly env: Environment
}

export interface LoadedConfig {
  readonly config: Config
  readonly sources: ReadonlyMap<SettingKey, Source>
  /** Values as they were written, the secret masked; empty where there is none. */
  readonly texts: ReadonlyMap<SettingKey, string>
  /** One line each, for whoever starts the program. */
  readonly warnings: readonly string[]
}

/** @throws {ConfigRefused} With every problem that was found. */
export async function loadConfig(options: LoadOptions): Promise<LoadedConfig> {
  const draft = await readDraft(options)
  for (const contradiction of contradictions(draft.values)) draft.report(contradiction)
  const attachments = await readAttachments(draft, options.env)
  if (draft.problems.length > 0 || attachments.appSecret === undefined) throw new ConfigRefused(draft.problems)
  return {
    config: assemble(draft.values, attachments, attachments.appSecret),
    sources: new Map(settings.map((setting) => [setting.key, draft.sourceOf(setting)])),
    texts: new Map(settings.map((setting) => [setting.key, textOf(setting.key, draft.writtenOf(setting))])),
    warnings: [
      ...unknownVariables(options.env),
      ...emptyVariables(options.env),
      ...attachments.warnings,
      ...cautions(draft.values).map((caution) => describeProblem(draft.locate(caution))),
      ...environmentWarnings({
        env: options.env,
        execArgv: process.execArgv,
        nodeVersion: process.versions.node,
        today: new Date(),
        usesProxyFromEnv: draft.values['origin.proxyFromEnv'] === true,
      }),
    ],
  }
}

/**
 * Only where the admin listener is: a health check must not fail because a file that it has no use for is being replaced.
 * @throws {ConfigRefused} With the problems of that one setting, or of the config file as a whole.
 */
export async function loadAdminAddress(options: LoadOptions): Promise<ListenAddress | 'off'> {
  const draft = await readDraft(options)
  const address = draft.values['admin.address']
  const problems = draft.problems.filter(({ key }) => key === 'admin.address' || key === WHOLE_FILE)
  if (address === undefined || problems.length > 0) throw new ConfigRefused(problems)
  return address
}

function readDraft({ file, env }: LoadOptions): Promise<Draft> {
  // An empty variable is what compose makes of one that is not set.
  return Draft.read(file ?? (env[CONFIG_VARIABLE] || undefined), env)
}

/** Nests what stands under flat keys, and adds what was read. */
function assemble(values: SettingValues, attachments: Attachments, appSecret: Attachments['appSecret'] & {}): Config {
  const declared = nest(values)
  const { appSecret: _, ...rest } = declared
  return {
    ...rest,
    appSecret,
    listen: { ...declared.listen, callerKey: attachments.callerKey },
    origin: { ...declared.origin, caCertificates: attachments.caCertificates, proxies: attachments.proxies },
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
  // Each key of the declaration is there, with the type that the declaration gives it.
  return nested as DeclaredSettings
}

function textOf(key: SettingKey, written: unknown): string {
  if (written === undefined) return ''
  if (key === 'appSecret') return '[redacted]'
  if (!Array.isArray(written)) return String(written)
  return written.length === 0 ? '[]' : written.join(', ')
}
