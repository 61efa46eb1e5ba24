/** A script that accepts every WebSocket handshake and echoes each message, with the real `ws`. */

import type { IncomingMessage } from 'node:http'
import { type WebSocket, WebSocketServer } from 'ws'
import type { OriginScript } from './origin-connection.ts'

export interface EchoServer {
  readonly script: OriginScript
  /** The server's ends of all sockets that were opened. */
  readonly sockets: WebSocket[]
}

export function echoServer(): EchoServer {
  const server = new WebSocketServer({ noServer: true, perMessageDeflate: true })
  const sockets: WebSocket[] = []
  const script: OriginScript = (request, connection) => {
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
