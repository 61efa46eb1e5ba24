/** The options of `Orgs` with all defaults of the settings. */

import type { OrgsOptions } from '../../src/token/orgs.ts'

export const ORGS_OPTIONS: OrgsOptions = {
  maxOrgs: 10_000,
  settleTimeMs: 5_000,
  lifetimeMs: undefined,
  rejectedStatuses: undefined,
  rejectedCooldownMs: 10_000,
  refusalTtlMs: 5_000,
  sharesTokens: false,
  mintTimeoutMs: 10_000,
  maxWaiting: 1_024,
}
