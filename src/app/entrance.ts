/** A listener, and what takes its requests: for apps, or at a minter for sidecars. */

import { randomBytes } from 'node:crypto'
import * as clock from '../clock.ts'
import type { Config } from '../config/schema.ts'
import { LIMITS, type Limit } from '../errors.ts'
import type { Reception } from '../gateway/reception.ts'
import { descriptorLimit } from '../listener/connection-limit.ts'
import type { Listener } from '../listener/server.ts'
import type { TlsSettings } from '../listener/tls.ts'
import type { Status } from '../part.ts'
import type { Events } from './events.ts'
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

const MAX_HOLDERS = 3

export function entranceOf(
  listener: Listener,
  reception: Pick<Reception<never>, 'requestsInFlight' | 'inFlightByOrg' | 'warnings'>,
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
      orgsInFlight: [...reception.inFlightByOrg].flatMap(([org, count]) => (org === undefined ? [] : [[org, count]])),
    }),
  }
}

/** An operator is told who fills the limit that a request has met. Its answer names nobody. */
export function namingHolders(events: Events, reception: () => Pick<Reception<never>, 'inFlightByOrg'>): Events {
  let told = ''
  let until = 0
  const holders = () => {
    const now = clock.now()
    if (now < until) return told
    until = now + 1_000 // thousands may be refused in a second
    const orgs = [...reception().inFlightByOrg].sort(([, a], [, b]) => b - a).slice(0, MAX_HOLDERS)
    told = `In flight: ${orgs.map(([org = 'the App', count]) => `${org} ${count}`).join(', ') || 'nothing'}.`
    return told
  }
  return {
    ...events,
    requestEnded(record) {
      if (record.code === 'overloaded') {
        const limit = record.detail ?? LIMITS[record.reason as Limit]
        record.detail = `${limit} ${holders()}`
      }
      events.requestEnded(record)
    },
  }
}

/** Descriptors that a listener must leave to others: the connections to the service, and those of the other listener. */
export function otherDescriptors({ listen, origin, tokens, minter }: Config): number {
  const isAlone = listen.address === 'off' || minter.address === undefined
  return origin.connections + tokens.mintConcurrency + (isAlone ? 0 : listen.maxConnections)
}

/** Its share of those of the process. */
export const ownDescriptors = ({ instances }: Config): number => Math.floor(descriptorLimit() / instances)

/**
 * Makes ids for requests without one, unique across processes and restarts: twelve random characters, then a counter in base 36.
 */
export function requestIds(): () => string {
  const prefix = `${randomBytes(9).toString('base64url')}-`
  let last = 0
  return () => prefix + (++last).toString(36)
}
