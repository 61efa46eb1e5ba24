/** The watch over a client that takes none of its response. */

import type { Socket } from 'node:net'
import { performance } from 'node:perf_hooks'
import type { SendQueues } from './send-queues.ts'

export class WriteWatch {
  readonly #socket: Socket
  readonly #queues: SendQueues
  readonly #onStalled: () => void
  #sentBytes = 0
  /** When it was last seen to take something. */
  #movedAt = 0
  /** Held by the kernel when it was last looked at; undefined while the socket itself moves. */
  #queuedBytes: number | undefined
  #isLooking = false

  constructor(socket: Socket, queues: SendQueues, onStalled: () => void) {
    this.#socket = socket
    this.#queues = queues
    this.#onStalled = onStalled
  }

  /** To be called several times within the limit. `now` in monotonic milliseconds. */
  check(now: number, limitMs: number): void {
    const sent = this.#sent()
    if (this.#socket.writableLength === 0 || sent !== this.#sentBytes) {
      this.#sentBytes = sent
      this.#movedAt = now
      this.#queuedBytes = undefined
      return
    }
    const isDue = now - this.#movedAt >= limitMs
    if (this.#isLooking || (this.#queuedBytes !== undefined && !isDue)) return
    this.#isLooking = true
    this.#look(sent, isDue).catch(this.#onStalled)
  }

  /** Once when the socket stops moving, and again when that has lasted too long. */
  async #look(sent: number, isDue: boolean): Promise<void> {
    const before = this.#queuedBytes ?? 0
    const queuedBytes = (await this.#queues.bytesFor(this.#socket)) ?? 0
    this.#isLooking = false
    if (this.#sent() !== sent) return
    this.#queuedBytes = queuedBytes
    if (!isDue) return
    if (queuedBytes < before) this.#movedAt = performance.now()
    else this.#onStalled()
  }

  /** Octets handed to the kernel. */
  #sent(): number {
    return this.#socket.bytesWritten - this.#socket.writableLength
  }
}
