/** All settings, declared once: the checks, types, JSON Schema, reference file and tables are derived from here. */

import { z } from 'zod'
import type { CallerRule } from '../callers/callers.ts'
import type { OrgId } from '../http/org-id.ts'
import type { KeyPair, Secret } from '../secret.ts'
import {
  parseAddress,
  parseAdminAddress,
  parseBaseUrl,
  parseFleetStore,
  parseHostName,
  parseKeySetLocation,
  parseSocketPath,
} from './address.ts'
import {
  choice,
  count,
  DEFAULT_PATTERN,
  duration,
  file,
  flag,
  items,
  list,
  mapping,
  parseAppId,
  parseCallerName,
  parseCertificateName,
  parsed,
  parseFileMode,
  parseFleetPrefix,
  parseOrgPattern,
  parseOrgRule,
  parseRoutePattern,
  rate,
  required,
  size,
  text,
  wholeNumber,
} from './types.ts'

const listen = z
  .strictObject({
    address: parsed(text(), parseAddress)
      .prefault('localhost:8080')
      .describe(
        'Where apps connect: `host:port` or `unix:/path`. `localhost` means 127.0.0.1 and, if the machine has it, ::1. Port 0 takes a free port and logs it.',
      ),
    allowRemote: flag(false).describe(
      'Permits an `address` that other machines can reach. Anyone there acts as the App, unless `callers` or `callerKeyFile` is set.',
    ),
    hosts: list(parsed(text(), parseHostName)).describe(
      'Names accepted in `Host`, in addition to localhost, 127.0.0.1, [::1] and the host of `address`. A single `*` accepts all, and gives up the protection against DNS rebinding.',
    ),
    socketMode: parsed(text(), parseFileMode)
      .prefault('0660')
      // Without quotes, an editor takes it for a number.
      .meta({
        description: 'File mode of a unix socket, in octal with its leading zero.',
        type: ['string', 'integer'],
      }),
    callerKeyFile: file().describe(
      'File with a key. If set, every request needs it in `X-Proxy-Key`, which is never forwarded.',
    ),
    refuseForwarded: flag(true).describe(
      'Refuses requests with `X-Forwarded-For`, `Forwarded` or `X-Real-IP`: they came through another proxy.',
    ),
    maxConnections: count(4096, 1, 1_000_000).describe('Most client connections at once.'),
    maxInFlight: count(2048, 1, 1_000_000).describe('Most requests at once; the next one gets 503 `overloaded`.'),
    headersTimeout: duration('10s').describe('Longest time for a client to send a request head; then 408.'),
    idleTimeout: duration('60s').describe(
      'Longest pause of a client while it sends content or reads its response. A slow transfer of any size goes through as long as it moves.',
    ),
    keepAliveTimeout: duration('65s').describe(
      'How long an idle client connection stays open. Set it above the idle timeout of the clients.',
    ),
    tls: z
      .strictObject({
        certFile: file().describe(
          'PEM file with the certificate of the listener and its chain. With it, the listener speaks TLS only.',
        ),
        keyFile: file().describe('PEM file with the private key of the certificate.'),
        clientCaFile: file().describe(
          'PEM file with CA certificates. With it, clients are asked for a certificate; see `callers`.',
        ),
      })
      .describe('TLS between apps and proxy; off unless `certFile` is set.'),
  })
  .describe('The listener for apps.')

const origin = z
  .strictObject({
    connections: count(256, 1, 65_535).describe(
      'Most connections to the service at once, for repeats and WebSocket handshakes too. One Org gets at most three quarters of them.',
    ),
    maxConnectionAge: duration('10m').describe(
      'An older connection closes after its response, so that traffic follows DNS and load balancers. Jittered by a fifth.',
    ),
    connectTimeout: duration('5s').describe('Longest time for TCP and TLS together.'),
    responseTimeout: duration('60s').describe(
      'Longest time from the sent request to the final response head; then 504 `http_response_timeout`.',
    ),
    idleTimeout: duration('5m').describe('Longest pause of the service while it sends content.'),
    caFile: file().describe('PEM file with CA certificates to trust, in addition to those that Node trusts.'),
    certFile: file().describe(
      'PEM file with the certificate that the proxy shows to the service, and its chain. Needs `origin.keyFile`.',
    ),
    keyFile: file().describe('PEM file with the private key of `origin.certFile`.'),
    allowInsecure: flag(false).describe(
      'Permits plain `http` in `baseUrl` to another machine. The network can then read the secret and all tokens.',
    ),
    proxyFromEnv: flag(false).describe('Uses `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY`; they are ignored otherwise.'),
  })
  .describe('The connections to the service.')

const orgs = z
  .strictObject({
    allow: list(text()).describe('If not empty, only these org ids are accepted.'),
    pattern: parsed(text(), parseOrgPattern)
      .prefault(DEFAULT_PATTERN)
      .describe(
        'Regular expression that the whole org id must match. `.`, `..`, white space, controls, non-ASCII, any of `/ \\ ? # % ,` and more than 256 characters are always refused. Keep it linear: a pattern such as `(a+)+` can take for ever to refuse an id.',
      ),
  })
  .describe('Which org ids are accepted.')

