/**
 * Measures how slow this machine is at the moment. Time limits in tests are for a quiet machine; on a busy one, correct code
 * takes longer. `TEST_SLOWNESS` sets the factor.
 */

import { availableParallelism, loadavg } from 'node:os'

const { TEST_SLOWNESS } = process.env
const PROBE_MS = 20
/** Tests are useless on a machine slower than this. */
const MAX_SLOWNESS = 20

let measured: number | undefined

/** Run before each file: what one of them waits for fits the limits that it has set. */
export function measureAnew(): void {
  measured = undefined
}

/** Factor of slowness compared with a quiet machine; at least 1. */
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

/** Works for a moment, and compares the elapsed time with its CPU time. */
function shareOfCpu(): number {
  const before = process.cpuUsage()
  const startedAt = performance.now()
  while (performance.now() - startedAt < PROBE_MS);
  const { user, system } = process.cpuUsage(before)
  return (performance.now() - startedAt) / Math.max(1, (user + system) / 1_000)
}
