/** Opens pools of connections to the service, and calls the token endpoint over one of them. */

import type { SecureContext } from 'node:tls'
import type { Download } from '../callers/key-sets.ts'
import type { Config } from '../config/schema.ts'
import type { WholeResponse } from '../http1/response-parser.ts'
import { type CallRequest, call } from '../origin/call.ts'
import type { TimeLimits } from '../origin/connection.ts'
import type { ConnectorOptions } from '../origin/connector.ts'
import { Origin } from '../origin/origin.ts'
import { tunnelFor } from '../origin/proxy-tunnel.ts'
import type { AppCredentials } from '../token/app-credentials.ts'
import { tokenEndpoint } from '../token/token-endpoint.ts'
import type { TokenObserver, TokenSource } from '../token/token-source.ts'
import { contextTrusting } from '../trusted-certificates.ts'
import { readVersion } from '../version.ts'

/** The certificates of TLS with the service; undefined for those of the runtime. */
export function serviceContext({ caFile, certFile, keyFile }: Config['origin']): SecureContext | undefined {
  const shown = certFile && keyFile && { cert: certFile.content, key: keyFile.content.reveal() }
  return contextTrusting(caFile?.content, shown)
}

export type LiveConnections = Pick<ConnectorOptions, 'secureContext' | 'lookup'>

/** Returns a pool of at most `connections`. A reload may change `live`, so it is read at each use. */
export function openOrigin(
  { baseUrl, origin, proxies }: Pick<Config, 'baseUrl' | 'origin' | 'proxies'>,
  connections: number,
  live: LiveConnections,
  limits?: TimeLimits,
): Origin {
  return new Origin({
    ...limits,
    baseUrl,
    connections,
    connectTimeoutMs: origin.connectTimeoutMs,
    maxConnectionAgeMs: origin.maxConnectionAgeMs,
    tunnel: tunnelFor(baseUrl, proxies, origin.connectTimeoutMs, live.lookup),
    lookup: live.lookup,
    get secureContext() {
      return live.secureContext
    },
  })
}

/** A pool for the calls of the token endpoint, which may be on another host: the client certificate is for the service alone. */
export function openEndpointOrigin(
  config: Config,
  connections: number,
  live: LiveConnections & { readonly config: Config },
): Origin {
  const { base } = config.tokens.endpoint
  if (base === undefined) return openOrigin(config, connections, live)
  let known: { readonly caFile: unknown; readonly context: SecureContext | undefined } | undefined
  return openOrigin({ ...config, baseUrl: base }, connections, {
    lookup: live.lookup,
    get secureContext() {
      const { caFile } = live.config.origin
      if (known?.caFile !== caFile) known = { caFile, context: contextTrusting(caFile?.content) }
      return known?.context
    },
  })
}

/** Of `tokens.mintTimeout`, so that a call gives its place back before those who wait for it give up. */
const CALL_SHARE = 4 / 5

export function openTokenEndpoint(
  { baseUrl, tokens }: Config,
  origin: Origin,
  credentials: AppCredentials,
  observer: TokenObserver,
  rereadSecret?: () => Promise<void>,
): TokenSource {
  const { endpoint, form, json, field } = tokens
  return tokenEndpoint({
    baseUrl,
    endpoint,
    form,
    json,
    field,
    userAgent: `org-access-proxy/${readVersion()}`,
    credentials,
    timeoutMs: tokens.mintTimeoutMs * CALL_SHARE,
    call: (request, timeoutMs) => call(origin, { ...request, readsErrors: true }, timeoutMs),
    observer,
    rereadSecret,
  })
}

/** Of a pool of one connection, so that its user chooses the connection of each call. It opens with the first one. */
export function openWire(origin: Origin, timeoutMs: number) {
  return {
    call: (request: CallRequest): Promise<WholeResponse> => call(origin, request, timeoutMs),
    close: () => origin.close(),
  }
}

/** Key sets of callers are fetched so: each call has a connection of its own. */
export function keySetDownload(lookup?: ConnectorOptions['lookup']): Download {
  return async ({ url, fields, secureContext, timeoutMs, signal }) => {
    const origin = new Origin({ baseUrl: url, connections: 1, connectTimeoutMs: timeoutMs, secureContext, lookup })
    const request = { method: 'GET', target: url.pathname + url.search, fields: ['host', url.host, ...fields] }
    const close = () => origin.close()
    signal.addEventListener('abort', close, { once: true })
    return await call(origin, request, timeoutMs).finally(() => {
      signal.removeEventListener('abort', close)
      close()
    })
  }
}
