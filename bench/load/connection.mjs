/** One keep-alive connection with a minimum of HTTP/1.1: one request at a time, answers with a Content-Length. */

import { connect } from 'node:net'

/** Longer than any connection here has to be silent. */
const SILENCE_MS = 60_000

export class Connection {
  #socket
  #received = ''
  /** @type {{ resolve: (status: number) => void, reject: (error: Error) => void } | undefined} */
  #waiting

  /** @param {import('node:net').Socket} socket connected */
  constructor(socket) {
    this.#socket = socket
    socket.setNoDelay(true)
    socket.setEncoding('latin1')
    socket.on('data', (/** @type {string} */ text) => this.#read(text))
    socket.setTimeout(SILENCE_MS, () => this.#fail(new Error('the other side was silent for too long')))
    socket.on('error', (error) => this.#fail(error))
    socket.on('close', () => this.#fail(new Error('the connection was closed')))
  }

  /**
   * @param {number} port
   * @returns {Promise<Connection>}
   */
  static open(port) {
    return new Promise((resolve, reject) => {
      const socket = connect({ port, host: '127.0.0.1' })
      socket.once('error', reject)
      socket.once('connect', () => {
        socket.off('error', reject)
        resolve(new Connection(socket))
      })
    })
  }

  get isOpen() {
    return !this.#socket.destroyed
  }

  /**
   * Resolves with the status when the whole response is there.
   * @param {string} request as it goes over the wire
   * @returns {Promise<number>}
   */
  send(request) {
    return new Promise((resolve, reject) => {
      this.#waiting = { resolve, reject }
      if (this.isOpen) this.#socket.write(request, 'latin1')
      else this.#fail(new Error('the connection was closed'))
    })
  }

  close() {
    this.#socket.destroy()
  }

  /** @param {string} text */
  #read(text) {
    this.#received += text
    const headEnd = this.#received.indexOf('\r\n\r\n')
    if (headEnd === -1) return
    const head = this.#received.slice(0, headEnd)
    const [, length] = /\r\ncontent-length: *(\d+)/i.exec(head) ?? []
    if (length === undefined) return this.#fail(new Error('a response without a Content-Length'))
    if (this.#received.length < headEnd + 4 + Number(length)) return
    this.#received = ''
    const waiting = this.#waiting
    this.#waiting = undefined
    waiting?.resolve(Number(head.slice(9, 12)))
  }

  /** @param {Error} error */
  #fail(error) {
    this.#socket.destroy()
    this.#waiting?.reject(error)
    this.#waiting = undefined
  }
}

/**
 * A GET as it goes over the wire.
 * @param {number} port
 * @param {string} path
 * @param {string} org
 */
export function get(port, path, org) {
  return `GET ${path} HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\nX-Org-Id: ${org}\r\n\r\n`
}
