/** A script that accepts WebSocket handshakes and echoes each message, with the real `ws`. */

import type { IncomingMessage } from 'node:http'
import { type WebSocket, WebSocketServer } from 'ws'
import type { OriginScript, Reply } from './origin-connection.ts'

export interface EchoServer {
  readonly script: OriginScript
  /** The server's ends of all sockets that were opened. */
  readonly sockets: WebSocket[]
}

/** Every request is a handshake; or, with an answer for the others, each one for `/v2/ws`. */
export function echoServer(otherwise?: Reply): EchoServer {
  const server = new WebSocketServer({ noServer: true, perMessageDeflate: true })
  const sockets: WebSocket[] = []
  const script: OriginScript = (request, connection) => {
    if (otherwise !== undefined && request.target !== '/v2/ws') return otherwise
    const reader = connection.tunnel()
    const headers: Record<string, string> = {}
    for (let i = 0; i < request.fields.length; i += 2) {
      headers[(request.fields[i] ?? '').toLowerCase()] = request.fields[i + 1] ?? ''
    }
    // All parts of a request that `ws` uses.
    const message = { method: request.method, url: request.target, headers } as unknown as IncomingMessage
    server.handleUpgrade(message, connection.socket, reader.pending, (socket) => {
      sockets.push(socket)
      socket.on('error', () => {}) // a reset is part of some tests
      socket.on('message', (data, isBinary) => socket.send(data, { binary: isBinary }))
    })
  }
  return { script, sockets }
}
