/** What the parts say about bad states that last, in words that tell what to do. */

import type { Metrics } from '../admin/metrics.ts'
import type { ServiceTrouble } from '../admin/service-troubles.ts'
import type { WarningChecks } from '../admin/warnings.ts'
import * as clock from '../clock.ts'
import type { Config } from '../config/schema.ts'
import { causeForOperator, type Failure, PROBLEMS, remedyOf } from '../errors.ts'
import type { Fleet } from '../fleet/fleet.ts'
import type { Gateway } from '../gateway/exchange.ts'
import type { Names } from '../lookup.ts'
import type { OrgId } from '../org-id.ts'
import { endpointText } from '../token/token-request.ts'
import type { Traces } from '../traces/traces.ts'
import type { Certificates } from './certificates.ts'
import type { Entrance } from './entrance.ts'
import type { Log } from './log.ts'
import type { ConfigReload } from './reload.ts'
import type { LiveRules } from './rules.ts'
import type { TokenSide } from './tokens.ts'

/** The parts whose states are told. */
export interface WatchedParts {
  readonly config: Config
  readonly side: TokenSide
  readonly apps: Entrance
  readonly minter: Entrance | undefined
  readonly rules: LiveRules
  readonly log: Log
  readonly reload: ConfigReload
  readonly fleet: Fleet | undefined
  readonly traces: Traces | undefined
  readonly names: Names
  readonly certificates: Certificates
  readonly metrics: Metrics
  readonly tunnels: Gateway['tunnels']
}

