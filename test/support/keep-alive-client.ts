/** A cheap client for many requests: one kept connection, one request at a time, answers with a length. Not strict. */

import { connect, type Socket } from 'node:net'

export interface Answer {
  readonly status: number
  /** Status line and fields, unchanged. */
  readonly head: string
  readonly content: string
  /** From the write of the request to the last byte of the answer. */
  readonly durationMs: number
}

interface Pending {
  readonly resolve: (answer: Answer) => void
  readonly reject: (error: Error) => void
  readonly sentAt: number
}

const CONTENT_LENGTH = /\r\ncontent-length: *(\d+)\r\n/i
const CLOSES = /\r\nconnection: *close\r\n/i

export class KeepAliveClient implements Disposable {
  readonly #at: number | string
  #socket: Socket | undefined
  #received = ''
  #pending: Pending | undefined

  /** `at` is a port of 127.0.0.1 or the path of a unix socket. */
  constructor(at: number | string) {
    this.#at = at
  }

  /** Rejects if the connection ends before the answer. */
  get(target: string, org: string, ...lines: readonly string[]): Promise<Answer> {
    return this.#send([`GET ${target} HTTP/1.1`, 'Host: localhost', `X-Org-Id: ${org}`, ...lines], '')
  }

  /** The same with content of ASCII. */
  post(target: string, org: string, content: string): Promise<Answer> {
    const length = `Content-Length: ${content.length}`
    return this.#send([`POST ${target} HTTP/1.1`, 'Host: localhost', `X-Org-Id: ${org}`, length], content)
  }

  #send(head: readonly string[], content: string): Promise<Answer> {
    if (this.#pending !== undefined) throw new Error('one request at a time')
    return new Promise((resolve, reject) => {
      this.#pending = { resolve, reject, sentAt: performance.now() }
      this.#open().write(`${head.join('\r\n')}\r\n\r\n${content}`)
    })
  }

  /** Sends RST, even during a request. The next request opens another connection. */
  abort(): void {
    const socket = this.#socket
    this.#close(new Error('aborted'))
    socket?.resetAndDestroy()
  }

  [Symbol.dispose](): void {
    const socket = this.#socket
    this.#close(new Error('closed'))
    socket?.destroy()
  }

  #open(): Socket {
    if (this.#socket !== undefined) return this.#socket
    const socket =
      typeof this.#at === 'string'
        ? connect({ path: this.#at })
        : connect({ port: this.#at, host: '127.0.0.1', noDelay: true })
    socket.setEncoding('latin1')
    socket.on('data', (text: string) => {
      if (this.#socket === socket) this.#read(text)
    })
    socket.on('error', (error) => {
      if (this.#socket === socket) this.#close(error)
    })
    socket.on('close', () => {
      if (this.#socket === socket) this.#close(new Error('the connection ended before the answer did'))
    })
    this.#socket = socket
    return socket
  }

  #read(text: string): void {
    this.#received += text
    const headEnd = this.#received.indexOf('\r\n\r\n')
    if (headEnd === -1) return
    const head = this.#received.slice(0, headEnd + 2)
    const contentEnd = headEnd + 4 + Number(CONTENT_LENGTH.exec(head)?.[1] ?? Number.NaN)
    if (this.#received.length < contentEnd) return
    const pending = this.#pending
    if (pending === undefined || Number.isNaN(contentEnd)) {
      this.#close(new Error(`an answer to no request, or without a length: ${head}`))
      return
    }
    const content = this.#received.slice(headEnd + 4, contentEnd)
    this.#received = this.#received.slice(contentEnd)
    this.#pending = undefined
    if (CLOSES.test(head)) this.#close(new Error('closed by the server'))
    const durationMs = performance.now() - pending.sentAt
    pending.resolve({ status: Number(head.slice(9, 12)), head, content, durationMs })
  }

  #close(error: Error): void {
    const pending = this.#pending
    this.#pending = undefined
    this.#received = ''
    this.#socket = undefined
    pending?.reject(error)
  }
}
