/**
 * How slow this machine is at the moment. A limit on time says how long something may take on a quiet machine; on a busy one
 * it takes longer without being wrong. `TEST_SLOWNESS` sets the factor.
 */

import { availableParallelism, loadavg } from 'node:os'

const { TEST_SLOWNESS } = process.env
const PROBE_MS = 20
/** A machine slower than this is of no use for tests. */
const MAX_SLOWNESS = 20

let measured: number | undefined

/** At least 1: how many times longer than on a quiet machine things take. */
export function slowness(): number {
  if (TEST_SLOWNESS !== undefined) return Number(TEST_SLOWNESS)
  measured ??= shareOfCpu()
  const waiting = (loadavg()[0] ?? 0) / availableParallelism()
  return Math.min(MAX_SLOWNESS, Math.max(1, measured, waiting))
}

/** `limitMs` of a quiet machine, in milliseconds of this one. */
export function scaled(limitMs: number): number {
  return limitMs * slowness()
}

/** The same as the value of a setting. */
export function scaledSetting(limitMs: number): string {
  return `${Math.round(scaled(limitMs))}ms`
}

/** Works for a moment, and compares the time that passed with the time that it got. */
function shareOfCpu(): number {
  const before = process.cpuUsage()
  const startedAt = performance.now()
  while (performance.now() - startedAt < PROBE_MS);
  const { user, system } = process.cpuUsage(before)
  return (performance.now() - startedAt) / Math.max(1, (user + system) / 1_000)
}
