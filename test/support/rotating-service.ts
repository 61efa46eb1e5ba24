/**
 * A service made for many requests: answers with the org that the token stands for, and at every rotation forgets the
 * tokens from before the last one. It keeps counts where `Service` keeps bytes.
 */

import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { ServiceIdentity } from './proxy-process.ts'

export interface RotatingServiceOptions {
  /** No rotation where it is not given. */
  readonly rotatesEveryMs?: number
  /** Others are refused with 404. */
  readonly isLinked?: (org: string) => boolean
}

const MINT = /^\/v2\/orgs\/([^/]+)\/access$/

export class RotatingService implements ServiceIdentity, AsyncDisposable {
  readonly appId = 'app-under-test'
  readonly appSecret: string = randomBytes(12).toString('hex')
  /** Calls of the token endpoint, and how many of them at a time at the most. */
  mints = 0
  /** Instants of these calls, by the monotonic clock. */
  readonly mintedAt: number[] = []
  /** Requests with a good token, and with one from before. */
  accepted = 0
  rejected = 0
  /** Requests for `/v2/as/ORG` with the good token of another org: there must be none. */
  readonly mismatches: string[] = []
  readonly #server: Server
  readonly #isLinked: (org: string) => boolean
  readonly #authorization: string
  readonly #rotation: NodeJS.Timeout | undefined
  #current = new Map<string, string>()
  #previous = new Map<string, string>()

  constructor({ rotatesEveryMs, isLinked = () => true }: RotatingServiceOptions) {
    this.#isLinked = isLinked
    this.#authorization = `Basic ${Buffer.from(`${this.appId}:${this.appSecret}`).toString('base64')}`
    this.#server = createServer((request, response) => this.#answer(request, response))
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
    this.#server.closeAllConnections()
    await closed
  }

  #answer(request: IncomingMessage, response: ServerResponse): void {
    const { url = '', headers } = request
    const [, segment] = request.method === 'POST' ? (MINT.exec(url) ?? []) : []
    if (segment !== undefined) {
      this.#mint(decodeURIComponent(segment), headers.authorization, response)
      return
    }
    const token = headers.authorization?.replace('Bearer ', '') ?? ''
    const org = this.#current.get(token) ?? this.#previous.get(token)
    if (org === undefined) {
      this.rejected += 1
      send(response, 401, 'not a good token')
      return
    }
    this.accepted += 1
    if (url !== `/v2/as/${org}`) this.mismatches.push(`${url} with the token of ${org}`)
    send(response, 200, org)
  }

  #mint(org: string, authorization: string | undefined, response: ServerResponse): void {
    this.mints += 1
    this.mintedAt.push(performance.now())
    if (authorization !== this.#authorization) send(response, 401, '')
    else if (!this.#isLinked(org)) send(response, 404, '')
    else {
      const token = `${this.mints}-${randomBytes(6).toString('hex')}`
      this.#current.set(token, org)
      send(response, 200, JSON.stringify({ orgAccessToken: token }))
    }
  }
}

function send(response: ServerResponse, status: number, content: string): void {
  response.writeHead(status, { 'content-length': Buffer.byteLength(content) }).end(content)
}

export async function startRotatingService(options: RotatingServiceOptions = {}): Promise<RotatingService> {
  const service = new RotatingService(options)
  await service.listen()
  return service
}
