/** This replica's part in a fleet, from the configuration. Nothing of it is loaded unless `fleet.store` is set. */

import type { Config } from '../config/schema.ts'
import type { Fleet } from '../fleet/fleet.ts'
import type { StoreObserver } from '../fleet/redis-store.ts'
import { targetPrefix } from '../http1/target.ts'
import type { ConnectorOptions } from '../origin/connector.ts'
import { declarationOf } from '../token/token-request.ts'
import { contextTrusting } from '../trusted-certificates.ts'
import type { Part } from './reload.ts'

/** Undefined without `fleet.store`. Does not wait for the store. */
export async function openFleet(
  { app, baseUrl, fleet: settings, tokens, orgs }: Config,
  observer: StoreObserver,
  lookup?: ConnectorOptions['lookup'],
): Promise<(Part & { readonly fleet: Fleet }) | undefined> {
  if (settings.store === undefined || app === undefined) return undefined
  // Loads the Redis client, too, which keeps the process busy for about 100 ms. Later, a request would lose that time.
  const { Fleet } = await import('../fleet/fleet.ts')
  let { passwordFile } = settings
  let { ids } = orgs
  const fleet = new Fleet({
    baseUrl: `${baseUrl.origin}${targetPrefix(baseUrl)}`,
    tokenRequest: declarationOf(tokens),
    ...app,
    store: {
      ...settings,
      address: settings.store,
      password: () => passwordFile?.content,
      lookup,
      secureContext: contextTrusting(settings.caFile?.content),
      observer,
    },
    mintTimeoutMs: tokens.mintTimeoutMs,
    // No id has a blank.
    sharedAs: (org) => (ids === undefined ? org : `${org} ${ids.get(org)}`),
  })
  return {
    fleet,
    warnings: () => fleet.warnings(),
    status: () => fleet.status(),
    use: (latest) => {
      ids = latest.orgs.ids
      const { passwordFile: now } = latest.fleet
      if (now?.digest === passwordFile?.digest) return
      passwordFile = now
      fleet.store.passwordChanged()
    },
    close: () => fleet.close(),
  }
}
