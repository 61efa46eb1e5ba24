/** `check`: prints the configuration, each value with its source, and gets one token if asked to. */

import { openFleet } from '../app/fleet.ts'
import { openOrigin, openTokenEndpoint, serviceContext } from '../app/origin.ts'
import { formatFleetStore } from '../config/address.ts'
import type { Environment } from '../config/environment.ts'
import { type LoadedConfig, loadConfig } from '../config/load.ts'
import { describeSource } from '../config/problem.ts'
import type { Config } from '../config/schema.ts'
import { type Setting, settings } from '../config/settings.ts'
import type { TokenError } from '../errors.ts'
import { type OrgId, parseOrgId } from '../http/org-id.ts'
import { AppCredentials } from '../token/app-credentials.ts'
import type { SettledMint } from '../token/token-source.ts'
import type { Output } from './admin-client.ts'

/** What a test replaces. */
export interface CheckParts {
  readonly mint?: (config: Config, org: OrgId) => Promise<SettledMint>
  readonly stdout?: Output
}

/** Resolves with the exit code. @throws {ConfigRefused} */
export async function check(
  command: { readonly file: string | undefined; readonly mint: string | undefined },
  env: Environment,
  { mint = mintOnce, stdout = process.stdout }: CheckParts = {},
): Promise<0 | 1> {
  const loaded = await loadConfig({ file: command.file, env })
  stdout.write(renderSettings(loaded))
  stdout.write(renderWarnings(loaded))
  const { store } = loaded.config.fleet
  if (store !== undefined) {
    const problem = await tryFleetStore(loaded.config)
    const found = problem === undefined ? 'can be used' : `cannot be used: ${problem}`
    // No reason to fail: the proxy starts and serves without it.
    stdout.write(`\nfleet.store: ${formatFleetStore(store)} ${found}\n`)
  }
  if (command.mint === undefined) return 0
  const { lines, isGood } = await tryMint(command.mint, loaded.config, mint)
  stdout.write(`\n${lines.join('\n')}\n`)
  return isGood ? 0 : 1
}

/** Three aligned columns in the order of the declaration. */
export function renderSettings({ texts, sources }: LoadedConfig): string {
  const rows = settings.map((setting) => ({
    setting,
    value: texts.get(setting.key) || '-',
    source: sources.get(setting.key) ?? ({ kind: 'unset' } as const),
  }))
  const keyWidth = Math.max(...rows.map(({ setting }) => setting.key.length))
  const valueWidth = Math.min(MAX_VALUE_WIDTH, Math.max(...rows.map(({ value }) => value.length)))
  let previous: Setting['group']
  return rows
    .map(({ setting, value, source }) => {
      const line = `${setting.key.padEnd(keyWidth)}  ${value.padEnd(valueWidth)}  ${describeSource(source)}`
      const gap = setting.group === previous ? '' : '\n'
      previous = setting.group
      return `${gap}${line}\n`
    })
    .join('')
}

const MAX_VALUE_WIDTH = 48

function renderWarnings({ warnings }: LoadedConfig): string {
  if (warnings.length === 0) return '\nThe configuration is good.\n'
  return `\n${warnings.map((warning) => `warning: ${warning}\n`).join('')}\nThe configuration can be used.\n`
}

async function tryMint(
  text: string,
  config: Config,
  mint: typeof mintOnce,
): Promise<{ lines: string[]; isGood: boolean }> {
  const { orgs } = config
  const org = parseOrgId(text, orgs.pattern)
  if (org === undefined) return { lines: ['mint: not tried: not an org id (see orgs.pattern)'], isGood: false }
  if (orgs.allow.length > 0 && !orgs.allow.includes(org)) {
    return { lines: [`mint: not tried: ${org} is not in orgs.allow`], isGood: false }
  }
  const { url, durationMs, error } = await mint(config, org)
  const call = `  POST ${url} (${Math.round(durationMs)} ms)`
  if (error === undefined) return { lines: [`mint: got a token for ${org}`, call], isGood: true }
  const lines = [`mint: no token for ${org}: ${error.code}`, call, `  ${error.message}`]
  const advice = adviceFor(error)
  return { lines: advice === undefined ? lines : [...lines, `  ${advice}`], isGood: false }
}

/** Names both causes that look alike: a wrong address, and an Org that is not linked. Undefined if the message says enough. */
function adviceFor({ code, tokenEndpointStatus: status }: TokenError): string | undefined {
  switch (code) {
    case 'org_access_refused':
      return status === 404 || status === 405
        ? `Check that baseUrl is right: a wrong address answers ${status}, too. If it is, check the org id, and that the Org is linked.`
        : 'Check the org id, and that the Org is linked with the App.'
    case 'app_credentials_rejected':
      return 'Check appId, and the secret in appSecretFile.'
    case 'token_response_invalid':
      return 'Check baseUrl: a web page or another service may answer at this address.'
    case 'token_endpoint_timeout':
      return 'Check the network, or raise tokens.mintTimeout.'
    case 'token_endpoint_unavailable':
    case 'token_endpoint_rate_limited':
      return undefined
  }
}

async function tryFleetStore(config: Config): Promise<string | undefined> {
  const nothing = () => undefined
  const part = await openFleet(config, {
    storeAsked: nothing,
    storeLost: nothing,
    storeBack: nothing,
    passwordRejected: nothing,
    valueUnusable: nothing,
    passwordUnusable: nothing,
  })
  try {
    return await part?.fleet.store.tryOut()
  } finally {
    await part?.close()
  }
}

/** Makes one call of the token endpoint, and resolves with what the endpoint tells its observer. */
async function mintOnce(config: Config, org: OrgId): Promise<SettledMint> {
  const { appId, appSecret } = config
  const secureContext = serviceContext(config.origin)
  const origin = await openOrigin(config, 1, { secureContext })
  try {
    return await new Promise((resolve, reject) => {
      const credentials = new AppCredentials(appId, appSecret)
      openTokenEndpoint(config, origin, credentials, { mintSettled: resolve }).mint(org).catch(reject)
    })
  } finally {
    origin.close()
  }
}
