/** What can be wrong with a connection through a fault proxy, and seeded schedules of it. */

import type { Random } from './seed.ts'

/** Seen from the client of the fault proxy: `up` is what it sends. */
export type Direction = 'up' | 'down'

export interface Fault {
  readonly direction: Direction
  /** Strikes when so many bytes have gone on in that direction; 0 is before the first. */
  readonly afterBytes: number
  /** Strikes only when more than these want to go on. */
  readonly isLate?: boolean
  /** `cut` closes both sides with FIN, `half-close` ends only this direction, `stall` passes nothing more on. */
  readonly kind: 'reset' | 'cut' | 'half-close' | 'stall'
}

export interface Conditions {
  /** Of each piece. */
  readonly latencyMs?: number
  readonly bytesPerSecond?: number
  /** Pieces of one to so many bytes. */
  readonly sliceBytes?: number
  readonly fault?: Fault
}

/** `firstLine` is what the client begins with: it tells what a connection is for. `random` is that connection's own. */
export type FaultSchedule = (connectionIndex: number, random: Random, firstLine: string) => Conditions

const KINDS: readonly Fault['kind'][] = ['reset', 'cut', 'half-close', 'stall']

export interface BadNetwork {
  /** The part of the connections that meet a fault. */
  readonly faultShare: number
  /** They meet it anywhere in so many bytes of one direction. */
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

/** Told by its first line. */
export function isMint(firstLine: string): boolean {
  return /^POST \/v2\/orgs\/[^/ ]+\/access /.test(firstLine)
}

/** Proxy and service have one address for both: calls of the token endpoint come on connections of their own. */
export function byHop(hops: { readonly mints: FaultSchedule; readonly requests: FaultSchedule }): FaultSchedule {
  return (index, random, firstLine) =>
    isMint(firstLine) ? hops.mints(index, random, firstLine) : hops.requests(index, random, firstLine)
}

export const goodNetwork: FaultSchedule = () => ({})
