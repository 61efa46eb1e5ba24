/** A connection of a scripted peer: it writes as fast as the kernel takes it, or slower, and reads as its script says. */

import type { Endpoint } from '../world/tcp.ts'
import type { World } from '../world/world.ts'

/** So much at once, and then a pause. */
export interface Pace {
  readonly bytes: number
  readonly everyMs: number
}

export interface WireEvents {
  data(bytes: Buffer): void
  /** `reset`: also if the kernel took no more of what was written. */
  ended(how: 'end' | 'reset'): void
}

const AT_ONCE: Pace = { bytes: Number.POSITIVE_INFINITY, everyMs: 0 }

export class Wire {
  readonly endpoint: Endpoint
  readonly #world: World
  readonly #events: WireEvents
  readonly #toWrite: Buffer[] = []
  writePace = AT_ONCE
  readPace = AT_ONCE
  isReading = true
  #mayWriteAt = 0
  #mayReadAt = 0
  #isEnding = false
  /** No more comes from the peer. */
  hasEnded = false
  isClosed = false
  writtenBytes = 0
  /** Called when all that was to be written has gone to the kernel. */
  onWritten: () => void = () => undefined

  constructor(world: World, endpoint: Endpoint, events: WireEvents) {
    this.#world = world
    this.endpoint = endpoint
    this.#events = events
    endpoint.onChange = () => this.#work()
  }

  get pendingBytes(): number {
    return this.#toWrite.reduce((sum, { length }) => sum + length, 0)
  }

  write(bytes: Buffer | string): void {
    const piece = typeof bytes === 'string' ? Buffer.from(bytes, 'latin1') : bytes
    if (piece.length > 0) this.#toWrite.push(piece)
    this.#work()
  }

  /** Ends our side when all has been written. */
  end(): void {
    this.#isEnding = true
    this.#work()
  }

  /** What has not been written is dropped. */
  close(): void {
    this.isClosed = true
    this.endpoint.close()
  }

  reset(): void {
    this.isClosed = true
    this.endpoint.reset()
  }

  read(isReading: boolean, pace = this.readPace): void {
    this.isReading = isReading
    this.readPace = pace
    this.#work()
  }

  begin(): void {
    this.#work()
  }

  #work(): void {
    this.#writeSome()
    this.#readSome()
  }

  #writeSome(): void {
    const { now } = this.#world
    while (!this.isClosed && this.#toWrite.length > 0 && now >= this.#mayWriteAt) {
      const first = this.#toWrite[0] as Buffer
      const result = this.endpoint.write(first.subarray(0, this.writePace.bytes))
      if (typeof result === 'string') {
        this.#toWrite.length = 0
        return // what has come can still be read
      }
      if (result === 0) return
      this.writtenBytes += result
      if (result === first.length) this.#toWrite.shift()
      else this.#toWrite[0] = first.subarray(result)
      if (this.writePace.everyMs > 0) {
        this.#mayWriteAt = now + this.writePace.everyMs
        this.#world.after(this.writePace.everyMs, () => this.#work())
      }
      if (this.#toWrite.length === 0) this.onWritten()
    }
    if (this.#toWrite.length > 0 || !this.#isEnding || this.isClosed) return
    this.#isEnding = false
    this.endpoint.shutdown()
  }

  #readSome(): void {
    const { now } = this.#world
    while (!this.isClosed && this.isReading && !this.hasEnded && now >= this.#mayReadAt) {
      const bytes = this.endpoint.read(Math.min(this.readPace.bytes, 64 * 1024))
      if (bytes === undefined) return
      if (typeof bytes === 'string') {
        this.hasEnded = true
        this.#events.ended(bytes === 'end' ? 'end' : 'reset')
        return
      }
      if (this.readPace.everyMs > 0) {
        this.#mayReadAt = now + this.readPace.everyMs
        this.#world.after(this.readPace.everyMs, () => this.#work())
      }
      this.#events.data(bytes)
    }
  }
}
