/**
 * All settings, declared once: the checks, types, JSON Schema, reference file and tables are derived from here. A duration has
 * `Ms` behind its name and a size `Bytes`, and so they are called in the whole program. Outside, the name has no unit.
 */

import { z } from 'zod'
import type { OrgId } from '../org-id.ts'
import type { Secret } from '../secret.ts'
import { ALGORITHMS, APP_AUTHS } from '../token/app-key.ts'
import {
  DEFAULT_ADMIN_ADDRESS,
  parseAddress,
  parseAddressOrOff,
  parseBaseUrl,
  parseFleetStore,
  parseHostName,
  parseMinterUrl,
  parseServerName,
  parseSocketPath,
  parseTracesEndpoint,
} from './address.ts'
import {
  appSecretFile,
  callerKeyFile,
  certificatesFile,
  clientCaFile,
  jwtFile,
  keyFile,
  keySetLocation,
  PATH,
  parseAppSecret,
  privateKeyFile,
  secretFile,
  secretHeaders,
} from './files.ts'
import {
  choice,
  count,
  DEFAULT_PATTERN,
  duration,
  durationOrAuto,
  fileMode,
  flag,
  group,
  items,
  list,
  members,
  orgNames,
  parsed,
  parsedOr,
  parseEndpoint,
  parseField,
  parseOrgPattern,
  parseOrgRule,
  parseRoutePattern,
  parseTokenHeader,
  RELOADABLE,
  rate,
  size,
  text,
  wholeNumber,
} from './types.ts'

/** `relations.ts` checks it against `orgs.pattern`. */
const orgId = text().transform((id) => id as OrgId)

const appId = text().regex(
  /^(?!\s*$)[^:\p{Cc}]+$/u,
  'is blank, or contains ":" or a control character, which Basic credentials cannot carry (RFC 7617 §2)',
)

const listen = group('The listener for apps.', {
  address: parsedOr('localhost:8080', parseAddressOrOff).describe(
    'Where apps connect: `host:port` or `unix:/path`. `localhost` means 127.0.0.1 and, if the machine has it, ::1. Port 0 takes a free port and logs it. `off` for a minter alone.',
  ),
  allowRemote: flag(false).describe(
    'Permits an `address` that other machines can reach. Anyone there acts as the App, unless `callers` or `callerKeyFile` is set.',
  ),
  hosts: list(parsed(parseHostName))
    .describe(
      'Names accepted in `Host`, in addition to localhost, 127.0.0.1, [::1] and the host of `address`. A single `*` accepts all, and gives up the protection against DNS rebinding.',
    )
    .meta(RELOADABLE),
  socketMode: fileMode()
    .prefault('0660')
    // Without quotes, an editor takes it for a number.
    .meta({
      description: 'File mode of a unix socket, in octal with its leading zero.',
      type: ['string', 'integer'],
    }),
  callerKeyFile: keyFile().describe('File with a key. Every request then needs it in `X-Proxy-Key`.').meta(RELOADABLE),
  refuseForwarded: flag(true).describe(
    'Refuses requests with `X-Forwarded-For`, `Forwarded` or `X-Real-IP`: they came through another proxy.',
  ),
  maxConnections: count(4096, 1, 1_000_000).describe('Most client connections at once.'),
  maxInFlight: count(2048, 1, 1_000_000).describe(
    'Most requests at once, of one Org at most three quarters of them; the next one gets 503 `overloaded`.',
  ),
  maxHeadSizeBytes: size('16KiB', '4KiB', '64KiB').describe(
    'Most of the head of a request: request line and headers. A larger one gets 431 `request_head_too_large`.',
  ),
  headersTimeoutMs: duration('10s').describe('Longest time for a client to send a request head; then 408.'),
  idleTimeoutMs: duration('60s').describe(
    'Longest pause of a client while it sends content or reads its response. A reader counts as paused until it has emptied much of the buffers in between: at a steady 20 KB/s, 60s may be too short.',
  ),
  keepAliveTimeoutMs: duration('65s').describe(
    'How long an idle client connection stays open. Set it above the idle timeout of the clients.',
  ),
  serverTiming: flag(false).describe(
    'Adds `Server-Timing: oap;dur=…` to each response: the milliseconds in the proxy, without the wait for the service.',
  ),
  tls: group('TLS between apps and proxy; off unless `certFile` is set.', {
    certFile: certificatesFile()
      .describe('PEM file with the certificate of the listener and its chain. With it, the listener speaks TLS only.')
      .meta(RELOADABLE),
    keyFile: privateKeyFile().describe('PEM file with the private key of the certificate.').meta(RELOADABLE),
    clientCaFile: clientCaFile()
      .describe('CA certificates (PEM) to verify those of clients; see `callers`.')
      .meta(RELOADABLE),
  }),
})

