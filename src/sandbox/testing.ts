/**
 * `startProxy`, for users' tests: the real proxy inside the test process, on a free port. It reads no environment variables
 * and installs no signal handlers.
 */

import { randomUUID } from 'node:crypto'
import { rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { startApp } from '../app/app.ts'
import { Log } from '../app/log.ts'
import { loadConfig } from '../config/load.ts'
import type { ConfigFile } from './config-file.ts'
import type { Sandbox, TokenWays } from './sandbox.ts'

export type { ConfigFile } from './config-file.ts'

/** A sandbox, or a service of your own. */
export type ProxyOptions = Pick<Sandbox, 'baseUrl' | 'appId' | 'appSecret'> & Partial<TokenWays>

export interface ProxySettings {
  /** Further settings, as in a configuration file: `{ tokens: { lifetime: '1m' } }`. Paths are relative to the working directory. */
  readonly config?: ConfigFile
  /** Gets each line of the log, as JSON. Nothing is logged without it. */
  readonly log?: (line: string) => void
}

export interface Proxy extends AsyncDisposable {
  /** Address for clients, such as `http://127.0.0.1:40123`. */
  readonly url: string
  /** Address of the admin listener: `/status`, `/metrics`, `/tokens/purge`. */
  readonly adminUrl: string
  /** Closes every connection, and resolves when all are closed. */
  close(): Promise<void>
}

/**
 * Resolves when the proxy listens and the orgs of `tokens.warm` were tried.
 * @throws {Error} whose message names every wrong setting
 */
export async function startProxy(options: ProxyOptions, { config = {}, log }: ProxySettings = {}): Promise<Proxy> {
  const { baseUrl, appId, appSecret, tokenSettleMs, tokenEndpoint: endpoint, tokenField: field } = options
  const { tokenAuth: auth, tokenForm: form, tokenJson: json, tokenHeader: header, tokenAssertion } = options
  const { audience, keyId, algorithm } = tokenAssertion ?? {}
  const env = {
    OAP_LISTEN_ADDRESS: '127.0.0.1:0',
    OAP_ADMIN_ADDRESS: '127.0.0.1:0',
    OAP_BASE_URL: baseUrl,
    OAP_APP_ID: appId,
    OAP_APP_SECRET: appSecret,
  }
  const hasContent = config.tokens?.form !== undefined || config.tokens?.json !== undefined
  const tokens = {
    endpoint,
    field,
    auth,
    header,
    assertion: { audience, keyId, algorithm },
    ...(!hasContent && { form, json }),
    // By its default, a test that revokes a new token would wait for seconds: the sandbox may not know the token yet.
    ...(tokenSettleMs !== undefined && { settleTime: `${tokenSettleMs}ms` }),
    ...config.tokens,
  }
  const file = join(tmpdir(), `org-access-proxy-${randomUUID()}.json`)
  await writeFile(file, JSON.stringify({ ...config, tokens }), { mode: 0o600 })
  const loaded = await loadConfig({ file, env, folder: process.cwd() }).finally(() => rm(file))
  const destination = { write: (line: string) => log?.(line) }
  const app = await startApp(loaded, new Log({ ...loaded.config.log, format: 'json', destination }))
  await app.warmed
  const close = async () => {
    await app.close()
  }
  const [url, adminUrl] = [`http://${app.address}`, `http://${app.adminAddress}`]
  return { url, adminUrl, close, [Symbol.asyncDispose]: close }
}
