/**
 * A WebSocket: joins the client's connection with one to the service behind a 101. The `http-proxy` library copies the bytes.
 * Under that name, package.json installs its maintained successor, httpxy: `ws` returns a promise, unlike that of the original.
 */

import { Agent, type ClientRequest, type IncomingMessage } from 'node:http'
import type { Socket } from 'node:net'
import { createProxyServer } from 'http-proxy'

/** The target is not used: the library gets a connection on which the handshake has been done. */
const library = createProxyServer({ target: 'http://service' })
/** Of the call of the library that is under way. */
let libraryRequest: ClientRequest | undefined
library.on('proxyReqWs', (request) => {
  libraryRequest = request
})
// Errors reach us through the sockets. Without a listener here the library would throw them, too.
library.on('error', () => undefined)

const UPGRADE = { connection: 'Upgrade', upgrade: 'websocket' }

/**
 * Writes the 101 with `fields` to the client, and copies bytes both ways. `firstBytes` have come from the service behind its
 * 101. A side that ends ends the other side (RFC 6455 §7.1.1), and a side that breaks breaks it.
 */
export function openTunnel(client: Socket, service: Socket, fields: readonly string[], firstBytes: Buffer): void {
  service.allowHalfOpen = true
  // The library alone would end the other side as if all had come.
  service.once('close', () => {
    if (!service.readableEnded) client.destroy()
  })
  client.once('close', () => service.destroy())
  client.setDefaultEncoding('latin1') // the library writes the head as a string: each character is one byte
  // The library makes a request of its own, and opens the tunnel when it is answered. This agent never sends it.
  const agent = Object.assign(new Agent(), { createConnection: () => undefined })
  const handshake = { method: 'GET', url: '/', httpVersionMajor: 1, headers: UPGRADE, socket: client }
  library.ws(handshake as unknown as IncomingMessage, client, { agent }, Buffer.alloc(0)).catch(() => undefined)
  const request = libraryRequest
  libraryRequest = undefined
  // Without a request there is no tunnel. The exchange has ended, so nothing else would ever end the two connections.
  if (request === undefined) client.destroy()
  else request.emit('upgrade', { headers: { ...UPGRADE, ...grouped(fields) } }, service, firstBytes)
}

/** As the library takes fields: each value of a list is a line of its own. */
function grouped(fields: readonly string[]): Record<string, string[]> {
  const headers: Record<string, string[]> = Object.create(null)
  for (const [i, value] of fields.entries()) {
    const name = fields[i - 1]
    if (i % 2 === 1 && name !== undefined) headers[name] = [...(headers[name] ?? []), value]
  }
  return headers
}
