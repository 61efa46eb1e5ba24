/** The addresses of one host, and which of them to try first (RFC 8305, Happy Eyeballs). */

import type { LookupAddress } from 'node:dns'
import { isIP, type LookupFunction, type Socket } from 'node:net'
import * as clock from '../clock.ts'

/** The next address is tried after it, while those before go on: one that is far away is reached, too. */
const LATE_MS = 250
/** An address that failed, or was late, comes behind the others for so long. Then a connection shows whether it is back. */
const BEHIND_MS = 300_000

export class Addresses {
  readonly #host: string
  readonly #lookup: LookupFunction
  readonly #limitMs: number
  /** By address, until when it comes behind the others. Monotonic milliseconds. */
  readonly #behind = new Map<string, number>()

  /** All addresses are tried within `limitMs`. */
  constructor(host: string, lookup: LookupFunction, limitMs: number) {
    this.#host = host
    this.#lookup = lookup
    this.#limitMs = limitMs
  }

  /**
   * Opens a socket to one address after the other, until one is connected. Calls `done` once, with that one; the others are closed.
   * Returns a function that gives up; `done` is not called then.
   */
  connect(open: (address: string) => Socket, done: (result: Socket | Error) => void): () => void {
    const trying = new Map<Socket, string>()
    const errors: Error[] = []
    let waiting: string[] = []
    let lateMs = 0
    let timer: clock.Timer | undefined
    let isOver = false
    const end = () => {
      isOver = true
      timer?.cancel()
      for (const socket of trying.keys()) socket.destroy()
    }
    const tryNext = () => {
      timer?.cancel()
      const address = waiting.shift()
      if (address === undefined) return
      if (waiting.length > 0) timer = clock.after(lateMs, tryNext)
      const socket = open(address)
      trying.set(socket, address)
      socket.once('connect', () => {
        if (isOver) return
        trying.delete(socket)
        this.#behind.delete(address)
        for (const overtaken of trying.values()) this.#putBehind(overtaken)
        end()
        done(socket)
      })
      socket.on('error', (error) => {
        if (!trying.delete(socket) || isOver) return
        this.#putBehind(address)
        errors.push(error)
        if (waiting.length > 0) tryNext()
        else if (trying.size === 0) done(errors.length === 1 ? error : new AggregateError(errors))
      })
    }
    const start = (addresses: readonly string[]) => {
      waiting = this.#ordered(addresses)
      lateMs = Math.min(LATE_MS, this.#limitMs / (addresses.length + 1))
      if (!isOver) tryNext()
    }
    if (isIP(this.#host) !== 0) start([this.#host])
    else {
      this.#lookup(this.#host, { all: true }, (error, found) => {
        if (error === null) start(interleaved(found as LookupAddress[]))
        else if (!isOver) done(error)
      })
    }
    return end
  }

  #putBehind(address: string): void {
    this.#behind.set(address, clock.now() + BEHIND_MS)
  }

  #ordered(addresses: readonly string[]): string[] {
    const now = clock.now()
    for (const [address, until] of this.#behind) if (until <= now) this.#behind.delete(address)
    const isBehind = (address: string) => this.#behind.has(address)
    return [...addresses.filter((address) => !isBehind(address)), ...addresses.filter(isBehind)]
  }
}

/** The two families in turn, as a whole family may be out of reach. */
function interleaved(found: readonly LookupAddress[]): readonly string[] {
  const first = found.filter(({ family }) => family === found[0]?.family)
  const other = found.filter(({ family }) => family !== found[0]?.family)
  const pairs = Array.from({ length: Math.max(first.length, other.length) }, (_, i) => [first[i], other[i]])
  return pairs.flat().flatMap((each) => each?.address ?? [])
}
