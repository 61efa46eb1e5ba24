/** A listener, and what takes its requests: for apps, or at a minter for sidecars. */

import { randomBytes } from 'node:crypto'
import type { Config } from '../config/schema.ts'
import type { Reception } from '../gateway/reception.ts'
import type { Listener } from '../listener/server.ts'
import type { TlsSettings } from '../listener/tls.ts'
import type { Status } from '../part.ts'
import type { Part } from './reload.ts'
import type { LiveRules } from './rules.ts'

/** What a reload may change of a listener. */
interface EntranceSettings {
  /** Of callers that have one to themselves. */
  readonly socketPaths: readonly (string | undefined)[]
  readonly tls: TlsSettings
}

export interface Entrance extends Part {
  readonly listener: Listener
  use(config: Config): void
  status(): Partial<Status>
  /** Returns the number of connections that were busy. */
  close(): number
}

export function entranceOf(
  listener: Listener,
  reception: Pick<Reception<never>, 'requestsInFlight' | 'warnings'>,
  rules: LiveRules,
  settingsOf: (config: Config) => EntranceSettings,
): Entrance {
  return {
    listener,
    prepare(config) {
      const { socketPaths, tls } = settingsOf(config)
      const paths = socketPaths.flatMap((path) => path ?? [])
      return listener.prepare(paths, tls)
    },
    use: () => listener.endLost(rules.isLost),
    close: () => listener.close(),
    warnings: (now) => ({ ...reception.warnings(now), ...listener.limit.warnings() }),
    status: () => ({
      requestsInFlight: reception.requestsInFlight,
      clientConnections: listener.connections,
      connectionsRefused: listener.limit.refused,
      orgsInFlight: listener.orgsInFlight,
    }),
  }
}

/** Descriptors that a listener must leave to others: the connections to the service, and those of the other listener. */
export function otherDescriptors({ listen, origin, tokens, minter }: Config): number {
  const isAlone = listen.address === 'off' || minter.address === undefined
  return origin.connections + tokens.mintConcurrency + (isAlone ? 0 : listen.maxConnections)
}

/**
 * Makes ids for requests without one, unique across processes and restarts: twelve random characters, then a counter in base 36.
 */
export function requestIds(): () => string {
  const prefix = `${randomBytes(9).toString('base64url')}-`
  let last = 0
  return () => prefix + (++last).toString(36)
}
