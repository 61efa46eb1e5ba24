/**
 * The event loop of one simulated process, as libuv 1.46 and Node 20 have it. A turn: callbacks that the turn before left, sockets,
 * immediates, closed handles, timers. Behind each callback, ticks and promises run.
 */

import type { World } from './world.ts'

/** As `process._tickCallback` is not declared. */
const node = process as typeof process & { _tickCallback(): void }

/** A socket that may have something to tell. */
export interface Watcher {
  /** True while the process wants to hear of what there is. */
  readonly isReady: boolean
  /** The process hears of it. */
  poll(): void
}

/** How the process stands still: in what it does when it cannot be on the processor. */
export type Stall = 'asleep' | 'interrupted'

const LONGEST_TIMER_MS = 2 ** 31 - 1

export class Loop {
  readonly world: World
  readonly #watchers = new Set<Watcher>()
  #pending: (() => void)[] = []
  #immediates: Immediate[] = []
  #closing: (() => void)[] = []
  readonly timers: Timers
  /** It cannot run before. */
  #busyUntil = 0
  /** The time limits that have passed come before the sockets. */
  #isInterrupted = false
  #isEnded = false
  /** What a turn costs, in milliseconds. */
  readonly #turnMs: () => number

  constructor(world: World, turnMs: () => number = () => 0) {
    this.world = world
    this.#turnMs = turnMs
    this.timers = new Timers(this)
    world.add(this)
  }

