/** What the service does that few clients see: counted by kind, and told while it lasts. */

import { expect, test } from 'vitest'
import { type ServiceTrouble, ServiceTroubles } from '../../../src/admin/service-troubles.ts'
import type { RequestRecord } from '../../../src/gateway/request-record.ts'
import { record } from './records.ts'

const MINUTE_MS = 60_000
const TROUBLED: readonly [ServiceTrouble, Partial<RequestRecord>][] = [
  ['idle', { metClosedIdle: true, status: 502, code: 'connection_terminated' }],
  ['broken', { status: 502, code: 'http_protocol_error' }],
  ['broken', { code: 'http_response_incomplete' }],
  ['limited', { status: 429 }],
  ['repeated', { rejection: 'repeated' }],
]

function seen(given: Partial<RequestRecord>, everyMs: number, times: number, goodBetween = 0): ServiceTroubles {
  const troubles = new ServiceTroubles()
  for (let i = 0; i < times; i++) {
    troubles.requestEnded(record({ ...given, endedAt: i * everyMs }))
    for (let good = 0; good < goodBetween; good++) troubles.requestEnded(record({ endedAt: i * everyMs }))
  }
  return troubles
}

test.each(TROUBLED)('%s by %j is counted, and told while it lasts', (kind, given) => {
  const troubles = seen(given, MINUTE_MS, 5, 2)
  expect(Object.entries(troubles.totals()).filter(([, count]) => count > 0)).toEqual([[kind, 5]])
  const told = { count: 5, requests: 15, lastedMs: 5 * MINUTE_MS, leftMs: 4 * MINUTE_MS }
  expect(troubles.lasting(kind, 5 * MINUTE_MS)).toEqual(told)
  expect(troubles.lasting(kind, 9 * MINUTE_MS)).toBeUndefined()
})

test.each(TROUBLED)('%s by %j is no state if it comes at once, or seldom', (kind, given) => {
  expect(seen(given, 1, 1_000).lasting(kind, 1_000)).toBeUndefined()
  expect(seen(given, 6 * MINUTE_MS, 100).lasting(kind, 6 * 99 * MINUTE_MS)).toBeUndefined()
  expect(seen(given, MINUTE_MS, 4).lasting(kind, 3 * MINUTE_MS)).toBeUndefined()
})

test.each([
  ['repeated', { rejection: 'repeated' }, 18, 20],
  ['limited', { status: 429 }, 98, 100],
] as const)('%s is usual in small numbers', (kind, given, few, many) => {
  expect(seen(given, MINUTE_MS, 10, few).lasting(kind, 9 * MINUTE_MS)).toBeDefined()
  expect(seen(given, MINUTE_MS, 10, many).lasting(kind, 9 * MINUTE_MS)).toBeUndefined()
})

test('an answer 429 of the proxy is none of the service', () => {
  const troubles = seen({ status: 429, code: 'overloaded' }, MINUTE_MS, 10)
  expect(troubles.totals()).toEqual({ idle: 0, broken: 0, limited: 0, repeated: 0 })
})
