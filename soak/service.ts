/**
 * The service of a soak: tokens that live 20 s, content that names its org in every byte, restarts that forget all tokens,
 * and App secrets that change. It counts what must never happen.
 */

import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'

const TOKEN_LIFETIME_MS = 20_000
const MINT = /^\/v2\/orgs\/([^/]+)\/access$/
const WORK = /^\/v2\/as\/([^/?]+)\?length=(\d+)$/

/** `length` bytes in which another org, a lost byte or a repeated one cannot hide. */
export function contentOf(org: string, length: number): string {
  const line = `${org}/0123456789abcdef/`
  return line.repeat(Math.ceil(length / line.length)).slice(0, length)
}

export class SoakService implements AsyncDisposable {
  readonly appId = 'soak'
  /** These authenticate. The newest is the last. */
  readonly secrets: string[] = [randomBytes(12).toString('hex')]
  mints = 0
  rejections = 0
  restarts = 0
  /** A request for one org with the token of another. */
  readonly wrongOrgs: string[] = []
  /** Request content that is not what the client sent. */
  readonly wrongBytes: string[] = []
  #tokens = new Map<string, { readonly org: string; readonly endsAt: number }>()
  #server: Server = this.#newServer()
  #port = 0

  get baseUrl(): string {
    return `http://127.0.0.1:${this.#port}`
  }

  get appSecret(): string {
    return this.secrets.at(-1) ?? ''
  }

  async listen(): Promise<void> {
    this.#server.listen(this.#port, '127.0.0.1')
    await once(this.#server, 'listening')
    this.#port = (this.#server.address() as AddressInfo).port
  }

  /** Cuts every connection, refuses new ones until `listen`, and forgets all tokens. */
  async stop(): Promise<void> {
    const closed = once(this.#server, 'close')
    this.#server.close()
    this.#server.closeAllConnections()
    await closed
    this.#tokens.clear()
    this.#server = this.#newServer()
    this.restarts += 1
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.close()
    this.#server.closeAllConnections()
  }

  #newServer(): Server {
    return createServer({ keepAliveTimeout: 30_000 }, (message, response) => {
      this.#answer(message, response).catch(() => response.destroy())
    })
  }

  async #answer(message: IncomingMessage, response: ServerResponse): Promise<void> {
    const chunks: Buffer[] = []
    for await (const chunk of message) chunks.push(chunk)
    const content = Buffer.concat(chunks).toString('latin1')
    const { url = '', headers } = message
    const { authorization = '' } = headers
    const [, mintOrg] = MINT.exec(url) ?? []
    if (mintOrg !== undefined) this.#mint(mintOrg, authorization, response)
    else this.#work(url, authorization, content, response)
  }

  #mint(org: string, authorization: string, response: ServerResponse): void {
    this.mints += 1
    const isKnown = this.secrets.some(
      (secret) => authorization === `Basic ${Buffer.from(`${this.appId}:${secret}`).toString('base64')}`,
    )
    if (!isKnown) {
      send(response, 401, 'wrong credentials')
      return
    }
    const token = `${this.mints}-${randomBytes(9).toString('base64url')}`
    this.#tokens.set(token, { org, endsAt: performance.now() + TOKEN_LIFETIME_MS })
    send(response, 200, JSON.stringify({ orgAccessToken: token }))
  }

  #work(url: string, authorization: string, content: string, response: ServerResponse): void {
    const [, org = '', length = '0'] = WORK.exec(url) ?? []
    const token = this.#tokens.get(authorization.replace('Bearer ', ''))
    if (token === undefined || token.endsAt < performance.now()) {
      this.rejections += 1
      send(response, 401, 'the token is not good')
      return
    }
    if (token.org !== org) this.wrongOrgs.push(`a request for ${org} with the token of ${token.org}`)
    if (content !== contentOf(org, content.length)) this.wrongBytes.push(`content of a request for ${org}`)
    send(response, 200, contentOf(token.org, Number(length)))
  }
}

function send(response: ServerResponse, status: number, content: string): void {
  response.writeHead(status, { 'content-length': content.length }).end(content)
}
