/** Records of requests like those of the gateway, with the values of a test. */

import type { Gauges } from '../../../src/admin/metrics.ts'
import { RequestRecord } from '../../../src/gateway/request-record.ts'

export function record(given: Partial<RequestRecord> = {}): RequestRecord {
  const { requestId = 'request-1', method = 'GET', path = '/v2/members', startedAt = 1_000 } = given
  const orgId = 'orgId' in given ? given.orgId : 'acme'
  const times = { takenAt: 1_000, respondedAt: 1_000, endedAt: 1_000 }
  const usual = { status: 200, isAdmitted: true, token: 'hit' } as const
  return Object.assign(new RequestRecord(requestId, orgId, method, path, startedAt), times, usual, given)
}

export const NO_GAUGES: Gauges = {
  requestsInFlight: 0,
  tunnels: 0,
  requestsWaitingForToken: 0,
  mintCalls: 0,
  mintCallsWaiting: 0,
  keptBytes: 0,
  clientConnections: 0,
  connectionsRefused: 0,
  cachedTokens: 0,
  orgsPaused: 0,
  mintPace: 1,
  logLinesDropped: 0,
  logLinesOmitted: 0,
  spansDropped: 0,
  isStoreAvailable: false,
  isMinterAvailable: true,
  originConnections: { busy: 1, free: 3 },
}
