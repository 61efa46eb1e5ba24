/** Records of requests like those of the gateway, with the values of a test. */

import { RequestRecord } from '../../../src/gateway/request-record.ts'
import { NOTHING, type Status } from '../../../src/part.ts'

export function record(given: Partial<RequestRecord> = {}): RequestRecord {
  const { requestId = 'request-1', method = 'GET', path = '/v2/members', startedAt = 1_000 } = given
  const orgId = 'orgId' in given ? given.orgId : 'acme'
  const times = { takenAt: 1_000, respondedAt: 1_000, endedAt: 1_000 }
  const usual = { status: 200, isAdmitted: true, token: 'hit' } as const
  return Object.assign(new RequestRecord(requestId, orgId, method, path, startedAt), times, usual, given)
}

export const NO_GAUGES: Status = { ...NOTHING, spansDropped: 0, originConnections: { busy: 1, free: 3, pending: 0 } }
