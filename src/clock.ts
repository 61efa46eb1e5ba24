/**
 * The clock: no other file reads the time, sets a timer or draws a random number.
 *
 * A process may stand still: it is stopped, or its machine has no time for it. Then its time limits would end before it has read
 * what arrived meanwhile. So a timer that fires late notes for how long, and time limits are measured in running time.
 */

/** A timer that fires later by more than this shows that the process stood still. */
const LATE_MS = 100

let stoodStillMs = 0
/** Monotonic milliseconds. What came before it has been counted. */
let countedUntil = 0

/** Monotonic milliseconds. */
export const now = (): number => performance.now()

/** The time of day, in milliseconds since the epoch. */
export const day = (): number => Date.now()

/** From 0 to less than 1. */
export const random = (): number => Math.random()

/** The fastest of the timers that fire again and again: if it is late, the process stood still. */
let pulse: { readonly ms: number; due: number } | undefined

/**
 * Monotonic milliseconds, without those for which the process stood still: for the silence of others. Asked also when sockets
 * are read before any timer has fired.
 */
export function runningTime(): number {
  if (pulse !== undefined) noteStandstill(pulse.due)
  return now() - stoodStillMs
}

/** Called when a timer fires that was due at `due`. Returns true if the process stood still. */
function noteStandstill(due: number): boolean {
  const at = now()
  if (at - due <= LATE_MS) return false
  // Other timers may have been late for the same reason.
  stoodStillMs += Math.max(0, at - Math.max(due, countedUntil))
  countedUntil = at
  return true
}

/** Does not keep the process alive. */
export interface Timer {
  cancel(): void
}

/** Calls `act` once, after `ms` of running time, and after all that has arrived by then was read. */
export function after(ms: number, act: () => void): Delay {
  return new Delay(ms, act)
}

export class Delay implements Timer {
  readonly #ms: number
  readonly #act: () => void
  readonly #keepsAlive: boolean
  #startedAt = 0
  #due = 0
  #timeout: NodeJS.Timeout | undefined
  #immediate: NodeJS.Immediate | undefined

  constructor(ms: number, act: () => void, keepsAlive = false) {
    this.#ms = ms
    this.#act = act
    this.#keepsAlive = keepsAlive
    this.restart()
  }

  /** Begins anew. */
  restart(): void {
    this.cancel()
    this.#startedAt = runningTime()
    this.#arm(this.#ms)
  }

  cancel(): void {
    clearTimeout(this.#timeout)
    clearImmediate(this.#immediate)
  }

  #arm(ms: number): void {
    this.#due = now() + ms
    this.#timeout = setTimeout(() => this.#fired(), Math.max(0, ms))
    if (!this.#keepsAlive) this.#timeout.unref()
  }

  #fired(): void {
    noteStandstill(this.#due)
    const leftMs = this.#startedAt + this.#ms - runningTime()
    // A timer may be early by a part of a millisecond.
    if (leftMs >= 1) this.#arm(Math.ceil(leftMs))
    else this.#immediate = setImmediate(this.#act)
  }
}

/** Calls `act` again and again. If the process stood still, all that has arrived meanwhile is read first. */
export function every(ms: number, act: () => void): Timer {
  const beat = { ms, due: now() + ms }
  let immediate: NodeJS.Immediate | undefined
  const fired = () => {
    const stoodStill = noteStandstill(beat.due)
    beat.due = now() + ms
    if (pulse === undefined || ms < pulse.ms) pulse = beat
    if (stoodStill) immediate = setImmediate(act)
    else act()
  }
  const interval = setInterval(fired, ms).unref()
  return {
    cancel: () => {
      if (pulse === beat) pulse = undefined
      clearInterval(interval)
      clearImmediate(immediate)
    },
  }
}

/** As `after`, but keeps the process alive. Rejects if the signal comes first. */
export function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const abort = () => {
      delay.cancel()
      reject(signal?.reason)
    }
    const act = () => {
      signal?.removeEventListener('abort', abort)
      resolve()
    }
    const delay = new Delay(ms, act, true)
    signal?.addEventListener('abort', abort, { once: true })
  })
}

/** Settles like `work`, or resolves with undefined if that takes longer. Without `work`, it waits. */
export function within<T>(ms: number, work?: Promise<T>): Promise<T | undefined> {
  return new Promise((resolve, reject) => {
    const timer = after(ms, () => resolve(undefined))
    work?.finally(() => timer.cancel()).then(resolve, reject)
  })
}
