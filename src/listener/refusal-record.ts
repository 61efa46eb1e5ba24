/** The record of a request that never reached the gateway. */

import type { IncomingMessage } from 'node:http'
import { performance } from 'node:perf_hooks'
import type { ErrorCode } from '../errors.ts'
import type { RequestRecord } from '../gateway/request-record.ts'
import { pathOf } from '../http/target.ts'

/** `message` is undefined where no request could be read. */
export function refusalRecord(
  message: IncomingMessage | undefined,
  code: ErrorCode,
  status: number,
  requestId: string,
  startedAt: number,
): RequestRecord {
  return {
    requestId,
    orgId: undefined, // what was sent has not been checked, or was found wanting
    method: message?.method ?? '',
    path: pathOf(message?.url ?? ''),
    status,
    code,
    startedAt,
    dispatchedAt: undefined,
    respondedAt: undefined,
    endedAt: performance.now(),
    token: 'none',
    bytesIn: 0,
    bytesOut: 0,
  }
}
