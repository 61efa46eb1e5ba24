/** All settings, declared once: the check, the types, the JSON Schema, the reference file and the tables come from here. */

import { z } from 'zod'
import type { OrgId } from '../http/org-id.ts'
import type { Secret } from '../secret.ts'
import type { ProxyVariables } from '../undici.ts'
import { parseAddress } from './address.ts'
import { parseBaseUrl } from './base-url.ts'
import { parseRoutePattern } from './route-pattern.ts'
import {
  parseAdminAddress,
  parseAppId,
  parseFileMode,
  parseHostName,
  parseOrgPattern,
  parseOrigin,
} from './setting-parsers.ts'
import { choice, count, duration, flag, list, parsed, rate, size, text } from './setting-types.ts'

const listen = z
  .strictObject({
    address: parsed(text(), parseAddress)
      .prefault('localhost:8080')
      .describe(
        'Where apps connect: `host:port` or `unix:/path`; `localhost` means 127.0.0.1 and, where there is one, ::1; port 0 picks a free one and logs it.',
      ),
    allowRemote: flag()
      .prefault(false)
      .describe('Permits an `address` that other machines can reach; whoever reaches it acts as the App.'),
    hosts: list(parsed(text(), parseHostName))
      .prefault([])
      .describe(
        'Further names accepted in `Host`, beside localhost, 127.0.0.1, [::1] and the host of `address`; a lone `*` accepts all and gives up the protection against rebound names.',
      ),
    socketMode: parsed(text(), parseFileMode)
      .prefault('0660')
      // In YAML it may stand without quotes, where an editor takes it for a number.
      .meta({
        description: 'File mode of a unix socket, in octal with its leading zero.',
        type: ['string', 'integer'],
      }),
    callerKeyFile: text()
      .optional()
      .describe('File with a key that every request must then bring in `X-Proxy-Key`; it goes no further.'),
    refuseForwarded: flag()
      .prefault(true)
      .describe(
        'Refuses requests that carry `X-Forwarded-For`, `Forwarded` or `X-Real-IP`, because they came through another proxy and so from elsewhere.',
      ),
    origins: list(parsed(text(), parseOrigin))
      .prefault([])
      .describe('Browser origins let through, such as `https://app.example.com`; pages of all others are refused.'),
    maxConnections: count(1, 1_000_000).prefault(4096).describe('Client connections held open at once.'),
    maxInFlight: count(1, 1_000_000)
      .prefault(2048)
      .describe('Requests worked on at once; the next one gets 503 `overloaded`.'),
    headersTimeout: duration().prefault('10s').describe('Time for a client to send a whole request head, else 408.'),
    idleTimeout: duration()
      .prefault('60s')
      .describe(
        'Longest silence of a client inside a request content, or while it takes no bytes of its response; a slow but moving transfer of any size goes through.',
      ),
    keepAliveTimeout: duration()
      .prefault('65s')
      .describe('How long an idle client connection is kept; keep it above the idle timeout of the clients.'),
  })
  .describe('The side towards the apps.')

const origin = z
  .strictObject({
    connections: count(1, 65_535).prefault(256).describe('Most connections to the service at once.'),
    connectTimeout: duration().prefault('5s').describe('Time for TCP and TLS together.'),
    responseTimeout: duration()
      .prefault('60s')
      .describe('Time from the sent request to the final response head, else 504 `http_response_timeout`.'),
    idleTimeout: duration().prefault('5m').describe('Longest silence of the service inside a response content.'),
    caFile: text()
      .optional()
      .describe('PEM file with further CA certificates to trust, beside those that Node trusts.'),
    allowInsecure: flag()
      .prefault(false)
      .describe(
        'Permits plain `http` in `baseUrl` to another machine; the secret and all tokens then travel readable.',
      ),
    proxyFromEnv: flag()
      .prefault(false)
      .describe('Honours `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY`, which are ignored otherwise.'),
  })
  .describe('The side towards the service.')

const orgs = z
  .strictObject({
    allow: list(text())
      .prefault([])
      .describe('If not empty, only these org ids are served; it bounds what a hostile caller can ask for.'),
    pattern: parsed(text(), parseOrgPattern)
      .prefault('^[\\w-][\\w.~:@+=-]{0,127}$')
      .describe(
        'Regular expression that a whole org id must match; `.`, `..`, white space, controls, non-ASCII and any of `/ \\ ? # % ,` are refused whatever it says.',
      ),
  })
  .describe('Which org ids are taken.')

const routes = z
  .strictObject({
    allow: list(parsed(text(), parseRoutePattern))
      .prefault([])
      .describe(
        'If not empty, only these routes are forwarded: `"METHOD /path"`, `*` for any method, a trailing `/*` for everything below.',
      ),
    allowTokenEndpoint: flag()
      .prefault(false)
      .describe('Lets apps call the token endpoint themselves, and so see raw tokens.'),
  })
  .describe('Which requests are forwarded.')

