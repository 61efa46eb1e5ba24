/**
 * The parts of undici that are used here, without its index: that brings fetch, caches, mocks and WebSocket along, and
 * costs some 60 ms of every start.
 */

import { createRequire } from 'node:module'
import type { Client, EnvHttpProxyAgent } from 'undici'
import Pool from 'undici/lib/dispatcher/pool.js'
import type { Secret } from './secret.ts'

export { Pool }

/** Proxies on the way to the service, as the environment names them. */
export interface ProxyVariables {
  /** URLs; they may hold a password. */
  readonly httpProxy: Secret | undefined
  readonly httpsProxy: Secret | undefined
  readonly noProxy: string | undefined
}

/** What is left out uses no proxy, whatever the environment says. Here the price of the index is paid. */
export function newProxyAgent(proxies: ProxyVariables, options: EnvHttpProxyAgent.Options): EnvHttpProxyAgent {
  const undici: typeof import('undici') = createRequire(import.meta.url)('undici')
  return new undici.EnvHttpProxyAgent({
    ...options,
    httpProxy: proxies.httpProxy?.reveal() ?? '',
    httpsProxy: proxies.httpsProxy?.reveal() ?? '',
    noProxy: proxies.noProxy ?? '',
  })
}

/** A client for a CONNECT through one proxy; the price of the index is paid here, too. */
export function newProxyClient(origin: string): Client {
  const undici: typeof import('undici') = createRequire(import.meta.url)('undici')
  return new undici.Client(origin)
}
