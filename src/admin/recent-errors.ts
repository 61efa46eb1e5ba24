/** The latest errors, one entry per code, so that a flood of one code does not hide the others. */

import type { ErrorCode } from '../errors.ts'
import { PROBLEMS } from '../http/problem.ts'
import type { RequestRecord } from '../http/request-record.ts'

/** A problem code of the proxy; for answers of the service, `service_error` (5xx) or `service_unauthorized` (401). */
type RecentErrorCode = ErrorCode | keyof typeof SERVICE_ANSWERS

/** Who has to do something: the operator of the proxy, the service, or the app that sent the request. */
export type ErrorKind = 'proxy' | 'service' | 'app'

export interface ErrorReport {
  readonly code: RecentErrorCode
  readonly kind: ErrorKind
  readonly title: string
  /** The cause of the last one, if it is known more closely, and the remedy. */
  readonly detail: string
  /** Since the start. */
  readonly count: number
  readonly lastAgoMs: number
  /** Orgs concerned, the latest first; at most `MAX_ORGS_SHOWN`. */
  readonly orgs: readonly OrgErrors[]
  /** Number of orgs concerned, at most `MAX_ORGS_KEPT`. */
  readonly orgCount: number
  /** The last few requests, newest first. */
  readonly examples: readonly ErrorExample[]
}

interface OrgErrors {
  readonly org: string
  readonly count: number
}

export interface ErrorExample extends Omit<Kept, 'endedAt'> {
  readonly agoMs: number
}

type Kept = Pick<RequestRecord, 'requestId' | 'orgId' | 'method' | 'path' | 'status' | 'reason' | 'detail' | 'endedAt'>

interface Entry {
  count: number
  /** Newest first. */
  examples: readonly Kept[]
  /** Errors by org, the latest last. */
  readonly orgs: Map<string, number>
}

const MAX_EXAMPLES = 3
const MAX_PATH_CHARACTERS = 200
const MAX_ORGS_KEPT = 100
const MAX_ORGS_SHOWN = 5

const SERVICE_ANSWERS = {
  service_error: {
    title: 'The service answered with a 5xx status',
    detail: 'The proxy passed the response on unchanged. Look at the service; its log may hold the request id.',
  },
  service_unauthorized: {
    title: 'The service answered 401, and a new token did not or would not help',
    detail: 'Check what the Org may do at the service. If it rejects good tokens, tokens.settleTime may be too short.',
  },
} as const

/** Refused requests are the app's, with these exceptions; all other failures are the service's. */
const OURS: ReadonlySet<ErrorCode> = new Set([
  'overloaded',
  'draining',
  'app_credentials_rejected',
  'proxy_internal_error',
])

/** Undefined for a request that went well, as far as the proxy can tell, and for a client that left. */
export function errorKindOf({ code, status }: Pick<RequestRecord, 'code' | 'status'>): ErrorKind | undefined {
  if (code === undefined) return status >= 500 || status === 401 ? 'service' : undefined
  if (code === 'client_closed') return undefined
  if (OURS.has(code)) return 'proxy'
  return PROBLEMS[code].status < 500 || code === 'proxy_loop_detected' || code === 'http_version_refused'
    ? 'app'
    : 'service'
}

export class RecentErrors {
  readonly #entries = new Map<RecentErrorCode, Entry>()

  requestEnded(record: RequestRecord): void {
    const code = codeOf(record)
    if (code === undefined) return
    let entry = this.#entries.get(code)
    if (entry === undefined) {
      entry = { count: 0, examples: [], orgs: new Map() }
      this.#entries.set(code, entry)
    }
    entry.count++
    entry.examples = [excerpt(record), ...entry.examples].slice(0, MAX_EXAMPLES)
    if (record.orgId !== undefined) countOrg(entry.orgs, record.orgId)
  }

  /** The latest first. `now` is on the monotonic clock of the records. */
  reports(now: number): ErrorReport[] {
    const latestFirst = [...this.#entries].sort(([, a], [, b]) => lastAt(b) - lastAt(a))
    return latestFirst.map(([code, entry]) => reportOf(code, entry, now))
  }
}

function codeOf({ code, status }: Pick<RequestRecord, 'code' | 'status'>): RecentErrorCode | undefined {
  if (code !== undefined) return code === 'client_closed' ? undefined : code
  if (status === 401) return 'service_unauthorized'
  return status >= 500 ? 'service_error' : undefined
}

function isAnswerOfService(code: RecentErrorCode): code is keyof typeof SERVICE_ANSWERS {
  return Object.hasOwn(SERVICE_ANSWERS, code)
}

/** Moves the org to the end, and drops the first one if there are too many. */
function countOrg(orgs: Map<string, number>, org: string): void {
  const count = (orgs.get(org) ?? 0) + 1
  orgs.delete(org)
  orgs.set(org, count)
  const [oldest] = orgs.keys()
  if (orgs.size > MAX_ORGS_KEPT && oldest !== undefined) orgs.delete(oldest)
}

/** A copy, because the record keeps the whole exchange in memory. */
function excerpt({ requestId, orgId, method, path, status, reason, detail, endedAt }: RequestRecord): Kept {
  return { requestId, orgId, method, path: path.slice(0, MAX_PATH_CHARACTERS), status, reason, detail, endedAt }
}

function lastAt({ examples }: Entry): number {
  return examples[0]?.endedAt ?? 0
}

function reportOf(code: RecentErrorCode, { count, examples, orgs }: Entry, now: number): ErrorReport {
  const { title, detail } = isAnswerOfService(code) ? SERVICE_ANSWERS[code] : PROBLEMS[code]
  const latestOrgs = [...orgs].reverse().slice(0, MAX_ORGS_SHOWN)
  const shown = examples.map(({ endedAt, ...rest }) => ({ ...rest, agoMs: Math.max(0, Math.round(now - endedAt)) }))
  return {
    code,
    kind: isAnswerOfService(code) ? 'service' : (errorKindOf({ code, status: 0 }) ?? 'app'),
    title,
    detail: shown[0]?.detail === undefined ? detail : `${shown[0].detail} ${detail}`,
    count,
    lastAgoMs: shown[0]?.agoMs ?? 0,
    orgs: latestOrgs.map(([org, orgErrors]) => ({ org, count: orgErrors })),
    orgCount: orgs.size,
    examples: shown,
  }
}
