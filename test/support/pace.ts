/**
 * Measures how slow this machine is at the moment. Time limits in tests are for a quiet machine; on a busy one, correct code
 * takes longer. `TEST_SLOWNESS` sets the factor.
 */

import { availableParallelism, loadavg } from 'node:os'

const { TEST_SLOWNESS } = process.env
const PROBE_MS = 20
const PROBE_EVERY_MS = 10_000
/** Tests are useless on a machine slower than this. */
const MAX_SLOWNESS = 20

let measured = 1
let measuredAt = Number.NEGATIVE_INFINITY

/** Factor of slowness compared with a quiet machine; at least 1. */
export function slowness(): number {
  if (TEST_SLOWNESS !== undefined) return Number(TEST_SLOWNESS)
  if (performance.now() - measuredAt > PROBE_EVERY_MS) {
    measured = shareOfCpu()
    measuredAt = performance.now()
  }
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

/** Works for a moment, and compares the elapsed time with its CPU time. */
function shareOfCpu(): number {
  const before = process.cpuUsage()
  const startedAt = performance.now()
  while (performance.now() - startedAt < PROBE_MS);
  const { user, system } = process.cpuUsage(before)
  return (performance.now() - startedAt) / Math.max(1, (user + system) / 1_000)
}
