/** A proxy on the way to the origin: accepts only CONNECT, and records its requests. */

import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net'
import { ByteReader, StreamEnded } from './byte-reader.ts'
import { Changes } from './changes.ts'
import { readHead, valuesOf } from './http-message.ts'
import { resetNow } from './reset-now.ts'

/** Its behaviour for a CONNECT. `late`: opens the tunnel when `release` is called. */
export type Behaviour = 'open' | 'late' | 'hang' | 'reset' | 'end' | `refuse with ${number}`

export interface ConnectRequest {
  readonly line: string
  /** Decoded credentials. Undefined if there are none. */
  readonly credentials: string | undefined
}

export class ConnectProxy implements AsyncDisposable {
  readonly requests: ConnectRequest[] = []
  behaviour: Behaviour = 'open'
  release: () => void = () => {}
  readonly #server: Server
  readonly #sockets = new Set<Socket>()
  readonly #changes = new Changes()

  constructor() {
    this.#server = createServer((socket) => {
      this.#keep(socket)
      void this.#serve(socket).catch((error: unknown) => {
        if (!(error instanceof StreamEnded)) throw error
        socket.destroy()
      })
    })
  }

  async listen(): Promise<this> {
    this.#server.listen(0, '127.0.0.1')
    await once(this.#server, 'listening')
    return this
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port
  }

  /** As a variable of the environment names it. */
  url(userInfo = ''): string {
    return `http://${userInfo}127.0.0.1:${this.port}`
  }

  /** Open connections on both sides. */
  get openSockets(): number {
    return this.#sockets.size
  }

  waitFor(condition: (proxy: this) => boolean, what: string, deadlineMs?: number): Promise<void> {
    return this.#changes.until(() => condition(this), what, deadlineMs)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const closed = once(this.#server, 'close')
    this.#server.close()
    for (const socket of this.#sockets) socket.destroy()
    await closed
  }

  #keep(socket: Socket): void {
    this.#sockets.add(socket)
    socket.on('error', () => {})
    socket.once('close', () => {
      this.#sockets.delete(socket)
      this.#changes.notify()
    })
  }

  async #serve(socket: Socket): Promise<void> {
    const reader = new ByteReader(socket)
    const { startLine, fields } = await readHead(reader)
    const [authorization] = valuesOf(fields, 'proxy-authorization')
    const encoded = authorization === undefined ? undefined : authorization.replace(/^Basic /, '')
    const credentials = encoded === undefined ? undefined : Buffer.from(encoded, 'base64').toString()
    this.requests.push({ line: startLine, credentials })
    this.#changes.notify()
    const { behaviour } = this
    switch (behaviour) {
      case 'open':
        await this.#carry(socket, startLine)
        return
      case 'late':
        this.release = () => socket.write('HTTP/1.1 200 Connection established\r\n\r\n')
        return
      case 'hang':
        return
      case 'reset':
        resetNow(socket)
        return
      case 'end':
        socket.end()
        return
      default:
        socket.end(`HTTP/1.1 ${behaviour.slice('refuse with '.length)} No\r\nContent-Length: 0\r\n\r\n`)
    }
  }

  async #carry(socket: Socket, line: string): Promise<void> {
    const [, host = '', port = ''] = /^CONNECT (.+):(\d+) HTTP\/1\.1$/.exec(line) ?? []
    const target = connect(Number(port), host.replace(/^\[|\]$/g, ''))
    this.#keep(target)
    await once(target, 'connect')
    socket.removeAllListeners('data')
    socket.write('HTTP/1.1 200 Connection established\r\n\r\n')
    socket.pipe(target).pipe(socket)
    socket.once('close', () => target.destroy())
    target.once('close', () => socket.destroy())
  }
}

export function startConnectProxy(): Promise<ConnectProxy> {
  return new ConnectProxy().listen()
}
