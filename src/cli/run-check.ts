/** What `check` needs to run for real: the configuration, and one call to the token endpoint where `--mint` asks for it. */

import { performance } from 'node:perf_hooks'
import type { Environment } from '../config/environment.ts'
import { loadConfig } from '../config/load.ts'
import type { Config } from '../config/schema.ts'
import { TokenError } from '../errors.ts'
import type { OrgId } from '../http/org-id.ts'
import { targetPrefix } from '../http/target.ts'
import { AppCredentials } from '../token/app-credentials.ts'
import { TokenEndpoint } from '../token/token-endpoint.ts'
import { contextTrusting } from '../trusted-certificates.ts'
import { check, type MintOutcome } from './check.ts'

/** Resolves with the exit code. @throws {ConfigRefused} */
export async function runCheck(command: { file: string | undefined; mint: string | undefined }, env: Environment) {
  const loaded = await loadConfig({ file: command.file, env })
  return check({
    loaded,
    org: command.mint,
    mint: (org) => mintOnce(loaded.config, org),
    stdout: process.stdout,
    isTerminal: process.stdout.isTTY === true,
  })
}

async function mintOnce(config: Config, org: OrgId): Promise<MintOutcome> {
  const { baseUrl, tokens, origin } = config
  const endpoint = new TokenEndpoint(
    {
      baseUrl,
      prefix: targetPrefix(baseUrl),
      connections: 1,
      timeoutMs: tokens.mintTimeout,
      secureContext: contextTrusting(origin.caCertificates),
      proxies: origin.proxies,
    },
    new AppCredentials(config.appId, config.appSecret),
  )
  const startedAt = performance.now()
  const sinceStart = () => Math.round(performance.now() - startedAt)
  try {
    await endpoint.mint(org)
    return { kind: 'minted', durationMs: sinceStart() }
  } catch (error) {
    if (!(error instanceof TokenError)) throw error
    return { kind: 'failed', code: error.code, message: error.message, durationMs: sinceStart() }
  } finally {
    await endpoint.close()
  }
}
