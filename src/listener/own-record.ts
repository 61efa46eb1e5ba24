/** The record of a request that was answered before the gateway. */

import type { IncomingMessage } from 'node:http'
import { performance } from 'node:perf_hooks'
import type { ErrorCode } from '../errors.ts'
import { RequestRecord } from '../gateway/request-record.ts'
import { pathOf } from '../http/target.ts'

/** `message` is undefined where no request could be read. */
export function ownRecord(
  message: IncomingMessage | undefined,
  code: ErrorCode | undefined,
  status: number,
  requestId: string,
  startedAt: number,
): RequestRecord {
  // What was sent as an org id has not been checked, or was found wanting.
  const record = new RequestRecord(requestId, undefined, message?.method ?? '', pathIn(message?.url ?? ''), startedAt)
  record.status = status
  record.code = code
  record.endedAt = performance.now()
  return record
}

/** Nothing of an authority, which may hold a password. */
function pathIn(target: string): string {
  return target.startsWith('/') ? pathOf(target) : ''
}
