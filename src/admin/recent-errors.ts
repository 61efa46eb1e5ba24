/** The latest errors, one entry per code, so that a flood of one code does not hide the others. */

import type { ErrorCode } from '../errors.ts'
import { PROBLEMS } from '../http/problem.ts'
import type { RequestRecord } from '../http/request-record.ts'

/** A problem code of the proxy, or `service_error` for a 5xx of the service. */
type RecentErrorCode = ErrorCode | 'service_error'

export interface ErrorReport {
  readonly code: RecentErrorCode
  readonly title: string
  /** The remedy. */
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

type Kept = Pick<RequestRecord, 'requestId' | 'orgId' | 'method' | 'path' | 'status' | 'endedAt'>

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

const SERVICE_ERROR = {
  title: 'The service answered with a 5xx status',
  detail: 'The proxy passed the response on unchanged. Look at the service; its log may hold the request id.',
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

function codeOf({ code, status }: RequestRecord): RecentErrorCode | undefined {
  if (code === undefined) return status >= 500 ? 'service_error' : undefined
  return code === 'client_closed' ? undefined : code
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
function excerpt({ requestId, orgId, method, path, status, endedAt }: RequestRecord): Kept {
  return { requestId, orgId, method, path: path.slice(0, MAX_PATH_CHARACTERS), status, endedAt }
}

function lastAt({ examples }: Entry): number {
  return examples[0]?.endedAt ?? 0
}

function reportOf(code: RecentErrorCode, { count, examples, orgs }: Entry, now: number): ErrorReport {
  const { title, detail } = code === 'service_error' ? SERVICE_ERROR : PROBLEMS[code]
  const latestOrgs = [...orgs].reverse().slice(0, MAX_ORGS_SHOWN)
  const shown = examples.map(({ endedAt, ...rest }) => ({ ...rest, agoMs: Math.max(0, Math.round(now - endedAt)) }))
  return {
    code,
    title,
    detail,
    count,
    lastAgoMs: shown[0]?.agoMs ?? 0,
    orgs: latestOrgs.map(([org, orgErrors]) => ({ org, count: orgErrors })),
    orgCount: orgs.size,
    examples: shown,
  }
}
