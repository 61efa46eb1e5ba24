/**
 * A response on its way to the client, and its connection's future. It stands in the place of Node's `ServerResponse`, which
 * costs several microseconds for each request: the relay writes text that is complete, and the connection takes one request at a time.
 */

import type { Socket } from 'node:net'

export class ClientResponse {
  readonly socket: Socket
  /** False if the connection closes behind this response. Written in its head. */
  keepsAlive: boolean
  /** True once a byte of it may have reached the client. */
  hasStarted = false
  /** True once the last of it has been written, or waits for nothing but its turn. */
  isEnded = false
  /** True once the system has taken all of it. */
  isFlushed = false
  readonly #onFlushed: (() => void)[] = []

  constructor(socket: Socket, keepsAlive: boolean) {
    this.socket = socket
    this.keepsAlive = keepsAlive
  }

  /** `text` is in latin1. */
  write(text: string): void {
    if (text === '') return
    this.hasStarted = true
    this.socket.write(text, 'latin1')
  }

  /** Writes the `last` text. Returns true if the system has taken everything. */
  end(last: string): boolean {
    // Under TLS no write is done at once, and an empty one behind it would cost a system call of its own.
    const isEncrypted = 'encrypted' in this.socket && last !== ''
    if (!isEncrypted) this.write(last)
    if (isEncrypted || this.socket.writableLength > 0) this.endLater(isEncrypted ? last : '')
    else this.isFlushed = true
    this.isEnded = true
    return this.isFlushed
  }

  /** The same, but the connection goes on in a later tick: a chain of requests that are refused at once must not keep others waiting. */
  endLater(last: string): void {
    this.hasStarted = true
    this.isEnded = true
    this.socket.write(last, 'latin1', (error) => {
      if (error != null) return
      this.isFlushed = true
      for (const then of this.#onFlushed) then()
    })
  }

  /** Calls `then` once the system has taken all of it. Not called if the connection breaks before. */
  whenFlushed(then: () => void): void {
    if (this.isFlushed) then()
    else this.#onFlushed.push(then)
  }
}