const origin = group('The connections to the service.', {
  connections: count(256, 1, 65_535).describe(
    'Most connections to the service at once, also for repeats and WebSocket handshakes. One Org gets at most three quarters of them.',
  ),
  keepAliveTimeoutMs: duration('4s').describe(
    'How long an idle connection to the service is kept; or what the service announces (`Keep-Alive`), less a second, if that is less. Set it below the idle timeout of the service.',
  ),
  maxConnectionAgeMs: duration('10m').describe(
    'An older connection closes after its response, so that traffic follows DNS and load balancers. Jittered by a fifth.',
  ),
  connectTimeoutMs: duration('5s').describe('Longest time for TCP and TLS together.'),
  responseTimeoutMs: duration('60s').describe(
    'Longest time from the sent request to the final response head; then 504 `http_response_timeout`.',
  ),
  idleTimeoutMs: duration('5m').describe('Longest pause of the service while it sends content.'),
  caFile: certificatesFile()
    .describe('PEM file with CA certificates to trust, in addition to those that Node trusts.')
    .meta(RELOADABLE),
  certFile: certificatesFile()
    .describe('PEM file with the certificate shown to the service, and its chain.')
    .meta(RELOADABLE),
  keyFile: privateKeyFile().describe('PEM file with the private key of `origin.certFile`.').meta(RELOADABLE),
  allowInsecure: flag(false).describe(
    'Permits plain `http` in `baseUrl` to another machine. The network can then read the secret and all tokens.',
  ),
  sendCookies: flag(false).describe(
    'Sends `Cookie` on to the service. The cookie jar of an app sees one host for all Orgs, and would mix their sessions.',
  ),
  secretHeaders: secretHeaders()
    .describe(
      'Fields that every request to the service gets, such as the key of an API gateway: their names, each with the file that holds the value. Apps cannot send them. In a file only.',
    )
    .meta(RELOADABLE),
  proxyFromEnv: flag(false).describe(
    'Uses `HTTPS_PROXY` and `HTTP_PROXY`, except for the hosts of `NO_PROXY` (names with their subdomains, subnets if the host is an address, ports, `*`). If off, the proxy ignores them with a warning.',
  ),
})

const orgs = group('Which org ids are accepted.', {
  allow: list(orgId).describe('If not empty, only these org ids are accepted.').meta(RELOADABLE),
  ids: orgNames()
    .optional()
    .describe(
      'The names by which apps know the Orgs, each with the id that `{orgId}` is at the token endpoint (`acme: "4711"`). If set, no others are accepted. In a file only.',
    )
    .meta(RELOADABLE),
  pattern: parsedOr(DEFAULT_PATTERN, parseOrgPattern)
    .describe(
      'Regular expression that the whole org id must match. `.`, `..`, white space, controls, non-ASCII, any of `/ \\ ? # % ,` and more than 256 characters are always refused. Keep it linear: `(a+)+` can take for ever to refuse an id.',
    )
    .meta(RELOADABLE),
})

const routes = group('Which requests are forwarded.', {
  allow: list(parsed(parseRoutePattern))
    .describe(
      'If not empty, only these routes are forwarded: `"METHOD /path"`, `*` for any method, a trailing `/*` for everything below. `GET` allows `HEAD`.',
    )
    .meta(RELOADABLE),
  allowTokenEndpoint: flag(false)
    .describe(
      'Forwards requests for the token endpoint, too: with the token of the Org, never with the credentials of the App.',
    )
    .meta(RELOADABLE),
})

