/** The opening handshake of RFC 6455 §4.2: what it must hold, and the answer that opens the connection. */

import { createHash } from 'node:crypto'
import type { IncomingMessage } from 'node:http'
import { type Reply, refusal } from './reply.ts'

/** RFC 6455 §1.3 */
const ACCEPT_SALT = '258EAFA5-E914-47DA-95CA-C5AB0DC85B11'
/** 16 bytes in base64. */
const KEY = /^[A-Za-z0-9+/]{22}==$/

export function handshakeProblem({ method, headers }: IncomingMessage): Reply | undefined {
  if (headers.upgrade?.toLowerCase() !== 'websocket') {
    return refusal(426, 'upgrade_required', 'Connect with WebSocket.', { upgrade: 'websocket' })
  }
  if (headers['sec-websocket-version'] !== '13') {
    return refusal(426, 'version_required', 'Use version 13.', { 'sec-websocket-version': '13' })
  }
  if (method !== 'GET' || !KEY.test(headers['sec-websocket-key'] ?? '')) {
    return refusal(400, 'handshake_invalid', 'The handshake wants GET and a key of 16 bytes.')
  }
  return undefined
}

/** To be written as it is. Of the protocols that are offered, the first is taken. */
export function handshakeAnswer({ headers }: IncomingMessage): string {
  const accept = createHash('sha1').update(`${headers['sec-websocket-key']}${ACCEPT_SALT}`).digest('base64')
  const [protocol] = (headers['sec-websocket-protocol'] ?? '').split(',')
  return [
    'HTTP/1.1 101 Switching Protocols',
    'Upgrade: websocket',
    'Connection: Upgrade',
    `Sec-WebSocket-Accept: ${accept}`,
    ...(protocol ? [`Sec-WebSocket-Protocol: ${protocol.trim()}`] : []),
    '\r\n',
  ].join('\r\n')
}
