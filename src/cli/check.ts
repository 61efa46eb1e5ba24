/** `check`: prints the configuration, each value with its source, and gets one token if asked to. */

import { openFleet } from '../app/fleet.ts'
import { openMinterSource } from '../app/minter.ts'
import { LiveConnections, openMintPool, openTokenEndpoint } from '../app/pools.ts'
import { loadInstances } from '../config/instances.ts'
import type { LoadedConfig } from '../config/load.ts'
import type { Config } from '../config/schema.ts'
import { type Setting, settings } from '../config/settings.ts'
import type { Environment } from '../config/settings-file.ts'
import { causeForOperator, PROBLEMS, remedyOf } from '../errors.ts'
import { type OrgId, parseOrgId } from '../org-id.ts'
import { AppCredentials } from '../token/app-credentials.ts'
import { AppKey } from '../token/app-key.ts'
import { endpointText } from '../token/token-request.ts'
import type { SettledMint } from '../token/token-source.ts'
import type { Command } from './arguments.ts'

/** Resolves with the exit code. @throws {ConfigRefused} */
export async function check(
  command: Pick<Command, 'file' | 'files'> & { readonly mint?: string | undefined },
  env: Environment,
  print: (text: string) => unknown = (text) => process.stdout.write(text),
): Promise<0 | 1> {
  const { file, files, mint } = command
  const instances = await loadInstances(files ?? [], { file, env, refusesEnded: true })
  let exitCode: 0 | 1 = 0
  for (const { name, loaded } of instances) {
    if (name !== undefined) print(`${loaded === instances[0]?.loaded ? '' : '\n'}--- ${name}\n`)
    if (!(await checkOne(loaded, mint, print))) exitCode = 1
  }
  return exitCode
}

/** Resolves with false if a mint failed. */
async function checkOne(loaded: LoadedConfig, mint: string | undefined, print: (text: string) => unknown) {
  const { config, warnings } = loaded
  print(renderSettings(loaded))
  print(`\n${warnings.map((warning) => `warning: ${warning}\n`).join('')}`)
  print(`The configuration ${warnings.length === 0 ? 'is good' : 'can be used'}.\n`)
  const endpoint = endpointText({ baseUrl: config.baseUrl, endpoint: config.tokens.endpoint })
  print(`Tokens come from: ${config.minter.url === undefined ? endpoint : `the minter at ${config.minter.url.text}`}\n`)
  const { store } = config.fleet
  if (store !== undefined) {
    const problem = await tryFleetStore(config)
    const found = problem === undefined ? 'can be used' : `cannot be used: ${problem}`
    // No reason to fail: the proxy starts and serves without it.
    print(`\nfleet.store: ${loaded.given.get('fleet.store')?.text} ${found}\n`)
  }
  if (mint === undefined) return true
  const { lines, isGood } = await tryMint(mint, config)
  print(`\nmint: ${lines.join('\n  ')}\n`)
  return isGood
}

/** Three aligned columns in the order of the declaration. */
export function renderSettings({ given, config }: LoadedConfig): string {
  const rows = settings.map((setting) => {
    const { text = '', source = '' } = given.get(setting.key) ?? {}
    const names = setting.key === 'orgs.ids' && config.orgs.ids ? `${config.orgs.ids.size} names` : text
    return { setting, value: names || '-', source }
  })
  const keyWidth = Math.max(...rows.map(({ setting }) => setting.key.length))
  const valueWidth = Math.min(MAX_VALUE_WIDTH, Math.max(...rows.map(({ value }) => value.length)))
  let previous: Setting['group']
  return rows
    .map(({ setting, value, source }) => {
      const line = `${setting.key.padEnd(keyWidth)}  ${value.padEnd(valueWidth)}  ${source}`
      const gap = setting.group === previous ? '' : '\n'
      previous = setting.group
      return `${gap}${line}\n`
    })
    .join('')
}

const MAX_VALUE_WIDTH = 48

async function tryMint(text: string, config: Config): Promise<{ lines: string[]; isGood: boolean }> {
  const { allow, ids, pattern } = config.orgs
  const org = parseOrgId(text, pattern)
  if (org === undefined) return { lines: ['not tried: not an org id (see orgs.pattern)'], isGood: false }
  if (allow.length > 0 && !allow.includes(org)) {
    return { lines: [`not tried: ${org} is not in orgs.allow`], isGood: false }
  }
  if (ids?.has(org) === false) return { lines: [`not tried: ${org} is not in orgs.ids`], isGood: false }
  const { method, url, durationMs, error } = await mintOnce(config, org)
  const call = `${method} ${url} (${Math.round(durationMs)} ms)`
  if (error === undefined) return { lines: [`got a token for ${org}`, call], isGood: true }
  const { status } = PROBLEMS[error.code]
  const { detail } = remedyOf(error.code, error.isOfMinter)
  const isOtherCall = error.code === 'token_response_invalid' && config.minter.url === undefined
  // Of the rest, the detail says when to repeat a request.
  const advice = status === 503 ? [] : [isOtherCall ? askProbe(org) : detail]
  return {
    lines: [`no token for ${org}: ${error.code}`, call, causeForOperator(error) ?? error.message, ...advice],
    isGood: false,
  }
}

const askProbe = (org: OrgId) =>
  `Check what it answers, then baseUrl, tokens.endpoint and tokens.field: "org-access-proxy probe --org ${org}" shows the method that it takes, and the members of its answer.`

/** Resolves with the problem, or undefined. */
async function tryFleetStore(config: Config): Promise<string | undefined> {
  let settle: (problem?: string) => void = () => undefined
  const problem = new Promise<string | undefined>((resolve) => {
    settle = resolve
  })
  const observer = { storeLost: settle, storeBack: () => settle(), storeAsked: () => undefined }
  const shared = await openFleet(config, observer)
  await problem
  await shared?.close?.()
  return problem
}

/** Makes one call of the token endpoint, or of the minter, and resolves with what that tells its observer. */
async function mintOnce(config: Config, org: OrgId): Promise<SettledMint> {
  const { app, minter } = config
  const pool = openMintPool(config, 1, LiveConnections.of(config))
  try {
    return await new Promise((resolve, reject) => {
      const credentials = app && new AppCredentials(new AppKey(app.appId, app.appSecret, config.tokens))
      const observer = { mintSettled: resolve, minterAsked: resolve }
      const source = credentials && openTokenEndpoint(config, pool, credentials, observer)
      const asked = source ?? (minter.url && openMinterSource(minter.url, config, pool, () => minter, observer))
      asked?.mint(org).catch(reject)
    })
  } finally {
    pool.close()
  }
}
