/**
 * A service for many requests: answers with the org of the token, and at every rotation forgets the tokens from before the
 * last rotation. It keeps counts instead of bytes, and accepts only requests without content.
 */

import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net'
import type { ServiceIdentity } from './proxy-process.ts'

export interface RotatingServiceOptions {
  /** By default no rotation. */
  readonly rotatesEveryMs?: number
  /** Others are refused with 404. */
  readonly isLinked?: (org: string) => boolean
}

const MINT = /^POST \/v2\/orgs\/([^/]+)\/access /
const GET = /^GET (\S+) /
const AUTHORIZATION = /\r\nauthorization: ([^\r]*)\r\n/i

export class RotatingService implements ServiceIdentity, AsyncDisposable {
  readonly appId = 'app-under-test'
  readonly appSecret: string = randomBytes(12).toString('hex')
  /** Calls of the token endpoint, and the most at one time. */
  mints = 0
  /** Instants of these calls, by the monotonic clock. */
  readonly mintedAt: number[] = []
  /** Requests with a good token, and with a forgotten one. */
  accepted = 0
  rejected = 0
  /** Requests for `/v2/as/ORG` with the good token of another org: there must be none. */
  readonly mismatches: string[] = []
  readonly #server: Server
  readonly #sockets = new Set<Socket>()
  readonly #isLinked: (org: string) => boolean
  readonly #authorization: string
  readonly #rotation: NodeJS.Timeout | undefined
  #current = new Map<string, string>()
  #previous = new Map<string, string>()

  constructor({ rotatesEveryMs, isLinked = () => true }: RotatingServiceOptions) {
    this.#isLinked = isLinked
    this.#authorization = `Basic ${Buffer.from(`${this.appId}:${this.appSecret}`).toString('base64')}`
    this.#server = createServer({ noDelay: true }, (socket) => this.#serve(socket))
    if (rotatesEveryMs === undefined) return
    this.#rotation = setInterval(() => {
      this.#previous = this.#current
      this.#current = new Map()
    }, rotatesEveryMs)
  }

  get baseUrl(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`
  }

  async listen(): Promise<void> {
    this.#server.listen(0, '127.0.0.1')
    await once(this.#server, 'listening')
  }

  async [Symbol.asyncDispose](): Promise<void> {
    clearInterval(this.#rotation)
    const closed = once(this.#server, 'close')
    this.#server.close()
    for (const socket of this.#sockets) socket.destroy()
    await closed
  }

  #serve(socket: Socket): void {
    let received = ''
    this.#sockets.add(socket)
    socket.setEncoding('latin1')
    socket.on('error', () => socket.destroy())
    socket.once('close', () => this.#sockets.delete(socket))
    socket.on('data', (text: string) => {
      received += text
      for (let end = received.indexOf('\r\n\r\n'); end !== -1; end = received.indexOf('\r\n\r\n')) {
        socket.write(this.#answer(received.slice(0, end + 4)))
        received = received.slice(end + 4)
      }
    })
  }

  #answer(head: string): string {
    const authorization = AUTHORIZATION.exec(head)?.[1] ?? ''
    const [, segment] = MINT.exec(head) ?? []
    if (segment !== undefined) return this.#mint(decodeURIComponent(segment), authorization)
    const token = authorization.replace('Bearer ', '')
    const org = this.#current.get(token) ?? this.#previous.get(token)
    if (org === undefined) {
      this.rejected += 1
      return reply('401 Unauthorized', 'not a good token')
    }
    this.accepted += 1
    const [, target] = GET.exec(head) ?? []
    if (target !== `/v2/as/${org}`) this.mismatches.push(`${target} with the token of ${org}`)
    return reply('200 OK', org)
  }

  #mint(org: string, authorization: string): string {
    this.mints += 1
    this.mintedAt.push(performance.now())
    if (authorization !== this.#authorization) return reply('401 Unauthorized', '')
    if (!this.#isLinked(org)) return reply('404 Not Found', '')
    const token = `${this.mints}-${randomBytes(6).toString('hex')}`
    this.#current.set(token, org)
    return reply('200 OK', JSON.stringify({ orgAccessToken: token }))
  }
}

function reply(status: string, content: string): string {
  return `HTTP/1.1 ${status}\r\nContent-Length: ${Buffer.byteLength(content)}\r\n\r\n${content}`
}

export async function startRotatingService(options: RotatingServiceOptions = {}): Promise<RotatingService> {
  const service = new RotatingService(options)
  await service.listen()
  return service
}
