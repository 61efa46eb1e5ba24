/** A TCP relay on the way to a server, which delays what passes, or resets connections at their first bytes. */

import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { resetNow } from './reset-now.ts'

export class Relay implements AsyncDisposable {
  /** Delay of each piece. */
  latencyMs = 0
  /** So many of the next connections are reset. */
  resets = 0
  /** All that were accepted. */
  connections = 0
  readonly #sockets = new Set<Socket>()
  readonly #server = createServer({ allowHalfOpen: true }, (client) => this.#accept(client))
  readonly #targetPort: number

  private constructor(targetPort: number) {
    this.#targetPort = targetPort
  }

  static async to(targetPort: number): Promise<Relay> {
    const relay = new Relay(targetPort)
    relay.#server.listen(0, '127.0.0.1')
    await once(relay.#server, 'listening')
    return relay
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const closed = once(this.#server, 'close')
    this.#server.close()
    for (const socket of this.#sockets) socket.destroy()
    await closed
  }

  #accept(client: Socket): void {
    this.connections++
    this.#hold(client)
    if (this.resets > 0) {
      this.resets--
      client.once('data', () => resetNow(client))
      return
    }
    const server = connect({ host: '127.0.0.1', port: this.#targetPort, allowHalfOpen: true })
    this.#hold(server)
    for (const socket of [client, server]) socket.on('error', () => [client, server].forEach(resetNow))
    void this.#pump(client, server)
    void this.#pump(server, client)
  }

  #hold(socket: Socket): void {
    this.#sockets.add(socket)
    socket.setNoDelay(true)
    socket.on('close', () => this.#sockets.delete(socket))
    socket.on('error', () => undefined) // only the close after it counts
  }

  async #pump(from: Socket, to: Socket): Promise<void> {
    try {
      // The iterator would close the whole socket at the end of one half.
      for await (const chunk of from.iterator({ destroyOnReturn: false })) {
        if (this.latencyMs > 0) await sleep(this.latencyMs)
        if (to.writable) to.write(chunk)
      }
      to.end()
    } catch {
      resetNow(from)
      resetNow(to)
    }
  }
}
