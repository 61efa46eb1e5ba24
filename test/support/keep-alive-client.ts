/** A client for many requests: one kept connection, one request at a time. Node reads the answers. */

import { once } from 'node:events'
import { type Agent, type ClientRequest, type IncomingMessage, Agent as PlainAgent, request } from 'node:http'
import { Agent as TlsAgent } from 'node:https'
import { tlsPorts, unixPorts } from './raw-client.ts'

export interface Answer {
  readonly status: number
  /** Status line and fields, unchanged. */
  readonly head: string
  readonly content: string
  /** From the write of the request to the last byte of the answer. */
  readonly durationMs: number
}

export class KeepAliveClient implements Disposable {
  readonly #address: { readonly port: number; readonly host: string } | { readonly socketPath: string }
  readonly #agent: Agent
  #underway: ClientRequest | undefined

  /** `at` is a port of 127.0.0.1 or the path of a unix socket. */
  constructor(at: number | string) {
    const options = { keepAlive: true, maxSockets: 1 }
    this.#agent = tlsPorts.has(Number(at))
      ? new TlsAgent({ ...options, rejectUnauthorized: false })
      : new PlainAgent(options)
    const socketPath = typeof at === 'string' ? at : unixPorts.get(at)
    this.#address = socketPath === undefined ? { port: Number(at), host: '127.0.0.1' } : { socketPath }
  }

  /** Rejects if the connection ends before the answer. */
  get(target: string, org: string, ...lines: readonly string[]): Promise<Answer> {
    return this.#send('GET', target, [`X-Org-Id: ${org}`, ...lines], '')
  }

  /** The same with content of ASCII. */
  post(target: string, org: string, content: string): Promise<Answer> {
    return this.#send('POST', target, [`X-Org-Id: ${org}`, `Content-Length: ${content.length}`], content)
  }

  async #send(method: string, path: string, lines: readonly string[], content: string): Promise<Answer> {
    const sentAt = performance.now()
    const headers = ['Host: localhost', ...lines].flatMap((line) => line.split(/: (.*)/s, 2))
    const underway = request({
      ...this.#address,
      protocol: this.#agent instanceof TlsAgent ? 'https:' : 'http:',
      agent: this.#agent,
      method,
      path,
      headers,
    })
    this.#underway = underway
    underway.end(content, 'latin1')
    const [response]: [IncomingMessage] = (await once(underway, 'response')) as [IncomingMessage]
    let received = ''
    for await (const text of response.setEncoding('latin1')) received += text
    const { statusCode = 0, statusMessage, rawHeaders } = response
    const fields = rawHeaders.map((text, i) => (i % 2 === 0 ? `${text}: ` : `${text}\r\n`))
    const head = `HTTP/1.1 ${statusCode} ${statusMessage}\r\n${fields.join('')}`
    return { status: statusCode, head, content: received, durationMs: performance.now() - sentAt }
  }

  /** Sends RST, even during a request. The next request opens another connection. */
  abort(): void {
    this.#underway?.on('error', () => undefined).socket?.resetAndDestroy()
    this.#underway?.destroy(new Error('aborted'))
  }

  [Symbol.dispose](): void {
    this.#underway?.on('error', () => undefined).destroy()
    this.#agent.destroy()
  }
}