export function warningsOf(parts: WatchedParts): WarningChecks {
  const { config, side, apps, minter, rules, log, reload, fleet, traces, names, certificates, metrics, tunnels } = parts
  const lasting = (kind: ServiceTrouble, told: (count: string) => string) => () => {
    const trouble = metrics.troubles.lasting(kind, clock.now())
    if (trouble === undefined) return undefined
    const { count, requests, lastedMs, leftMs } = trouble
    const since = clock.day() - lastedMs
    return { text: told(`for ${count} of the last ${requests} requests`), since, leftMs }
  }
  return {
    orgs_paused() {
      const isToldElsewhere = side.seemCredentialsRejected
      const told = side.budget.troubled.filter(({ error }) => error.trouble !== 'credentials' || !isToldElsewhere)
      if (told.length === 0) return undefined
      const call = endpointText({ baseUrl: config.baseUrl, endpoint: config.tokens.endpoint })
      const groups = groupedByCause(told)
      const causes = [...groups].slice(0, MAX_NAMED).map(([cause, { orgs, since }]) => {
        const place = side.minter !== undefined || cause.includes(call) ? '' : ` The call is ${call}.`
        return `No new token for ${named(orgs)} since ${new Date(since).toISOString()}: ${cause}${place}`
      })
      const others = [...groups.values()].slice(MAX_NAMED).reduce((sum, { orgs }) => sum + orgs.length, 0)
      if (others > 0) causes.push(`No new token for ${others} more, for other causes.`)
      const leftMs = told.reduce((longest, each) => Math.max(longest, each.leftMs), 0)
      return {
        text: `${causes.join(' ')} ${RESUME}`,
        since: Math.min(...[...groups.values()].map((each) => each.since)),
        leftMs: leftMs > 0 ? leftMs : undefined,
      }
    },
    mint_pace_reduced() {
      const { pace } = side.budget
      if (pace === 1) return undefined
      return `The token endpoint limits the rate of calls, so the proxy makes ${Math.round(pace * 100)} % of the calls that tokens.mintRate allows. If this comes again, set tokens.mintRate to what the service allows.`
    },
    app_credentials_rejected() {
      if (!side.seemCredentialsRejected) return undefined
      if (side.minter !== undefined) {
        return 'The token endpoint rejects the App credentials of the minter. Check appId and the App secret at the minter.'
      }
      const note = side.budget.troubled.find(({ error }) => error.trouble === 'credentials')?.error.note
      const says = note === undefined ? '' : ` ${note}`
      const call = endpointText({ baseUrl: config.baseUrl, endpoint: config.tokens.endpoint })
      const before = side.budget.isAppRevoked
        ? ' It accepted them before, so they may have been revoked. Tokens that are held go on working.'
        : ''
      return `The token endpoint rejects the App credentials: it answers 401, or 400 with invalid_client.${before}${says} Check appId, the App secret, and that they are for ${call}.`
    },
    secret_refused() {
      return side.secretProblem
    },
    fresh_tokens_rejected() {
      const orgs: OrgId[] = []
      // Asked every few seconds, so nothing is made for each of perhaps a hundred thousand orgs.
      side.tokens.orgs.forEach(({ hasNoGoodToken }, org) => {
        if (hasNoGoodToken) orgs.push(org)
      })
      if (orgs.length === 0) return undefined
      return `The service rejected new tokens of ${named(orgs)}. If other requests of the Org succeed, it may not use the routes that are rejected: see the errors below. Otherwise, check that baseUrl leads to the service that the tokens are for.`
    },
    tokens_ended_young() {
      const now = clock.now()
      let until = 0
      const orgs: OrgId[] = []
      side.tokens.orgs.forEach(({ rivalUntil }, org) => {
        if (rivalUntil <= now) return
        orgs.push(org)
        until = Math.max(until, rivalUntil)
      })
      if (orgs.length === 0) return undefined
      const text = `New tokens of ${named(orgs)} were accepted, and rejected seconds later, again and again: another proxy mints for the same Orgs, and each new token ends the one before. Have all proxies share tokens through a store (fleet.store), or take them from one minter (minter.url). During a rolling update, end the former instance.`
      return { text, leftMs: until - now }
    },
    rejection_status_learned() {
      const learned = new Map<OrgId, number>()
      const suspected = new Map<OrgId, number>()
      side.tokens.orgs.forEach(({ learnedStatus, suspectedStatus }, org) => {
        if (learnedStatus !== undefined) learned.set(org, learnedStatus)
        else if (suspectedStatus !== undefined) suspected.set(org, suspectedStatus)
      })
      const told = [...new Set([...learned.values(), ...suspected.values()])].sort().join(', ')
      const texts = [
        learned.size > 0 &&
          `The service ends tokens of ${named([...learned.keys()])} with another status than 401, as a new token has shown. Clients got it four times, and POSTs get it each time. Set tokens.rejectedStatuses to 401, ${told}.`,
        suspected.size > 0 &&
          `The service may end tokens of ${named([...suspected.keys()])} with another status than 401: twice, a row of POSTs got it, and the next one with a new token was accepted. If it does, set tokens.rejectedStatuses to 401, ${told}.`,
      ].filter((text) => text !== false)
      return texts.length === 0 ? undefined : texts.join(' ')
    },
    route_rejected() {
      const isWell = (org: OrgId) => (side.tokens.orgs.peek(org)?.acceptedAt ?? -1) >= 0
      const routes = metrics.rejections.routes(isWell)
      if (routes.length === 0) return undefined
      const told = routes.map(
        ({ route, status, rejections, org }) =>
          `${route} (${status}, ${rejections} times in a row, the last for ${org})`,
      )
      return `The service rejects every token on some routes, while it accepts those of the same Orgs on others: ${named(told)}. Ask the service what the App may do there. Until then, have the apps stop, or refuse the routes with routes.allow: these requests cause useless mints.`
    },
    connections_closed_idle: lasting(
      'idle',
      (count) =>
        `The service closed an idle connection while a request was sent on it, ${count}. Uploads and POSTs fail so. Set origin.keepAliveTimeout below the idle timeout of the service.`,
    ),
    answers_broken: lasting(
      'broken',
      (count) =>
        `Answers of the service were cut off, or no HTTP, ${count}. The errors below name routes and reasons: tell the service.`,
    ),
    service_limits: lasting(
      'limited',
      (count) =>
        `The service answered 429 Too Many Requests, ${count}. Have the apps wait for Retry-After, and send fewer requests.`,
    ),
    tokens_often_rejected: lasting(
      'repeated',
      (count) =>
        `The service rejected a token and accepted a repeat, ${count}. If the same token was accepted again, one of its back ends is out of order: tell the service. If only a new one was, set tokens.lifetime below the life of a token.`,
    ),
    upload_not_kept() {
      const upload = metrics.rejections.upload(clock.now())
      if (upload === undefined) return undefined
      const text = `In the last hour, the token of an upload had ended, and not all of its content was kept to be sent again (${upload.route}): its app got the rejection. Set tokens.lifetime below the life of a token, or raise replay.maxBody.`
      return { text, leftMs: upload.leftMs }
    },
    tunnels_left() {
      const now = clock.now()
      const left = [...tunnels].filter(({ leftAt = now }) => now - leftAt > LEAVING_MS)
      if (left.length === 0) return undefined
      const told = left.map(
        ({ record: { orgId = 'the App', path, requestId } }) => `${path} for ${orgId} (request ${requestId})`,
      )
      return `One side of these WebSockets has ended, and the other has not: ${named(told)}. Correct the side that is left: it must end, too, when the other closes.`
    },
    configuration_refused() {
      if (reload.problems.length === 0) return undefined
      // `check` knows nothing of the running settings, and may find the file good.
      const [first, ...others] = reload.problems
      const more = others.length === 0 ? '' : `; and ${others.length} more, which the log has`
      return `The changed configuration was refused, and the one before it is in use: ${first}${more}.`
    },
    restart_pending() {
      if (reload.pending.length === 0) return undefined
      return `Changed settings need a restart: ${reload.pending.join(', ')}. Until then, their former values are in use.`
    },
    key_set_unavailable() {
      const { failingKeySets } = rules
      if (failingKeySets.length === 0) return undefined
      return failingKeySets
        .map(({ url, problem, isFormerInUse }) => {
          const effect = isFormerInUse
            ? 'The last good one stays in use, and new keys are unknown'
            : 'Until it is here, callers whose JWTs need it get 503 caller_keys_unavailable'
          return `The key set of callers at ${url} ${problem}. ${effect}. Correct its server, jwks, jwksCaFile or jwksTokenFile.`
        })
        .join(' ')
    },
    fleet_store_lost() {
      if (fleet?.store.status.state !== 'lost') return undefined
      return `The store of the fleet (fleet.store) cannot be used: ${fleet.store.status.reason}. Until it is back, this replica mints for itself.`
    },
    fleet_password_rejected() {
      if (fleet?.store.status.state !== 'available' || fleet.store.status.reason === '') return undefined
      return `The changed password of fleet.passwordFile cannot be used: ${fleet.store.status.reason}. The connection from before is in use until it ends.`
    },
    spans_dropped() {
      if (traces?.queue.isDropping !== true) return undefined
      const { dropped, problem = 'it does not take them as fast as they come' } = traces.queue
      return `The collector at traces.endpoint does not get all spans, and ${dropped} were dropped since the start: ${problem}. Requests do not wait for it. Check its address and its log.`
    },
    name_unresolved() {
      if (names.failing.length === 0) return undefined
      const failing = names.failing.map(({ name, problem, isKnown }) => {
        const effect = isKnown ? 'its last good addresses are used' : 'no address of it is known'
        return `The look-up of ${name} ${problem}: ${effect}.`
      })
      return `${failing.join(' ')} Check the resolver of this machine and the name.`
    },
    minter_lost() {
      const problem = side.minter?.problem
      if (problem === undefined) return undefined
      return `No token can be had: the minter of this sidecar ${problem}. Tokens that are held go on working. Check minter.url, minter.caFile, and the minter.`
    },
    minter_refused() {
      const code = side.minter?.refusal
      if (code === undefined) return undefined
      return `No token can be had: the minter answers ${PROBLEMS[code].status} ${code}. Tokens that are held go on working. ${remedyOf(code, true).detail}`
    },
    connections_refused() {
      const refusing = [apps, minter].flatMap((entrance) => entrance?.listener.limit ?? [])
      const limit = refusing.find(({ isRefusing }) => isRefusing)
      if (limit === undefined) return undefined
      const { most, setting } = limit
      return `Client connections are refused, or closed while idle, because ${most} are open. Find the clients that leave them open, or raise ${setting}.`
    },
    tls_certificate() {
      const refused = reload.problems.filter((line) => CERTIFICATE_SETTING.test(line))
      if (refused.length > 0) {
        return `A changed certificate or key is not in use, but the one before it: ${refused.join('; ')}.`
      }
      const { ending } = certificates
      return ending.length === 0 ? undefined : `${ending.join(' ')} Put new ones into their files.`
    },
    cookies_dropped() {
      const leftMs = apps.reception.cookieDroppedAt + COOKIE_EPISODE_MS - clock.now()
      if (leftMs <= 0) return undefined
      const text =
        'Apps send cookies, which the proxy drops, because the cookie jar of an app mixes the sessions of all Orgs. If an app needs them, and has a jar for each Org, set origin.sendCookies.'
      return { text, leftMs }
    },
    log_lines_dropped() {
      const { problem } = log
      if (!log.isDropping && problem === undefined) return undefined
      const cause =
        problem === undefined || problem === 'EAGAIN'
          ? 'nobody reads stdout'
          : (LOG_PROBLEMS[problem] ?? `stdout fails with ${problem}`)
      const lost = log.droppedLines === 0 ? 'wait' : `were dropped, ${log.droppedLines} since the start`
      return `Lines of the log ${lost}, because ${cause}. Correct that, or set log.requests or log.sample to write less.`
    },
  }
}

