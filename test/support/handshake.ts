/** The fields of a good WebSocket handshake (RFC 6455 §4.1), with the key of its own example. */

export const WEBSOCKET_KEY = 'dGhlIHNhbXBsZSBub25jZQ=='
/** A server's answer to that key. */
export const WEBSOCKET_ACCEPT = 's3pPLMBiTxaQ9kYGzzhZRbK+xOo='

export const HANDSHAKE: readonly string[] = [
  'Connection: Upgrade',
  'Upgrade: websocket',
  'Sec-WebSocket-Version: 13',
  `Sec-WebSocket-Key: ${WEBSOCKET_KEY}`,
]
