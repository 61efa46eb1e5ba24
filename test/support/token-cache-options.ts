/** The options of a token cache with all defaults of the settings. */

import type { TokenCacheOptions } from '../../src/token/token-cache.ts'

export const TOKEN_CACHE_OPTIONS: TokenCacheOptions = {
  maxOrgs: 10_000,
  settleTimeMs: 5_000,
  lifetimeMs: undefined,
  rejectedStatuses: undefined,
  rejectedCooldownMs: 10_000,
  sharesTokens: false,
  mintTimeoutMs: 10_000,
  maxWaiting: 1_024,
}
