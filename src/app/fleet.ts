/** This replica's part in a fleet, from the configuration. Nothing of it is loaded unless `fleet.store` is set. */

import { parseSecretBytes } from '../config/files.ts'
import type { Config } from '../config/schema.ts'
import type { Fleet } from '../fleet/fleet.ts'
import type { StoreObserver } from '../fleet/redis-store.ts'
import { targetPrefix } from '../http/target.ts'
import { contextTrusting } from '../trusted-certificates.ts'
import { WatchedFile } from '../watched-file.ts'

export interface FleetPart {
  readonly fleet: Fleet
  /** Reads the password of the store again, if it is in a file. */
  reloadPassword(): Promise<void>
  close(): Promise<void>
}

export interface FleetPartObserver extends StoreObserver {
  passwordUnusable(file: string, problem: string): void
}

/** Undefined without `fleet.store`. Does not wait for the store. */
export async function openFleet(config: Config, observer: FleetPartObserver): Promise<FleetPart | undefined> {
  const { fleet: settings, tokens, baseUrl } = config
  if (settings.store === undefined) return undefined
  // Loads the Redis client, too, which keeps the process busy for about 100 ms. Later, a request would lose that time.
  const { Fleet } = await import('../fleet/fleet.ts')
  let password = settings.passwordFile?.content
  const fleet = new Fleet({
    appId: config.appId,
    baseUrl: `${baseUrl.origin}${targetPrefix(baseUrl)}`,
    appSecret: config.appSecret,
    store: {
      address: settings.store,
      isCluster: settings.cluster,
      username: settings.username,
      password: () => password,
      secureContext: contextTrusting(settings.caFile?.content),
      prefix: settings.prefix,
      timeoutMs: settings.timeout,
      observer,
    },
    mintTimeoutMs: tokens.mintTimeout,
  })
  const path = settings.passwordFile?.path
  const onContent = (bytes: Buffer) => {
    password = parseSecretBytes(bytes)
  }
  const onProblem = (problem: string) => observer.passwordUnusable(path ?? '', problem)
  const file = path === undefined ? undefined : new WatchedFile({ path, onContent, onProblem })
  return {
    fleet,
    reloadPassword: async () => file?.reload(),
    close: async () => {
      file?.close()
      await fleet.close()
    },
  }
}
