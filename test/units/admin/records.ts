/** Records of requests like those of the gateway, with the values of a test. */

import type { Gauges } from '../../../src/admin/metrics.ts'
import type { RequestRecord } from '../../../src/gateway/request-record.ts'

export function record(given: Partial<RequestRecord> = {}): RequestRecord {
  return {
    requestId: 'request-1',
    orgId: 'acme',
    caller: undefined,
    method: 'GET',
    path: '/v2/members',
    status: 200,
    code: undefined,
    reason: undefined,
    traceId: undefined,
    detail: undefined,
    isOfMinter: false,
    startedAt: 1_000,
    dispatchedAt: 1_000,
    respondedAt: 1_000,
    waitedMs: 0,
    endedAt: 1_000,
    isAdmitted: true,
    token: 'hit',
    repeat: undefined,
    rejection: undefined,
    bytesIn: 0,
    bytesOut: 0,
    ...given,
  }
}

export const NO_GAUGES: Gauges = {
  requestsInFlight: 0,
  tunnels: 0,
  requestsWaitingForToken: 0,
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
