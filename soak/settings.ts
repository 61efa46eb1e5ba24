/** What makes the cross-org run hard: room for a tenth of the orgs, and tokens that die every quarter of a second. */

import type { ProxySettings } from '../test/support/start-proxy.ts'

export const ORGS = 1_000
export const CONCURRENCY = 512
export const ROTATION_MS = 250

export const SETTINGS: ProxySettings = {
  'tokens.maxOrgs': `${ORGS / 10}`,
  'tokens.mintRate': '100000',
  'tokens.mintConcurrency': '256',
  'tokens.lifetime': '1s',
  'tokens.minLifetime': '100ms',
  'tokens.rejectedCooldown': '1ms',
  'log.requests': 'off',
}
