/** This replica's part in a fleet, from the configuration. Nothing of it is loaded unless `fleet.store` is set. */

import { parseSecretBytes } from '../config/files.ts'
import type { Config } from '../config/schema.ts'
import type { Fleet, FleetObserver } from '../fleet/fleet.ts'
import { targetPrefix } from '../http/target.ts'
import { contextTrusting } from '../trusted-certificates.ts'
import { WatchedFile } from '../watched-file.ts'

export interface FleetPart {
  readonly fleet: Fleet
  /** Reads the password of the store again, if it is in a file. */
  reloadPassword(): Promise<void>
  close(): Promise<void>
}

export interface FleetPartObserver extends FleetObserver {
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
    },
    mintTimeoutMs: tokens.mintTimeout,
    maxOrgs: tokens.maxOrgs,
    observer,
  })
  const path = settings.passwordFile?.path
  const onContent = (bytes: Buffer) => {
    const latest = parseSecretBytes(bytes)
    if (password?.equals(latest)) return
    password = latest
    fleet.store.reconnect()
  }
  const file =
    path === undefined
      ? undefined
      : new WatchedFile({ path, onContent, onProblem: (problem) => observer.passwordUnusable(path, problem) })
  return {
    fleet,
    reloadPassword: async () => {
      await file?.reload()
    },
    close: async () => {
      file?.close()
      await fleet.close()
    },
  }
}
