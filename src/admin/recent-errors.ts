/** The last problems, one entry a code: a flood of one kind must not push the others out of sight. */

import type { ErrorCode } from '../errors.ts'
import type { RequestRecord } from '../gateway/request-record.ts'
import { PROBLEMS } from '../http/problem.ts'

export interface ErrorReport {
  readonly code: ErrorCode
  readonly title: string
  /** What to do about it. */
  readonly detail: string
  /** Since the start. */
  readonly count: number
  readonly lastAgoMs: number
  /** The last few, newest first. */
  readonly examples: readonly ErrorExample[]
}

export interface ErrorExample {
  readonly requestId: string
  readonly orgId: string | undefined
  readonly method: string
  readonly path: string
  readonly status: number
  readonly agoMs: number
}

type Kept = Pick<RequestRecord, 'requestId' | 'orgId' | 'method' | 'path' | 'status' | 'endedAt'>

interface Entry {
  count: number
  last: Kept
  /** Before the last one, newest first. */
  earlier: readonly Kept[]
}

const MAX_EXAMPLES = 3
const MAX_PATH_CHARACTERS = 200

export class RecentErrors {
  readonly #entries = new Map<ErrorCode, Entry>()

  requestEnded(record: RequestRecord): void {
    const { code } = record
    if (code === undefined || code === 'client_closed') return
    const last = excerpt(record)
    const entry = this.#entries.get(code)
    if (entry === undefined) {
      this.#entries.set(code, { count: 1, last, earlier: [] })
      return
    }
    entry.count++
    entry.earlier = [entry.last, ...entry.earlier].slice(0, MAX_EXAMPLES - 1)
    entry.last = last
  }

  /** The latest first. `now` in the monotonic milliseconds of the records. */
  reports(now: number): ErrorReport[] {
    const latestFirst = [...this.#entries].sort(([, a], [, b]) => b.last.endedAt - a.last.endedAt)
    return latestFirst.map(([code, { count, last, earlier }]) => ({
      code,
      title: PROBLEMS[code].title,
      detail: PROBLEMS[code].detail,
      count,
      lastAgoMs: ageMs(last, now),
      examples: [last, ...earlier].map((kept) => exampleOf(kept, now)),
    }))
  }
}

/** A record is the exchange itself, with all that hangs on it: only what is shown is kept. */
function excerpt({ requestId, orgId, method, path, status, endedAt }: RequestRecord): Kept {
  return { requestId, orgId, method, path: path.slice(0, MAX_PATH_CHARACTERS), status, endedAt }
}

function exampleOf(kept: Kept, now: number): ErrorExample {
  const { requestId, orgId, method, path, status } = kept
  return { requestId, orgId, method, path, status, agoMs: ageMs(kept, now) }
}

function ageMs({ endedAt }: Kept, now: number): number {
  return Math.max(0, Math.round(now - endedAt))
}
