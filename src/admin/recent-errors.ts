/** The latest errors, one entry per code and remedy, so that a flood of one code does not hide the others. */

import { type ErrorCode, type Fault, RESPONSE_NOT_READ, remedyOf, titleOf } from '../errors.ts'
import { NOT_KEPT, type RequestRecord, wasNotKept } from '../gateway/request-record.ts'

interface Remedy {
  readonly fault: Fault
  readonly detail: string
}

/** Answers of the service that are passed on, and count as errors. */
const OF_SERVICE = {
  service_error: {
    fault: 'service',
    detail: 'The proxy passed a 5xx on unchanged. Look at the service; its log may hold the request id.',
  },
  service_limited: {
    fault: 'service',
    detail:
      'The service limits the rate of requests, and the proxy passed its 429 on unchanged. Have the apps wait as it says, or ask for a higher limit.',
  },
  service_unauthorized: {
    fault: 'service',
    detail:
      'A new token did not or would not help. Check what the Org may do at the service. If it rejects good tokens, tokens.settleTime may be too short.',
  },
  upload_not_repeated: {
    fault: 'service',
    detail:
      'The token had ended, and the content was not kept for a repeat with a new one. The app can send it again. Set tokens.lifetime below the life of a token, or raise replay.maxBody.',
  },
} as const satisfies Readonly<Record<string, Remedy>>

type RecentErrorCode = ErrorCode | keyof typeof OF_SERVICE

interface Entry {
  readonly code: RecentErrorCode
  readonly title: string
  /** Since the start. */
  count: number
  /** The last few requests, newest first. */
  examples: readonly ReturnType<typeof excerpt>[]
}

const instead = (code: ErrorCode, detail: string, isOfMinter = false) => {
  const ofClient = remedyOf(code, isOfMinter)
  return [ofClient, { fault: ofClient.fault, detail }] as const
}

/** For the operator, where the advice to the client is none. */
const FOR_OPERATOR: ReadonlyMap<Remedy, Remedy> = new Map([
  instead(
    'overloaded',
    'Find out why the service or the token endpoint is slow, or raise the limit that the last request names.',
  ),
  instead('token_endpoint_unavailable', 'Correct the cause that the last request names. The proxy goes on trying.'),
  instead(
    'token_endpoint_rate_limited',
    'Set tokens.mintRate to what the token endpoint allows, use fewer Orgs at once, or ask for a higher limit.',
  ),
  instead(
    'token_endpoint_rate_limited',
    'At the minter, set tokens.mintRate to what the token endpoint allows, or ask for a higher limit.',
    true,
  ),
  instead(
    'token_endpoint_timeout',
    'Find out why the token endpoint is slow, or raise tokens.mintTimeout, or the limit that the last request names.',
  ),
  instead(
    'token_endpoint_timeout',
    'Find out why the token endpoint is slow, or raise tokens.mintTimeout there.',
    true,
  ),
  instead(
    'caller_keys_unavailable',
    'Correct the server of the key set, jwks, jwksCaFile or jwksTokenFile of callers.',
  ),
  instead(
    'caller_keys_unavailable',
    'The minter has no key set for the JWT of minter.jwtFile: correct jwks of callers at the minter.',
    true,
  ),
  instead(
    'draining',
    'The proxy was stopping, or a reload took a caller away. If requests in flight were cut off, raise shutdown.timeout.',
  ),
])
/** A client that is told so does not read it. */
const NOT_READ: Remedy = {
  fault: 'app',
  detail: 'Read the response without long pauses; listen.idleTimeout is the limit.',
}

/** By the rule that a request broke: what its client speaks, where that is not HTTP/1.1. */
const SPEAKS: Readonly<Record<string, Remedy>> = {
  tls: {
    fault: 'app',
    detail: 'The client speaks TLS to a port without: have it call http://, or set listen.tls.certFile.',
  },
  http2: { fault: 'app', detail: 'The client speaks HTTP/2 without asking: have it speak HTTP/1.1.' },
}

const MAX_EXAMPLES = 3
const MAX_PATH_CHARACTERS = 200

export class RecentErrors {
  /** By what to do: a code of the minter may need another remedy than the same of the proxy. */
  readonly #entries = new Map<Remedy, Entry>()

  /** True if it counts as an error. */
  requestEnded(record: RequestRecord): boolean {
    const code = codeOf(record)
    if (code === undefined) return false
    const remedy = remedyFor(code, record)
    const where = record.isOfMinter ? ' at the minter' : ''
    const entry = this.#entries.get(remedy) ?? { code, title: titleOf(code) + where, count: 0, examples: [] }
    this.#entries.set(remedy, entry)
    entry.count++
    entry.examples = [excerpt(record), ...entry.examples].slice(0, MAX_EXAMPLES)
    return true
  }

  totals(): Record<Fault, number> {
    const totals = { proxy: 0, service: 0, app: 0 }
    for (const [{ fault }, { count }] of this.#entries) totals[fault] += count
    return totals
  }

  /** The latest first. `now` is on the monotonic clock of the records. */
  reports(now: number) {
    const reports = Array.from(this.#entries, ([remedy, entry]) => reportOf(remedy, entry, now))
    return reports.sort((a, b) => a.lastAgoMs - b.lastAgoMs)
  }
}

const isOfService = (code: RecentErrorCode): code is keyof typeof OF_SERVICE => code in OF_SERVICE

function remedyFor(code: RecentErrorCode, { reason, isOfMinter }: RequestRecord): Remedy {
  if (isOfService(code)) return OF_SERVICE[code]
  if (reason === RESPONSE_NOT_READ) return NOT_READ
  if (code === 'request_invalid') return SPEAKS[reason ?? ''] ?? remedyOf(code, isOfMinter)
  const remedy = remedyOf(code, isOfMinter)
  return FOR_OPERATOR.get(remedy) ?? remedy
}

/** Undefined for a request that went well, as far as the proxy can tell, and for a client that left. */
function codeOf(record: RequestRecord): RecentErrorCode | undefined {
  const { code, status } = record
  if (wasNotKept(record)) return 'upload_not_repeated'
  if (code !== undefined) return code === 'client_closed' ? undefined : code
  if (status === 401) return 'service_unauthorized'
  if (status === 429) return 'service_limited'
  return status >= 500 ? 'service_error' : undefined
}

/** A copy, because the record keeps the whole exchange in memory. */
function excerpt(record: RequestRecord) {
  const { requestId, orgId, method, path, status, detail, endedAt } = record
  const reason = wasNotKept(record) ? NOT_KEPT : record.reason
  return { requestId, orgId, method, path: path.slice(0, MAX_PATH_CHARACTERS), status, reason, detail, endedAt }
}

function reportOf({ fault, detail: remedy }: Remedy, { code, title, count, examples }: Entry, now: number) {
  const shown = examples.map(({ endedAt, ...rest }) => ({ ...rest, agoMs: now - endedAt }))
  const [last] = shown
  return {
    code,
    kind: fault,
    title,
    /** The cause of the last one, if it is known more closely, and the remedy. */
    detail: last?.detail === undefined ? remedy : `${last.detail} ${remedy}`,
    count,
    lastAgoMs: last?.agoMs ?? 0,
    examples: shown,
  }
}