const routes = z
  .strictObject({
    allow: list(parsed(text(), parseRoutePattern)).describe(
      'If not empty, only these routes are forwarded: `"METHOD /path"`, `*` for any method, a trailing `/*` for everything below.',
    ),
    allowTokenEndpoint: flag(false).describe('Lets apps call the token endpoint themselves and see tokens.'),
  })
  .describe('Which requests are forwarded.')

const tokens = z
  .strictObject({
    maxOrgs: count(10_000, 1, 1_000_000).describe(
      'Most tokens kept. Beyond it, the least recently used token is evicted, and minted again when needed.',
    ),
    lifetime: duration('5m', '100ms').describe(
      'Assumed lifetime of a token until it has been learned: the service states none.',
    ),
    learn: flag(true).describe('Learns the lifetime of tokens from the age at which the service rejects them.'),
    settleTime: duration('5s', '0s').describe(
      'A token that is younger may not be known everywhere yet: a rejection is then answered by a repeat, not by a mint.',
    ),
    rejectedStatuses: items(wholeNumber(400, 599))
      .prefault([401])
      .describe('Statuses by which the service says that a token is no longer valid.'),
    rejectedCooldown: duration('10s').describe(
      'Per org: if a new token did not help, rejections cause no mint for this time.',
    ),
    refusalTtl: duration('5s').describe('How long a refusal of an org by the token endpoint is remembered.'),
    mintTimeout: duration('5s').describe(
      'How long a request waits for a mint, retries included. The call goes on for up to six times that, for the next request.',
    ),
    mintConcurrency: count(32, 1, 10_000).describe('Most calls to the token endpoint at once.'),
    mintRate: rate(100, 0.1, 100_000).describe('Most calls to the token endpoint per second.'),
    warm: list(text()).describe('Org ids whose tokens are minted at start, before the proxy reports itself ready.'),
  })
  .describe('How Org Access Tokens are obtained, kept and renewed. A mint is one call of the token endpoint.')

export const jwtMapping = mapping({
  issuer: required().describe('The `iss` claim, exactly.'),
  audience: required().describe('One of the `aud` claim.'),
  subject: required().describe('The `sub` claim, exactly.'),
  jwks: parsed(required(), parseKeySetLocation).describe('The keys of the issuer: a file, or an https URL.'),
  jwksCaFile: file().describe(
    'PEM file with CA certificates to trust for the URL, in addition to those that Node trusts.',
  ),
  jwksTokenFile: file().describe('File with a bearer token for the URL, read again for each request.'),
})

export const callerMapping = mapping({
  name: parsed(required(), parseCallerName).describe('Appears in the log, the metrics and on the status page.'),
  socket: parsed(text(), parseSocketPath)
    .optional()
    .describe('A unix socket of its own: every process that may open it is this caller.'),
  keyFiles: items(text()).min(1, 'is empty: name a file').optional().describe('Files with keys for `X-Proxy-Key`.'),
  certificate: parsed(text(), parseCertificateName)
    .optional()
    .describe('Name in its client certificate, exactly: `spiffe://…` or `dns:…`. Needs `listen.tls.clientCaFile`.'),
  jwt: jwtMapping.optional().describe('The JWT that the caller sends in `X-Proxy-Key`.'),
  orgs: list(parsed(text(), parseOrgRule)).describe('Org ids that it may name; a trailing `*` stands for any ending.'),
  routes: list(parsed(text(), parseRoutePattern)).describe(
    'Routes that it may use, written as in `routes.allow`. If empty: all that `routes.allow` lets through, except `appRoutes`.',
  ),
  maxInFlight: wholeNumber(1, 1_000_000).optional().describe('Most requests at once, within `listen.maxInFlight`.'),
})

const fleet = z
  .strictObject({
    store: parsed(text(), parseFleetStore)
      .optional()
      .describe(
        'Redis or Valkey server (7 or newer) through which all replicas share their tokens, sealed: `redis://host:port/db`, `rediss://…` (TLS) or `redis+unix:///path`; no password in it.',
      ),
    cluster: flag(false).describe('The store is a cluster; `store` names one of its nodes.'),
    username: file().describe('ACL user at the store; without one, the password is that of the default user.'),
    passwordFile: file().describe('File with the password for the store; it is watched and re-read when it changes.'),
    caFile: file().describe(
      'PEM file with CA certificates to trust for the store, in addition to those that Node trusts.',
    ),
    timeout: duration('100ms', '1ms', '5s').describe(
      'Longest wait for the store; after that the proxy goes on without it.',
    ),
    prefix: parsed(text(), parseFleetPrefix).prefault('oap').describe('Begins the name of every key in the store.'),
  })
  .describe('Replicas that share tokens; off unless `store` is set.')

