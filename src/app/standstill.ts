/** Tells that the process stood still: it was stopped, got no CPU, or its machine slept. */

import type { Logger } from 'pino'
import * as clock from '../clock.ts'
import type { Part } from './reload.ts'

/** Of less, nothing is told. */
const LEAST_MS = 1_000
/** A starved process has one line in this time, which tells the sum. */
const PAUSE_MS = 60_000

/** What the time of day has gone ahead of running time: the monotonic clock of Linux does not count the sleep of a machine. */
const ahead = () => clock.day() - clock.runningTime()

export function watchStandstill(logger: Logger): Part {
  let told = ahead()
  let quietUntil = Number.NEGATIVE_INFINITY
  const look = () => {
    const [ms, now] = [Math.round(ahead() - told), clock.now()]
    if (now < quietUntil) return
    told += ms
    if (ms < LEAST_MS) return
    quietUntil = now + PAUSE_MS
    logger.warn({ ms }, 'the process stood still')
  }
  const timer = clock.every(LEAST_MS, look)
  return { close: () => timer.cancel() }
}
