/**
 * An origin that answers uploads before it has read them, and closes. It also serves the token endpoint and small GETs.
 * The last segment of the target selects the way in which it ends the connection (see `ENDINGS`).
 *
 * node origin.mjs PORT
 */

import { createServer } from 'node:net'

const CONTENT = 'early'
const EARLY = `HTTP/1.1 413 Content Too Large\r\nContent-Length: ${CONTENT.length}\r\nConnection: close\r\n\r\n${CONTENT}`
const TOKEN = '{"orgAccessToken":"a-token-of-usual-length"}'

/** Octets of content that `after-some` reads before it answers. */
const SOME_BYTES = 32 * 1024

/** @type {Readonly<Record<string, (socket: import('node:net').Socket) => void>>} */
const ENDINGS = {
  // If unread octets remain at the close, the kernel sends a reset right after the answer.
  close: (socket) => socket.write(EARLY, () => socket.destroy()),
  'after-some': (socket) => readThen(socket, SOME_BYTES, () => socket.write(EARLY, () => socket.destroy())),
  // Sends the answer and a FIN. The reset follows when more content arrives at the closed socket.
  'fin-then-reset': (socket) => {
    socket.pause()
    socket.end(EARLY, () => setTimeout(() => socket.destroy(), 5))
  },
}

createServer((socket) => {
  let head = ''
  socket.on('error', () => undefined)
  const onData = (/** @type {Buffer} */ bytes) => {
    head += bytes.toString('latin1')
    if (!head.includes('\r\n\r\n')) return
    const [, method, target = ''] = /^(\S+) (\S+)/.exec(head) ?? []
    head = ''
    if (target.endsWith('/access')) answer(socket, TOKEN)
    else if (method === 'GET') answer(socket, 'small')
    else {
      socket.off('data', onData)
      ENDINGS[target.slice(target.lastIndexOf('/') + 1)]?.(socket)
    }
  }
  socket.on('data', onData)
}).listen(Number(process.argv[2]), '127.0.0.1')

/**
 * @param {import('node:net').Socket} socket
 * @param {string} content
 */
function answer(socket, content) {
  socket.write(
    `HTTP/1.1 200 OK\r\nContent-Length: ${content.length}\r\nContent-Type: application/json\r\n\r\n${content}`,
  )
}

/**
 * @param {import('node:net').Socket} socket
 * @param {number} bytes
 * @param {() => void} then
 */
function readThen(socket, bytes, then) {
  let read = 0
  const onData = (/** @type {Buffer} */ chunk) => {
    read += chunk.length
    if (read < bytes) return
    socket.off('data', onData)
    socket.pause()
    then()
  }
  socket.on('data', onData)
}