  get wakesAt(): number {
    if (this.#isEnded) return Number.POSITIVE_INFINITY
    const hasWork = this.#pending.length > 0 || this.#immediates.length > 0 || this.#closing.length > 0
    return Math.max(this.#busyUntil, hasWork || this.#hasReady ? this.world.now : this.timers.nextAt)
  }

  get #hasReady(): boolean {
    for (const watcher of this.#watchers) if (watcher.isReady) return true
    return false
  }

  /** Something may have happened to it. */
  wake(watcher: Watcher): void {
    this.#watchers.add(watcher)
  }

  /** In the next turn, before the sockets. */
  next(callback: () => void): void {
    this.#pending.push(callback)
  }

  closed(callback: () => void): void {
    this.#closing.push(callback)
  }

  /**
   * The process stands still. `asleep`: it slept in the kernel, and hears first what has come. `interrupted`: a signal had stopped it
   * (SIGSTOP: epoll_pwait returns EINTR), or it was in its own code; then its timers are first.
   */
  stall(lengthMs: number, kind: Stall): void {
    this.#busyUntil = Math.max(this.#busyUntil, this.world.now + lengthMs)
    this.#isInterrupted = kind === 'interrupted'
  }

  /** It was killed. */
  end(): void {
    this.#isEnded = true
  }

  turn(): void {
    const isInterrupted = this.#isInterrupted
    this.#isInterrupted = false
    if (!isInterrupted) this.#poll()
    const immediates = this.#immediates
    this.#immediates = []
    for (const immediate of immediates) if (!immediate.isCleared) this.call(immediate.run)
    const closing = this.#closing
    this.#closing = []
    for (const callback of closing) this.call(callback)
    this.timers.run()
    this.#busyUntil = Math.max(this.#busyUntil, this.world.now + this.#turnMs())
  }

  #poll(): void {
    const pending = this.#pending
    this.#pending = []
    for (const callback of pending) this.call(callback)
    for (const watcher of [...this.#watchers]) {
      if (watcher.isReady) watcher.poll()
      if (!watcher.isReady) this.#watchers.delete(watcher)
    }
  }

  /** How often the process was called: between two calls, nothing changes in it. */
  calls = 0

  /** From outside, as libuv calls Node. */
  call(callback: () => void): void {
    this.calls++
    try {
      callback()
    } catch (error) {
      this.world.faults.push(`uncaught: ${error instanceof Error ? error.stack : error}`)
    }
    try {
      node._tickCallback()
    } catch (error) {
      this.world.faults.push(`uncaught: ${error instanceof Error ? error.stack : error}`)
    }
  }

  readonly setImmediate = (callback: (...args: unknown[]) => void, ...args: unknown[]): Immediate => {
    const immediate = new Immediate(() => callback(...args))
    this.#immediates.push(immediate)
    return immediate
  }

  readonly clearImmediate = (immediate: unknown): void => {
    if (immediate instanceof Immediate) immediate.isCleared = true
  }
}

class Immediate {
  readonly run: () => void
  isCleared = false

  constructor(run: () => void) {
    this.run = run
  }

  ref = () => this
  unref = () => this
  hasRef = () => true
}

/** Node's timers: a list for each duration, of which the one whose first timer ends first runs as a whole (lib/internal/timers.js). */
class Timers {
  readonly #loop: Loop
  readonly #lists = new Map<number, TimerList>()
  /** Each timer tells where it was set. */
  tellsOrigin = false
  #lastId = 0

  constructor(loop: Loop) {
    this.#loop = loop
  }

  /** libuv has whole milliseconds. */
  get #now(): number {
    return Math.floor(this.#loop.world.now)
  }

  get nextAt(): number {
    return this.#first()?.expiresAt ?? Number.POSITIVE_INFINITY
  }

  /** Timers that are set, as Node's `process.getActiveResourcesInfo` tells them. */
  get active(): readonly Timer[] {
    return [...this.#lists.values()].flatMap(({ timers }) => [...timers])
  }

  #first(): TimerList | undefined {
    let first: TimerList | undefined
    for (const list of this.#lists.values()) {
      const isSooner = first === undefined || list.expiresAt < first.expiresAt
      if (isSooner || (list.expiresAt === first?.expiresAt && list.id < first.id)) first = list
    }
    return first
  }

  insert(timer: Timer): void {
    timer.startedAt = this.#now
    const list = this.#lists.get(timer.delayMs)
    if (list !== undefined) list.timers.add(timer)
    else {
      const expiresAt = timer.startedAt + timer.delayMs
      this.#lists.set(timer.delayMs, { id: this.#lastId++, timers: new Set([timer]), expiresAt })
    }
  }

  remove(timer: Timer): void {
    const list = this.#lists.get(timer.delayMs)
    list?.timers.delete(timer)
    if (list?.timers.size === 0) this.#lists.delete(timer.delayMs)
  }

  run(): void {
    const now = this.#now
    for (let list = this.#first(); list !== undefined && list.expiresAt <= now; list = this.#first()) {
      for (const timer of list.timers) {
        if (now - timer.startedAt < timer.delayMs) {
          list.expiresAt = Math.max(timer.startedAt + timer.delayMs, now + 1)
          list.id = this.#lastId++
          break
        }
        this.remove(timer)
        this.#loop.call(timer.run)
        if (timer.isRepeated && !timer.isCleared) this.insert(timer)
      }
    }
  }

  readonly setTimeout = (callback: (...args: unknown[]) => void, delayMs?: number, ...args: unknown[]): Timer =>
    new Timer(this, () => callback(...args), delayMs, false)

  readonly setInterval = (callback: (...args: unknown[]) => void, delayMs?: number, ...args: unknown[]): Timer =>
    new Timer(this, () => callback(...args), delayMs, true)

  readonly clear = (timer: unknown): void => {
    if (timer instanceof Timer) timer.close()
  }
}

interface TimerList {
  id: number
  readonly timers: Set<Timer>
  expiresAt: number
}

class Timer {
  readonly #timers: Timers
  readonly run: () => void
  readonly delayMs: number
  readonly isRepeated: boolean
  /** Where it was set. */
  readonly origin: string | undefined
  startedAt = 0
  isCleared = false
  isReferenced = true

  constructor(timers: Timers, run: () => void, delayMs: unknown, isRepeated: boolean) {
    const given = Number(delayMs)
    if (timers.tellsOrigin) this.origin = new Error('set here').stack
    this.#timers = timers
    this.run = run
    this.delayMs = given >= 1 && given <= LONGEST_TIMER_MS ? Math.trunc(given) : 1
    this.isRepeated = isRepeated
    timers.insert(this)
  }

  close(): this {
    this.isCleared = true
    this.#timers.remove(this)
    return this
  }

  refresh(): this {
    if (this.isCleared) return this
    this.#timers.remove(this)
    this.#timers.insert(this)
    return this
  }

  ref(): this {
    this.isReferenced = true
    return this
  }

  unref(): this {
    this.isReferenced = false
    return this
  }

  hasRef(): boolean {
    return this.isReferenced
  }

  [Symbol.dispose](): void {
    this.close()
  }
}
