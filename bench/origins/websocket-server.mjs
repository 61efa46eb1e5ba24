/**
 * The service for WebSocket messages: an echo, a token endpoint, and a small answer to all other requests. It is a separate
 * process.
 *
 * node websocket-server.mjs PORT
 */

import { createServer } from 'node:http'
import { WebSocketServer } from 'ws'

const [port = 0] = process.argv.slice(2).map(Number)

const server = createServer((request, response) => {
  const answer = request.method === 'POST' ? '{"orgAccessToken":"a-token-of-usual-length"}' : '{}'
  request.resume()
  response.setHeader('content-type', 'application/json')
  response.setHeader('content-length', answer.length)
  response.end(answer)
})

new WebSocketServer({ server, perMessageDeflate: false }).on('connection', (socket) => {
  socket.on('message', (message) => socket.send(message))
  socket.on('error', () => socket.terminate())
})

server.listen(port, '127.0.0.1')
