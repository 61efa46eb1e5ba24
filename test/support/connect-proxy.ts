/** A proxy on the way to the origin: accepts only CONNECT, and records its requests. */

import { createServer, type IncomingMessage } from 'node:http'
import { connect, type Socket } from 'node:net'
import { Changes } from './changes.ts'
import { type Listening, listening } from './listening.ts'
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
  /** Opens the tunnel. */
  answer = 'HTTP/1.1 200 Connection established\r\n\r\n'
  release: () => void = () => {}
  readonly #sockets = new Set<Socket>()
  readonly #changes = new Changes()
  #listening: Listening | undefined

  async listen(): Promise<this> {
    const server = createServer().on('connection', (socket) => this.#keep(socket))
    server.on('connect', (request, socket) => this.#answer(request, socket as Socket))
    this.#listening = await listening(server)
    return this
  }

  /** As a variable of the environment names it. */
  url(userInfo = ''): string {
    return `http://${userInfo}127.0.0.1:${this.#listening?.port}`
  }

  /** Open connections on both sides. */
  get openSockets(): number {
    return this.#sockets.size
  }

  waitFor(condition: (proxy: this) => boolean, what: string, deadlineMs?: number): Promise<void> {
    return this.#changes.until(() => condition(this), what, deadlineMs)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#listening?.[Symbol.asyncDispose]()
  }

  #keep(socket: Socket): void {
    this.#sockets.add(socket)
    socket.on('error', () => {})
    socket.once('close', () => {
      this.#sockets.delete(socket)
      this.#changes.notify()
    })
  }

  #answer({ url = '', httpVersion, headers }: IncomingMessage, socket: Socket): void {
    const encoded = headers['proxy-authorization']?.replace(/^Basic /, '')
    const credentials = encoded === undefined ? undefined : Buffer.from(encoded, 'base64').toString()
    this.requests.push({ line: `CONNECT ${url} HTTP/${httpVersion}`, credentials })
    this.#changes.notify()
    socket.on('end', () => socket.end()).resume()
    const { behaviour } = this
    if (behaviour === 'open') this.#carry(socket, new URL(`tcp://${url}`))
    else if (behaviour === 'late') this.release = () => socket.write(this.answer)
    else if (behaviour === 'reset') resetNow(socket)
    else if (behaviour === 'end') socket.end()
    else if (behaviour !== 'hang')
      socket.end(`HTTP/1.1 ${behaviour.slice('refuse with '.length)} No\r\nContent-Length: 0\r\n\r\n`)
  }

  #carry(socket: Socket, { hostname, port }: URL): void {
    const target = connect(Number(port), hostname.replace(/^\[|\]$/g, ''))
    this.#keep(target)
    target.once('connect', () => {
      socket.write(this.answer)
      socket.pipe(target).pipe(socket)
    })
    socket.once('close', () => target.destroy())
    target.once('close', () => socket.destroy())
  }
}

export function startConnectProxy(): Promise<ConnectProxy> {
  return new ConnectProxy().listen()
}