const tokens = group(
  'How Org Access Tokens are obtained, kept and renewed. A mint is one call of the token endpoint.',
  {
    maxOrgs: count(10_000, 1, 1_000_000).describe(
      'Most tokens kept; beyond it, the least recently used one is evicted.',
    ),
    endpoint: parsedOr('POST /v2/orgs/{orgId}/access', parseEndpoint).describe(
      'The call that gets a token: `POST`, `GET` or `PUT`, and a path below `baseUrl`, or a whole URL. `{orgId}` stands for the org id, here or in `form` or `json`. Apps cannot call that path.',
    ),
    auth: choice(APP_AUTHS, 'basic').describe(
      'How the App proves itself there: `basic`; `form` (`client_id` and `client_secret` in the content); or, with a private key as the secret, `jwt` (a JWT as bearer) or `assertion` (RFC 7523).',
    ),
    assertionFile: jwtFile().describe(
      'With `auth: assertion`: a file with a JWT that somebody else signs and renews, such as a projected Kubernetes token; read again when it changes. There is no App secret then.',
    ),
    form: members()
      .optional()
      .describe(
        'The content of that call as a form: names and text, in which `{orgId}` stands for the org id. In a file only.',
      ),
    json: members().optional().describe('The same as a JSON object, whose values are text: a number stands in quotes.'),
    field: parsedOr('orgAccessToken', parseField).describe(
      'The member of the JSON answer that is the token; dots lead into objects (`data.token`). Beside it or at the top, `expires_in`, `expiresIn` (seconds), `expires_at` or `expiresAt` (RFC 3339, or seconds or milliseconds since 1970) state its end; a life of more than a year counts as none.',
    ),
    header: parsedOr('Authorization: Bearer {token}', parseTokenHeader).describe(
      'The field that carries the token to the service: its name, and a text with `{token}` once (`X-Access-Token: {token}`, `Authorization: token {token}`). Apps cannot send that field, nor `Authorization`.',
    ),
    secretHeaders: secretHeaders()
      .describe('The same as `origin.secretHeaders`, for the call of the token endpoint, which gets no others.')
      .meta(RELOADABLE),
    lifetimeMs: durationOrAuto('100ms').describe(
      'Age ahead of which every token is replaced. `auto`: only an end that the token or the answer states counts.',
    ),
    settleTimeMs: duration('5s', '0s').describe(
      'A younger token may not be known everywhere yet. If it is rejected, the request is repeated without a mint.',
    ),
    rejectedStatuses: items(wholeNumber(300, 599))
      .prefault([401])
      .describe('Statuses that say that a token is no longer valid. If set, no other status is learned.'),
    rejectedCooldownMs: duration('10s').describe(
      'Per org: the first pause after a mint that did not help. Each further one is twice as long, up to six times this.',
    ),
    refusalTtlMs: duration('5s').describe('How long a refusal of an org by the token endpoint is remembered.'),
    mintTimeoutMs: duration('10s').describe(
      'How long a request waits for a mint, repeats included. One call takes at most four fifths of it.',
    ),
    mintConcurrency: count(32, 1, 10_000).describe('Most calls to the token endpoint at once.'),
    mintRate: rate(100, 0.1, 100_000).describe('Most calls to the token endpoint per second.'),
    warm: list(orgId).describe('Org ids whose tokens are minted at start, before the proxy reports itself ready.'),
    assertion: group('The JWT that `tokens.auth: jwt` and `assertion` sign.', {
      audience: text()
        .optional()
        .describe('Its `aud`. Not set: the URL of the endpoint for `assertion`, and none for `jwt`.'),
      keyId: text().optional().describe('Its `kid`. A certificate beside the private key is named by `x5t#S256`.'),
      algorithm: z
        .enum(ALGORITHMS, `is not one of ${ALGORITHMS.join(', ')}`)
        .optional()
        .describe('Not set: by the key. An RSA key can also sign with `PS256`.'),
    }),
  },
)

const jwt = z.strictObject({
  issuer: text().describe('The `iss` claim, exactly.'),
  audience: text().describe('One of the `aud` claim.'),
  subject: text().describe('The `sub` claim, exactly.'),
  jwks: keySetLocation().describe('The keys of the issuer: a file, or an https URL.'),
  jwksCaFile: certificatesFile().describe('PEM file with further CA certificates to trust for the URL.'),
  jwksTokenFile: PATH.optional().describe('File with a bearer token for the URL, read again for each request.'),
})

