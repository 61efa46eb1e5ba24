/**
 * The clock: no other file reads the time, sets a timer or draws a random number.
 */

/** Monotonic milliseconds. */
export const now = (): number => performance.now()

/** The time of day, in milliseconds since the epoch. */
export const day = (): number => Date.now()

/** From 0 to less than 1. */
export const random = (): number => Math.random()

/** For the silence of others. */
export const runningTime = (): number => performance.now()

/** Does not keep the process alive. */
export interface Timer {
  cancel(): void
}

/** Calls `act` once, after `ms`, and after all that has arrived by then was read. */
export function after(ms: number, act: () => void): Delay {
  return new Delay(ms, act)
}

export class Delay implements Timer {
  readonly #ms: number
  readonly #act: () => void
  #timeout: NodeJS.Timeout | undefined
  #immediate: NodeJS.Immediate | undefined

  constructor(ms: number, act: () => void) {
    this.#ms = ms
    this.#act = act
    this.restart()
  }

  /** Begins anew. */
  restart(): void {
    this.cancel()
    this.#arm(this.#ms)
  }

  cancel(): void {
    clearTimeout(this.#timeout)
    clearImmediate(this.#immediate)
  }

  #arm(ms: number): void {
    this.#timeout = setTimeout(() => this.#fired(), ms).unref()
  }

  #fired(): void {
    this.#immediate = setImmediate(this.#act)
  }
}

/** Calls `act` again and again. */
export function every(ms: number, act: () => void): Timer {
  const interval = setInterval(act, ms).unref()
  return { cancel: () => clearInterval(interval) }
}

/** Keeps the process alive. Rejects if the signal comes first. */
export function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const abort = () => {
      clearTimeout(timeout)
      reject(signal?.reason)
    }
    const timeout = setTimeout(() => {
      signal?.removeEventListener('abort', abort)
      resolve()
    }, ms)
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