const tokens = z
  .strictObject({
    maxOrgs: count(1, 1_000_000)
      .prefault(10_000)
      .describe('Tokens kept; beyond it the least recently used one is evicted and minted anew when needed.'),
    lifetime: duration(1_000)
      .prefault('5m')
      .describe('Assumed life of a token until something better is known; the service states none.'),
    minLifetime: duration(100).prefault('10s').describe('The learned lifetime is never taken to be shorter.'),
    maxLifetime: duration(1_000).prefault('1h').describe('The learned lifetime is never taken to be longer.'),
    learn: flag().prefault(true).describe('Learns the lifetime from what the service rejects.'),
    rejectedStatuses: list(count(400, 599))
      .prefault([401])
      .describe('Statuses of the service that say "this token is no longer good".'),
    rejectedCooldown: duration()
      .prefault('10s')
      .describe('Per org, at most one mint is caused by a rejected token in this time.'),
    refusalTtl: duration()
      .prefault('5s')
      .describe(
        'How long it is remembered that the token endpoint refused an org, which spares it a repeated question.',
      ),
    mintTimeout: duration().prefault('5s').describe('Time for a whole mint, retries included.'),
    mintConcurrency: count(1, 10_000).prefault(32).describe('Most calls to the token endpoint at once.'),
    mintRate: rate(0.1, 100_000).prefault(100).describe('Most calls to the token endpoint per second.'),
    warm: list(text())
      .prefault([])
      .describe('Org ids whose tokens are minted at start, before the proxy reports itself ready.'),
  })
  .describe('How Org Access Tokens are obtained, kept and renewed.')

const replay = z
  .strictObject({
    maxBody: size(0, 64 * 1_048_576)
      .prefault('64KiB')
      .describe(
        'Request content kept for the one repeat after a rejected token; a longer content is streamed and not repeated.',
      ),
  })
  .describe('The repeat of a request whose token was rejected.')

const admin = z
  .strictObject({
    address: parsed(text(), parseAdminAddress)
      .prefault('localhost:9090')
      .describe('Where health, metrics and the status page answer: `host:port`, `unix:/path`, or `off`.'),
    allowRemote: flag()
      .prefault(false)
      .describe('On an address that other machines can reach, opens more than health and metrics.'),
  })
  .describe('The admin listener.')

const log = z
  .strictObject({
    level: choice(['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'])
      .prefault('info')
      .describe('Least level written: trace, debug, info, warn, error, fatal or silent.'),
    requests: choice(['all', 'errors', 'off'])
      .prefault('all')
      .describe('Which requests get a line: all, errors (status 400 and above) or off.'),
    format: choice(['json', 'pretty'])
      .prefault('json')
      .describe('json for machines, pretty for people; pretty is slower.'),
  })
  .describe('What is written to standard output.')

const shutdown = z
  .strictObject({
    delay: duration(0)
      .prefault('0s')
      .describe('Time to report not ready before the listener closes, so that load balancers notice.'),
    timeout: duration().prefault('10s').describe('Time for requests in flight to finish; then they are broken off.'),
  })
  .describe('The way down after SIGTERM or SIGINT.')

export const declaration = z.strictObject({
  appId: parsed(text(), parseAppId).describe('The App id; without `:`, which would make Basic credentials ambiguous.'),
  appSecretFile: text()
    .optional()
    .describe(
      'File with the App secret; exactly one trailing newline is dropped; it is watched and re-read when it changes.',
    ),
  appSecret: text()
    .optional()
    .describe(
      'The App secret itself, from the environment only; a file is safer, because an environment can be read from outside.',
    ),
  baseUrl: parsed(text(), parseBaseUrl).describe(
    'Where the service is: an http(s) URL, with a path prefix if there is one; no user, query or fragment; plain `http` only to this machine.',
  ),
  appRoutes: list(parsed(text(), parseRoutePattern))
    .prefault([])
    .describe(
      'Requests made as the bare App with Basic credentials, such as the one for a link URL: `"POST /v2/links"`, `"GET /v2/apps/*"`; they need no org id.',
    ),
  listen,
  origin,
  orgs,
  routes,
  tokens,
  replay,
  admin,
  log,
  shutdown,
})

/** The settings, each parsed by itself. */
export type DeclaredSettings = z.output<typeof declaration>

/** Nested like the keys; durations in milliseconds, sizes in bytes, files read. */
export interface Config extends Omit<DeclaredSettings, 'appSecret' | 'listen' | 'origin' | 'orgs' | 'tokens'> {
  readonly appSecret: Secret
  readonly listen: DeclaredSettings['listen'] & { readonly callerKey: Secret | undefined }
  readonly origin: DeclaredSettings['origin'] & {
    /** The content of `caFile`. */
    readonly caCertificates: string | undefined
    /** Undefined unless `proxyFromEnv`. */
    readonly proxies: ProxyVariables | undefined
  }
  readonly orgs: Omit<DeclaredSettings['orgs'], 'allow'> & { readonly allow: readonly OrgId[] }
  readonly tokens: Omit<DeclaredSettings['tokens'], 'warm'> & { readonly warm: readonly OrgId[] }
}