export const caller = z.strictObject({
  name: text()
    // In metrics and logs, so only plain characters.
    .regex(
      /^[a-zA-Z0-9][\w.-]{0,63}$/,
      'is not a name: 1 to 64 letters, digits or any of _ . -, beginning with a letter or digit',
    )
    .describe('Appears in the log, the metrics and on the status page.'),
  socket: parsed(parseSocketPath).optional().describe('A unix socket of its own; who may open it is this caller.'),
  keyFiles: items(callerKeyFile())
    .min(1, 'is empty: name a file')
    .optional()
    .describe('Files with keys for `X-Proxy-Key`.'),
  minterSocket: parsed(parseSocketPath)
    .optional()
    .describe('A unix socket of its own at the minter; who may open it is this caller.'),
  certificate: text()
    .regex(
      /^(dns:[a-z0-9_]([a-z0-9_.-]*[a-z0-9_])?|(?!dns:)[a-z][a-z0-9+.-]*:\/\/[^\s*]+)$/,
      'is not a name in a certificate: write spiffe://trust.domain/path, or dns: and a name in lower case',
    )
    .optional()
    .describe(
      'Name in its client certificate, exactly: `spiffe://…` or `dns:…`. Needs `listen.tls.clientCaFile`, or `minter.tls.clientCaFile`.',
    ),
  jwt: jwt.optional().describe('The JWT that the caller sends in `X-Proxy-Key`.'),
  orgs: list(parsed(parseOrgRule)).describe('Org ids that it may name; a trailing `*` stands for any ending.'),
  routes: list(parsed(parseRoutePattern)).describe(
    'Routes that it may use, written as in `routes.allow`. If empty: all that `routes.allow` lets through, except `appRoutes`.',
  ),
  tokens: flag(false).describe(
    'It may ask a minter for tokens. Needs `minter.address`, and no `routes`: a token knows no routes.',
  ),
  maxInFlight: wholeNumber(1, 1_000_000).optional().describe('Most requests at once, within `listen.maxInFlight`.'),
})

const fleet = group('Replicas that share tokens; off unless `store` is set.', {
  store: parsed(parseFleetStore)
    .optional()
    .describe(
      'Redis or Valkey server (7 or newer) through which all replicas share their tokens, sealed: `redis://host:port/db`, `rediss://…` (TLS) or `redis+unix:///path`; no password in it.',
    ),
  cluster: flag(false).describe('The store is a cluster; `store` names one of its nodes.'),
  username: text().optional().describe('ACL user at the store; without one, the password is that of the default user.'),
  passwordFile: secretFile()
    .describe('File with the password for the store, re-read when it changes.')
    .meta(RELOADABLE),
  caFile: certificatesFile().describe('PEM file with further CA certificates to trust for the store.'),
  serverName: parsed(parseServerName)
    .optional()
    .describe(
      'Name in the certificates of the store, if it is not the host of `store`: for a cluster whose nodes announce IP addresses.',
    ),
  timeoutMs: duration('100ms', '1ms', '5s').describe('Longest wait for the store; then the proxy goes on without it.'),
  prefix: text()
    // Braces would move the hash tag that keeps the keys of one org in one slot of a cluster.
    .regex(/^[\w.:-]{1,64}$/, 'is not 1 to 64 letters, digits or any of _ . : -')
    .prefault('oap')
    .describe('Begins the name of every key in the store.'),
})

const minter = group('Sidecars without the secret: a minter gives them the tokens of their Orgs. See docs/minter.md.', {
  address: parsed(parseAddress)
    .optional()
    .describe(
      'Makes this instance a minter; sidecars ask it here: `host:port` or `unix:/path`. Needs `callers`, and `minter.tls` if other machines can reach it.',
    ),
  tls: group('TLS between sidecars and minter.', {
    certFile: certificatesFile()
      .describe('PEM file with the certificate of `minter.address` and its chain.')
      .meta(RELOADABLE),
    keyFile: privateKeyFile().describe('PEM file with the private key of the certificate.').meta(RELOADABLE),
    clientCaFile: clientCaFile().describe('CA certificates (PEM) to verify those of sidecars.').meta(RELOADABLE),
  }),
  url: parsed(parseMinterUrl)
    .optional()
    .describe(
      'Makes this instance a sidecar, without `appId` and secret. It gets tokens from this minter: `https://host:port`, `unix:/path`, or `http://` to this machine.',
    ),
  keyFile: keyFile().describe('File with the key that this sidecar sends to the minter.').meta(RELOADABLE),
  jwtFile: jwtFile()
    .describe('File with the JWT that this sidecar sends to the minter, such as a service account token.')
    .meta(RELOADABLE),
  certFile: certificatesFile()
    .describe('PEM file with the certificate that this sidecar shows to the minter, and its chain.')
    .meta(RELOADABLE),
  certKeyFile: privateKeyFile().describe('PEM file with the private key of `minter.certFile`.').meta(RELOADABLE),
  caFile: certificatesFile()
    .describe('PEM file with CA certificates. If set, no other CA counts for the minter.')
    .meta(RELOADABLE),
})

const replay = group('The repeat of a request whose token was rejected.', {
  maxBodyBytes: size('64KiB', '0B', '64MiB').describe(
    'Most request content kept for a repeat after a rejected token; a request with more is not repeated. All requests together keep at most 32 MiB, or twice this if that is more.',
  ),
})

