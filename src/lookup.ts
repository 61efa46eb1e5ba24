/**
 * Look-ups of names, for every connection that the program opens. libuv gives look-ups half of its threads (`UV_THREADPOOL_SIZE`).
 * So each name is asked for once at a time: if the look-up of one name hangs, those of the others still get a thread. A resolver
 * that is away is no outage: the last good addresses of a name are used.
 */

import dns, { type LookupAddress } from 'node:dns'
import type { LookupFunction } from 'node:net'
import * as clock from './clock.ts'
import type { PartWarnings } from './part.ts'

/** Whoever wants a connection waits for so long before it gets the last good addresses. */
const LATE_MS = 500
/** A name whose look-up has failed is asked for again after it, so that its state is known without a new connection. */
const AGAIN_MS = 5_000
/** A name that nobody has wanted for so long is forgotten if its look-up fails. */
const FORGOTTEN_MS = 10 * 60_000

export class Names {
  readonly #names = new Map<string, Name>()

  /** As `net.connect` takes it. Nobody here wants the addresses of one family alone. */
  readonly lookup: LookupFunction = (host, { all }, done) => {
    const name = this.#names.get(host) ?? new Name(host, () => this.#names.delete(host))
    this.#names.set(host, name)
    name.want((result) => {
      if (result instanceof Error) done(result, [])
      else if (all === true) done(null, [...result])
      else done(null, result[0].address, result[0].family)
    })
  }

  /** Of the names whose look-up fails now, or takes long. */
  warnings(): PartWarnings {
    const failing = [...this.#names].flatMap(([name, { problem, isKnown }]) => {
      if (problem === undefined) return []
      const effect = isKnown ? 'its last good addresses are used' : 'no address of it is known'
      return `The look-up of ${name} ${problem}: ${effect}.`
    })
    if (failing.length === 0) return {}
    return { name_unresolved: `${failing.join(' ')} Check the resolver of this machine and the name.` }
  }

  close(): void {
    for (const name of this.#names.values()) name.close()
  }
}

type Addresses = readonly [LookupAddress, ...LookupAddress[]]
type Done = (result: Addresses | Error) => void

class Name {
  readonly #host: string
  readonly #forget: () => void
  #known: Addresses | undefined
  /** Those that wait for the question that is under way. */
  #waiting: Done[] = []
  #isAsking = false
  #isClosed = false
  #wantedAt = 0
  /** Until the question is late, or is asked again. */
  #timer: clock.Timer | undefined
  /** Of the last question. */
  problem: string | undefined

  constructor(host: string, forget: () => void) {
    this.#host = host
    this.#forget = forget
  }

  get isKnown(): boolean {
    return this.#known !== undefined
  }

  want(done: Done): void {
    this.#wantedAt = clock.now()
    this.#waiting.push(done)
    if (!this.#isAsking) this.#ask()
    else if (this.problem === LATE) this.#serve(this.#known)
  }

  close(): void {
    this.#isClosed = true
    this.#timer?.cancel()
  }

  #ask(): void {
    this.#isAsking = true
    this.#timer?.cancel()
    this.#timer = clock.after(LATE_MS, () => this.#isLate())
    // As Node does it: no question for IPv6 addresses where the machine has none.
    dns.lookup(this.#host, { all: true, hints: dns.ADDRCONFIG }, (error, found) => this.#answered(error, found))
  }

  #isLate(): void {
    this.problem = LATE
    this.#serve(this.#known)
  }

  #answered(error: NodeJS.ErrnoException | null, found: readonly LookupAddress[] = []): void {
    this.#isAsking = false
    this.#timer?.cancel()
    const [first, ...others] = found
    if (error === null && first !== undefined) {
      this.problem = undefined
      this.#known = [first, ...others]
      this.#serve(this.#known)
      return
    }
    const failure = error ?? Object.assign(new Error('no address'), { code: 'ENOTFOUND', syscall: 'getaddrinfo' })
    this.problem = `fails (${failure.code})`
    if (!this.#isClosed) this.#timer = clock.after(AGAIN_MS, () => this.#askAgain())
    this.#serve(this.#known ?? failure)
  }

  #askAgain(): void {
    if (clock.now() - this.#wantedAt < FORGOTTEN_MS) this.#ask()
    else this.#forget()
  }

  /** Without a result, they go on waiting. */
  #serve(result: Addresses | Error | undefined): void {
    if (result === undefined) return
    const waiting = this.#waiting
    this.#waiting = []
    for (const done of waiting) done(result)
  }
}

const LATE = 'takes long'
