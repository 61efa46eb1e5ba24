/** The latest errors, one entry per code, so that a flood of one code does not hide the others. */

import { type ErrorCode, type Fault, PROBLEMS, titleOf } from '../errors.ts'
import type { RequestRecord } from '../gateway/request-record.ts'

/** What counts as an error, with what to do: the answers of the proxy, and those of the service that are passed on. */
const ERRORS: Readonly<Record<RecentErrorCode, { readonly fault: Fault; readonly detail: string }>> = {
  ...PROBLEMS,
  service_error: {
    fault: 'service',
    detail: 'The proxy passed a 5xx on unchanged. Look at the service; its log may hold the request id.',
  },
  service_unauthorized: {
    fault: 'service',
    detail:
      'A new token did not or would not help. Check what the Org may do at the service. If it rejects good tokens, tokens.settleTime may be too short.',
  },
}

type RecentErrorCode = ErrorCode | 'service_error' | 'service_unauthorized'

interface Entry {
  /** Since the start. */
  count: number
  /** The last few requests, newest first. */
  examples: readonly ReturnType<typeof excerpt>[]
}

const MAX_EXAMPLES = 3
const MAX_PATH_CHARACTERS = 200

export class RecentErrors {
  readonly #entries = new Map<RecentErrorCode, Entry>()

  requestEnded(record: RequestRecord): void {
    const code = codeOf(record)
    if (code === undefined) return
    const entry = this.#entries.get(code) ?? { count: 0, examples: [] }
    this.#entries.set(code, entry)
    entry.count++
    entry.examples = [excerpt(record), ...entry.examples].slice(0, MAX_EXAMPLES)
  }

  totals(): Record<Fault, number> {
    const totals = { proxy: 0, service: 0, app: 0 }
    for (const [code, { count }] of this.#entries) totals[ERRORS[code].fault] += count
    return totals
  }

  /** The latest first. `now` is on the monotonic clock of the records. */
  reports(now: number) {
    const reports = Array.from(this.#entries, ([code, entry]) => reportOf(code, entry, now))
    return reports.sort((a, b) => a.lastAgoMs - b.lastAgoMs)
  }
}

/** Undefined for a request that went well, as far as the proxy can tell, and for a client that left. */
function codeOf({ code, status }: RequestRecord): RecentErrorCode | undefined {
  if (code !== undefined) return code === 'client_closed' ? undefined : code
  if (status === 401) return 'service_unauthorized'
  return status >= 500 ? 'service_error' : undefined
}

/** A copy, because the record keeps the whole exchange in memory. */
function excerpt({ requestId, orgId, method, path, status, reason, detail, endedAt }: RequestRecord) {
  return { requestId, orgId, method, path: path.slice(0, MAX_PATH_CHARACTERS), status, reason, detail, endedAt }
}

function reportOf(code: RecentErrorCode, { count, examples }: Entry, now: number) {
  const { fault, detail: remedy } = ERRORS[code]
  const shown = examples.map(({ endedAt, ...rest }) => ({ ...rest, agoMs: now - endedAt }))
  const [last] = shown
  return {
    code,
    kind: fault,
    title: titleOf(code),
    /** The cause of the last one, if it is known more closely, and the remedy. */
    detail: last?.detail === undefined ? remedy : `${last.detail} ${remedy}`,
    count,
    lastAgoMs: last?.agoMs ?? 0,
    examples: shown,
  }
}