const admin = group('The admin listener: health, metrics and the status page.', {
  address: parsedOr(DEFAULT_ADMIN_ADDRESS, parseAddressOrOff).describe(
    'Its address: `host:port`, `unix:/path` or `off`.',
  ),
  allowRemote: flag(false).describe('Gives other machines the status page and purging, not only health and metrics.'),
  quit: flag(false).describe(
    'Lets `org-access-proxy stop` (`POST /quitquitquit`, from this machine only) drain and end the proxy: for jobs whose pod ends with its last container.',
  ),
})

const log = group('What is written to standard output.', {
  level: choice(['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'], 'info')
    .describe('Lowest level that is written: trace, debug, info, warn, error, fatal or silent.')
    .meta(RELOADABLE),
  requests: choice(['all', 'errors', 'off'], 'all')
    .describe('Requests with a line: all, errors (from 400) or off.')
    .meta(RELOADABLE),
  sample: rate(1, 0, 1)
    .describe('Share of the successful requests with a line, from 0 to 1; errors always get one.')
    .meta(RELOADABLE),
  format: choice(['json', 'pretty'], 'json').describe('json for machines, pretty for people; pretty is slower.'),
})

const traces = group('Spans for OpenTelemetry; off unless `endpoint` is set.', {
  endpoint: parsed(parseTracesEndpoint)
    .optional()
    .describe('URL of the collector (OTLP over HTTP) with its path, such as `http://collector:4318/v1/traces`.'),
  sample: rate(0.01, 0, 1).describe(
    'Share of the requests that leave spans, from 0 to 1. A request with a valid `traceparent` follows that instead.',
  ),
})

const shutdown = group('What happens after SIGTERM, SIGINT or SIGQUIT.', {
  delayMs: duration('0s', '0s').describe(
    'How long `/readyz` fails before the listener closes, so that load balancers notice.',
  ),
  timeoutMs: duration('10s').describe('Longest time for requests in flight to finish; then they are broken off.'),
})

export const declaration = z.strictObject({
  appId: appId.optional().describe('The App id, without `:`. A sidecar (`minter.url`) has neither App id nor secret.'),
  appSecretFile: appSecretFile().describe(
    'File with the App secret, read again when it changes: one line, whose newline is dropped, or the private key (PEM) for `tokens.auth: jwt` or `assertion`.',
  ),
  appSecret: parsed(parseAppSecret)
    .optional()
    .describe('The App secret itself, in the environment only; a file is safer.'),
  baseUrl: parsed(parseBaseUrl).describe(
    'URL of the service, without `/v2`; a path prefix is allowed, a user, query or fragment is not.',
  ),
  appRoutes: list(parsed(parseRoutePattern))
    .describe(
      'Requests that go with the credentials of the App (`tokens.auth` is `basic` or `jwt`) instead of a token, such as `"POST /v2/links"` or `"GET /v2/apps/*"`. They need no org id.',
    )
    .meta(RELOADABLE),
  callers: z
    .array(caller, 'is not a list, and only a config file can hold one')
    .min(1, 'is empty: name the callers, or remove it to admit everybody')
    .default([])
    .describe(
      'The clients that may send requests, each with its orgs and routes: see docs/callers.md. If empty, every client that can connect may name any org. In a file only.',
    )
    .meta(RELOADABLE),
  listen,
  origin,
  orgs,
  routes,
  tokens,
  fleet,
  minter,
  replay,
  admin,
  log,
  traces,
  shutdown,
})

/** The settings as the sources give them; files have been read. */
export type Settings = z.output<typeof declaration>

/** A configuration that was accepted. */
export interface Config extends Settings {
  /** Undefined for a sidecar of a minter. The secret is that of the file, or else of the environment. */
  readonly app: { readonly appId: string; readonly appSecret: Secret } | undefined
  /** `tokens.rejectedStatuses` is not set, so other statuses are learned. */
  readonly learnsStatuses: boolean
  /** Undefined unless `origin.proxyFromEnv`. */
  readonly proxies: ProxyVariables | undefined
  /** They share what the system gives to a process, such as descriptors. */
  readonly instances: number
}

/** The proxies that the environment names. */
export interface ProxyVariables {
  /** A URL. It may contain a password. */
  readonly httpProxy: Secret | undefined
  readonly httpsProxy: Secret | undefined
  readonly noProxy: string | undefined
}