/** In one pass: a wrong secret makes thousands of them, and this is asked every two seconds. */
export function groupedByCause(
  troubled: readonly { readonly org: OrgId; readonly error: Failure; readonly since: number }[],
) {
  const groups = new Map<string, { readonly orgs: OrgId[]; since: number }>()
  for (const { org, error, since } of troubled) {
    const cause = causeForOperator(error) ?? ''
    const group = groups.get(cause) ?? { orgs: [], since }
    groups.set(cause, group)
    group.orgs.push(org)
    group.since = Math.min(group.since, since)
  }
  return groups
}

const LOG_PROBLEMS: Readonly<Record<string, string>> = {
  ENOSPC: 'the disk of stdout is full (ENOSPC)',
  EPIPE: 'the reader of stdout has gone (EPIPE)',
}

const CERTIFICATE_SETTING = /^(?:listen\.tls|minter\.tls|minter|origin)\.(?:cert|certKey|key|clientCa)File\b/
/** A side that ends with the other needs less. */
const LEAVING_MS = 2_000
const COOKIE_EPISODE_MS = 3_600_000
const MAX_NAMED = 3

function named(orgs: readonly string[]): string {
  return orgs.slice(0, MAX_NAMED).join(', ') + (orgs.length > MAX_NAMED ? ` and ${orgs.length - MAX_NAMED} more` : '')
}

const RESUME = 'To try again at once: "org-access-proxy resume".'
