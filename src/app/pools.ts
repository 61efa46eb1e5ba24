/** Opens pools of connections to the service, and calls the token endpoint over one of them. */

import type { SecureContext } from 'node:tls'
import type { Download } from '../callers/key-sets.ts'
import type { Config } from '../config/schema.ts'
import { isSameOrigin } from '../http1/host.ts'
import type { WholeResponse } from '../http1/response-parser.ts'
import { type CallRequest, call } from '../origin/call.ts'
import type { TimeLimits } from '../origin/connection.ts'
import { ConnectionPool } from '../origin/connection-pool.ts'
import type { ConnectorOptions } from '../origin/connector.ts'
import { outboundProxyFor } from '../origin/outbound-proxy.ts'
import type { AppCredentials } from '../token/app-credentials.ts'
import { tokenEndpoint } from '../token/token-endpoint.ts'
import type { TokenObserver, TokenSource } from '../token/token-source.ts'
import { contextTrusting } from '../trusted-certificates.ts'
import { USER_AGENT } from '../version.ts'
import type { Commit, Part } from './reload.ts'

type TlsFiles = Pick<Config['origin'], 'caFile' | 'certFile' | 'keyFile'>

/** What new connections need: the look-up of names, and certificates, which a reload replaces. */
export class LiveConnections implements Part {
  readonly lookup: ConnectorOptions['lookup']
  /** Undefined for the certificates of the runtime. */
  secureContext: SecureContext | undefined
  readonly #filesOf: (config: Config) => TlsFiles
  readonly #others: 'others too' | 'no others'
  #version = ''

  private constructor(
    config: Config,
    filesOf: (config: Config) => TlsFiles,
    others: 'others too' | 'no others',
    lookup: ConnectorOptions['lookup'],
  ) {
    this.#filesOf = filesOf
    this.#others = others
    this.lookup = lookup
    this.prepare(config)?.()
  }

  static of(config: Config, lookup?: ConnectorOptions['lookup']) {
    const to = (others: 'others too' | 'no others', filesOf: (config: Config) => TlsFiles) =>
      new LiveConnections(config, filesOf, others, lookup)
    return {
      service: to('others too', ({ origin }) => origin),
      /** To another host, the client certificate is not shown. */
      endpoint: to('others too', ({ origin, tokens: { endpoint }, baseUrl }) => {
        if (endpoint.base === undefined) return {}
        return isSameOrigin(endpoint.base, baseUrl) ? origin : { caFile: origin.caFile }
      }),
      /** Trusts the CA of the minter and no other, if it is named: no public one speaks for a private name. */
      minter: to('no others', ({ minter: { certKeyFile: keyFile, ...files } }) => ({ ...files, keyFile })),
    }
  }

  /** A context costs tens of milliseconds and a mebibyte. */
  prepare(config: Config): Commit | undefined {
    const { caFile, certFile, keyFile } = this.#filesOf(config)
    const version = [caFile, certFile, keyFile].map((file) => file?.digest).join()
    if (version === this.#version) return undefined
    const shown = certFile && keyFile && { cert: certFile.content, key: keyFile.content.reveal() }
    const secureContext = contextTrusting(caFile?.content, shown, this.#others)
    return (isTaken = true) => {
      if (!isTaken) return
      this.#version = version
      this.secureContext = secureContext
    }
  }
}

interface Destination extends Pick<Config, 'baseUrl' | 'origin' | 'proxies'> {
  readonly socketPath?: string | undefined
}

/** Returns a pool of at most `connections`. */
export function openPool(
  { baseUrl, socketPath, origin, proxies }: Destination,
  connections: number,
  live: LiveConnections,
  limits?: TimeLimits,
): ConnectionPool {
  return new ConnectionPool({
    ...limits,
    baseUrl,
    socketPath,
    connections,
    connectTimeoutMs: origin.connectTimeoutMs,
    keepAliveTimeoutMs: origin.keepAliveTimeoutMs,
    maxConnectionAgeMs: origin.maxConnectionAgeMs,
    outboundProxy: outboundProxyFor(baseUrl, proxies, origin.connectTimeoutMs, live.lookup),
    lookup: live.lookup,
    get secureContext() {
      return live.secureContext
    },
  })
}

/** A pool for mints: to the token endpoint, or to the minter of a sidecar. */
export function openMintPool(
  config: Config,
  connections: number,
  live: ReturnType<typeof LiveConnections.of>,
): ConnectionPool {
  const { minter, origin, tokens } = config
  if (minter.url !== undefined) return openPool({ ...minter.url, origin, proxies: undefined }, connections, live.minter)
  const { base } = tokens.endpoint
  if (base === undefined) return openPool(config, connections, live.service)
  return openPool({ ...config, baseUrl: base }, connections, live.endpoint)
}

/** Of `tokens.mintTimeout`, so that a call gives its place back before those who wait for it give up. */
const CALL_SHARE = 4 / 5

export function openTokenEndpoint(
  config: Config,
  pool: ConnectionPool,
  credentials: AppCredentials,
  observer: TokenObserver,
  rereadSecret?: () => Promise<void>,
  latest = () => config,
): TokenSource {
  const { baseUrl, tokens } = config
  const { endpoint, form, json, field } = tokens
  return tokenEndpoint({
    baseUrl,
    endpoint,
    form,
    json,
    get secretHeaders() {
      return latest().tokens.secretHeaders
    },
    get orgIds() {
      return latest().orgs.ids
    },
    field,
    userAgent: USER_AGENT,
    credentials,
    timeoutMs: tokens.mintTimeoutMs * CALL_SHARE,
    call: (request, timeoutMs) => call(pool, request, timeoutMs),
    observer,
    rereadSecret,
  })
}

/** Of a pool of one connection, so that its user chooses the connection of each call. It opens with the first one. */
export function openWire(pool: ConnectionPool, timeoutMs: number) {
  return {
    call: (request: CallRequest): Promise<WholeResponse> => call(pool, request, timeoutMs),
    close: () => pool.close(),
  }
}

/** Key sets of callers are fetched so: each call has a connection of its own. */
export function keySetDownload(lookup?: ConnectorOptions['lookup']): Download {
  return async ({ url, fields, secureContext, timeoutMs, signal }) => {
    const pool = new ConnectionPool({
      baseUrl: url,
      connections: 1,
      connectTimeoutMs: timeoutMs,
      secureContext,
      lookup,
    })
    const request = { method: 'GET', target: url.pathname + url.search, fields: ['host', url.host, ...fields] }
    const close = () => pool.close()
    signal.addEventListener('abort', close, { once: true })
    return await call(pool, request, timeoutMs).finally(() => {
      signal.removeEventListener('abort', close)
      close()
    })
  }
}
