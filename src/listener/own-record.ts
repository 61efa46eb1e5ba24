/** The record of a request that was answered before the gateway. */

import type { IncomingMessage } from 'node:http'
import { performance } from 'node:perf_hooks'
import type { ErrorCode } from '../errors.ts'
import { RequestRecord } from '../gateway/request-record.ts'
import type { OrgId } from '../http/org-id.ts'
import { pathOf } from '../http/target.ts'

/**
 * `message` is undefined where no request could be read, `orgId` where what was sent as one has not been checked, or was
 * found wanting.
 */
export function ownRecord(
  message: IncomingMessage | undefined,
  code: ErrorCode | undefined,
  status: number,
  requestId: string,
  startedAt: number,
  orgId?: OrgId | undefined,
): RequestRecord {
  const record = new RequestRecord(requestId, orgId, message?.method ?? '', pathIn(message?.url ?? ''), startedAt)
  record.status = status
  record.code = code
  record.endedAt = performance.now()
  return record
}

/** Nothing of an authority, which may hold a password. */
function pathIn(target: string): string {
  return target.startsWith('/') ? pathOf(target) : ''
}
