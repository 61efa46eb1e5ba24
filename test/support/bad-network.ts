/** Faults of a connection through a fault proxy, and seeded schedules of them. */

import type { Random } from './seed.ts'

/** Seen from the client of the fault proxy: it sends `up`. */
export type Direction = 'up' | 'down'

export interface Fault {
  readonly direction: Direction
  /** Happens after this many bytes in that direction; 0 is before the first. */
  readonly afterBytes: number
  /** Happens only if more bytes than these follow. */
  readonly isLate?: boolean
  /** `cut` closes both sides with FIN, `half-close` ends only this direction, `stall` passes nothing more on. */
  readonly kind: 'reset' | 'cut' | 'half-close' | 'stall'
}

export interface Conditions {
  /** Delay of each piece. */
  readonly latencyMs?: number
  readonly bytesPerSecond?: number
  /** Pieces of at most this many bytes. */
  readonly sliceBytes?: number
  readonly fault?: Fault
}

/**
 * `firstLine` is the first line from the client, which shows the purpose of the connection. `random` belongs to the
 * connection.
 */
export type FaultSchedule = (connectionIndex: number, random: Random, firstLine: string) => Conditions

const KINDS: readonly Fault['kind'][] = ['reset', 'cut', 'half-close', 'stall']

export interface BadNetwork {
  /** The share of connections with a fault. */
  readonly faultShare: number
  /** The fault happens anywhere in this many bytes of one direction. */
  readonly withinBytes: number
}

/** Some connections are slow or sliced, some break, some do both. */
export function badNetwork({ faultShare, withinBytes }: BadNetwork): FaultSchedule {
  return (_, random): Conditions => ({
    ...(random.chance(0.3) ? { sliceBytes: random.integer(20, 200) } : {}),
    ...(random.chance(0.1) ? { latencyMs: random.integer(1, 5) } : {}),
    ...(random.chance(0.1) ? { bytesPerSecond: random.integer(50_000, 500_000) } : {}),
    ...(random.chance(faultShare)
      ? {
          fault: {
            direction: random.chance(0.5) ? 'up' : 'down',
            afterBytes: random.integer(0, withinBytes),
            kind: random.pick(KINDS),
          },
        }
      : {}),
  })
}

/** Decided by its first line. */
export function isMint(firstLine: string): boolean {
  return /^POST \/v2\/orgs\/[^/ ]+\/access /.test(firstLine)
}

/** Requests and mints go to the same address, but calls of the token endpoint have their own connections. */
export function byHop(hops: { readonly mints: FaultSchedule; readonly requests: FaultSchedule }): FaultSchedule {
  return (index, random, firstLine) =>
    isMint(firstLine) ? hops.mints(index, random, firstLine) : hops.requests(index, random, firstLine)
}

export const goodNetwork: FaultSchedule = () => ({})
