/**
 * The parts of undici that the program uses. The pool is imported past undici's index, which also loads fetch, caches, mocks
 * and WebSocket: the index adds 60 to 100 ms and 8 to 15 MiB to every start. If a version of undici
 * moves the file, the program does not start.
 */

import { createRequire } from 'node:module'
import type { Client, EnvHttpProxyAgent } from 'undici'
import Pool from 'undici/lib/dispatcher/pool.js'
import type { Secret } from './secret.ts'

export { Pool }

/** The proxies that the environment names. */
export interface ProxyVariables {
  /** A URL. It may contain a password. */
  readonly httpProxy: Secret | undefined
  readonly httpsProxy: Secret | undefined
  readonly noProxy: string | undefined
}

/** A variable that is not given means no proxy, whatever the environment says. Loads undici's index. */
export function newProxyAgent(proxies: ProxyVariables, options: EnvHttpProxyAgent.Options): EnvHttpProxyAgent {
  const undici: typeof import('undici') = createRequire(import.meta.url)('undici')
  return new undici.EnvHttpProxyAgent({
    ...options,
    httpProxy: proxies.httpProxy?.reveal() ?? '',
    httpsProxy: proxies.httpsProxy?.reveal() ?? '',
    noProxy: proxies.noProxy ?? '',
  })
}

/** Returns a client for a CONNECT to one proxy. Loads undici's index. */
export function newProxyClient(origin: string): Client {
  const undici: typeof import('undici') = createRequire(import.meta.url)('undici')
  return new undici.Client(origin)
}
