/**
 * Connects to a name that may have several addresses (RFC 8305). The attempts overlap: the next one starts when one has failed
 * or 250 ms have passed, and none ends before one has succeeded. Node's own way gives an address 250 ms and then gives it up,
 * so it never reaches a service that is farther away than that.
 */

import dns, { type LookupAddress } from 'node:dns'
import type { Socket } from 'node:net'

export type Lookup = (
  host: string,
  options: { readonly all: true; readonly hints: number },
  done: (error: Error | null, addresses: LookupAddress[]) => void,
) => void

/** RFC 8305 §5. */
const ATTEMPT_DELAY_MS = 250

export class AddressRace {
  readonly #connect: (address: string) => Socket
  readonly #done: (result: Socket | Error) => void
  /** Not tried yet. */
  #addresses: string[] = []
  readonly #attempts = new Set<Socket>()
  #failure: NodeJS.ErrnoException | undefined
  #timer: NodeJS.Timeout | undefined
  #isOver = false

  /** `connect` opens a socket. Calls `done` once, with the first that has connected, or with an error. */
  constructor(
    host: string,
    connect: (address: string) => Socket,
    done: (result: Socket | Error) => void,
    lookup: Lookup = dns.lookup,
  ) {
    this.#connect = connect
    this.#done = done
    // As Node does it: no question for IPv6 addresses where the machine has none.
    lookup(host, { all: true, hints: dns.ADDRCONFIG }, (error, found) => {
      if (this.#isOver) return
      if (error !== null) {
        this.#finish(error)
        return
      }
      this.#addresses = inTurns(found)
      this.#startNext()
    })
  }

  /** Ends all attempts. `done` is not called any more. */
  giveUp(): void {
    if (!this.#isOver) this.#finish()
  }

  #startNext(): void {
    clearTimeout(this.#timer)
    const address = this.#addresses.shift()
    if (address === undefined) return
    const attempt = this.#connect(address)
    this.#attempts.add(attempt)
    attempt.once('connect', () => this.#finish(attempt))
    attempt.on('error', (error) => this.#failed(attempt, error))
    if (this.#addresses.length > 0) this.#timer = setTimeout(() => this.#startNext(), ATTEMPT_DELAY_MS)
  }

  #failed(attempt: Socket, error: Error): void {
    this.#attempts.delete(attempt)
    if (this.#isOver) return
    // Of several failures, the first tells most, but a family that this machine cannot reach at all tells nothing.
    if (this.#failure === undefined || this.#failure.code === 'ENETUNREACH') this.#failure = error
    if (this.#addresses.length > 0) this.#startNext()
    else if (this.#attempts.size === 0) this.#finish(this.#failure)
  }

  #finish(result?: Socket | Error): void {
    this.#isOver = true
    clearTimeout(this.#timer)
    for (const attempt of this.#attempts) if (attempt !== result) attempt.destroy()
    if (result !== undefined) this.#done(result)
  }
}

/** The families take turns, and the first is that of the first address: one family may be unreachable (RFC 8305 §4). */
function inTurns(found: readonly LookupAddress[]): string[] {
  const first = found.filter(({ family }) => family === found[0]?.family)
  const others = found.filter(({ family }) => family !== found[0]?.family)
  const length = Math.max(first.length, others.length)
  return Array.from({ length }, (_, i) => [first[i], others[i]])
    .flat()
    .flatMap((entry) => (entry === undefined ? [] : [entry.address]))
}