const replay = z
  .strictObject({
    maxBody: size('64KiB', '0B', '64MiB').describe(
      'Most request content kept for one repeat after a rejected token. A request with more content is not repeated. All requests together keep at most 32 MiB; what comes beyond is forwarded, but not repeated.',
    ),
  })
  .describe('The repeat of a request whose token was rejected.')

const admin = z
  .strictObject({
    address: parsed(text(), parseAdminAddress)
      .prefault('localhost:9090')
      .describe('Address for health, metrics and the status page: `host:port`, `unix:/path`, or `off`.'),
    allowRemote: flag(false).describe(
      'On an address that other machines can reach, opens the status page and purging too, not only health and metrics.',
    ),
  })
  .describe('The admin listener.')

const log = z
  .strictObject({
    level: choice(['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'], 'info').describe(
      'Lowest level that is written: trace, debug, info, warn, error, fatal or silent.',
    ),
    requests: choice(['all', 'errors', 'off'], 'all').describe(
      'Which requests get a line: all, errors (status 400 and above) or off.',
    ),
    sample: rate(1, 0, 1).describe(
      'Share of the successful requests that get a line, from 0 to 1. Errors always get theirs.',
    ),
    format: choice(['json', 'pretty'], 'json').describe('json for machines, pretty for people; pretty is slower.'),
  })
  .describe('What is written to standard output.')

const shutdown = z
  .strictObject({
    delay: duration('0s', '0s').describe(
      'How long the proxy reports not ready before the listener closes, so that load balancers notice.',
    ),
    timeout: duration('10s').describe('Longest time for requests in flight to finish; then they are broken off.'),
  })
  .describe('What happens after SIGTERM or SIGINT.')

export const declaration = z.strictObject({
  appId: parsed(text(), parseAppId).describe('The App id, without `:`.'),
  appSecretFile: file().describe(
    'File with the App secret. One trailing newline is dropped. The file is watched, and read again when it changes.',
  ),
  appSecret: file().describe(
    'The App secret itself, in the environment only. A file is safer: other processes may read an environment.',
  ),
  baseUrl: parsed(text(), parseBaseUrl).describe(
    'URL of the service, without `/v2`; a path prefix is allowed, a user, query or fragment is not. Plain `http` only to this machine, unless `origin.allowInsecure`.',
  ),
  appRoutes: list(parsed(text(), parseRoutePattern)).describe(
    'Requests that go with the Basic credentials of the App instead of a token, such as `"POST /v2/links"` or `"GET /v2/apps/*"`. They need no org id.',
  ),
  callers: list(callerMapping).describe(
    'The clients that may send requests, each with its orgs and routes; see docs/callers.md. If empty, every client that can connect (and knows the key of `listen.callerKeyFile`, if set) may name any org. In a file only.',
  ),
  listen,
  origin,
  orgs,
  routes,
  tokens,
  fleet,
  replay,
  admin,
  log,
  shutdown,
})

/** The proxies that the environment names. */
export interface ProxyVariables {
  /** A URL. It may contain a password. */
  readonly httpProxy: Secret | undefined
  readonly httpsProxy: Secret | undefined
  readonly noProxy: string | undefined
}

/** The settings, each parsed by itself. */
export type DeclaredSettings = z.output<typeof declaration>

/** Grouped like the keys. Durations are in milliseconds, sizes in bytes; files have been read. */
export interface Config
  extends Omit<DeclaredSettings, 'appSecret' | 'callers' | 'fleet' | 'listen' | 'origin' | 'orgs' | 'tokens'> {
  readonly appSecret: Secret
  readonly callers: readonly CallerRule[]
  readonly listen: DeclaredSettings['listen'] & {
    readonly callerKey: Secret | undefined
    readonly tls: DeclaredSettings['listen']['tls'] & {
      /** The contents of `certFile` and `keyFile`. */
      readonly keyPair: KeyPair | undefined
      /** The content of `clientCaFile`. */
      readonly clientCaCertificates: string | undefined
    }
  }
  readonly origin: DeclaredSettings['origin'] & {
    /** The content of `caFile`. */
    readonly caCertificates: string | undefined
    /** The content of `certFile` and `keyFile`. */
    readonly clientCertificate: KeyPair | undefined
    /** Undefined unless `proxyFromEnv`. */
    readonly proxies: ProxyVariables | undefined
  }
  readonly fleet: DeclaredSettings['fleet'] & {
    /** The content of `caFile`. */
    readonly caCertificates: string | undefined
    /** The content of `passwordFile` at start. */
    readonly password: Secret | undefined
  }
  readonly orgs: Omit<DeclaredSettings['orgs'], 'allow'> & { readonly allow: readonly OrgId[] }
  readonly tokens: Omit<DeclaredSettings['tokens'], 'warm'> & { readonly warm: readonly OrgId[] }
}
