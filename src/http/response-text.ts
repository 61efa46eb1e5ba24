/** The head of a response as it is written to a client (RFC 9112 §4 and §6). */

import type { ResponseHead } from './response-head.ts'

/** How the client learns where the content ends. `none`: there is no content, whatever the head says. */
export type ResponseFraming = 'none' | 'counted' | 'chunked' | 'until close'

export interface ClientConnection {
  /** The connection takes further requests. */
  readonly isKept: boolean
  /** How long it waits for them, in whole seconds. */
  readonly keepAliveSeconds: number
}

/** In latin1. A `Date` is added where the origin gave none (RFC 9110 §6.6.1). */
export function responseHeadText(head: ResponseHead, framing: ResponseFraming, connection: ClientConnection): string {
  const { fields } = head
  let text = `HTTP/1.1 ${head.status} ${head.reason}\r\n`
  for (let i = 0; i + 1 < fields.length; i += 2) text += `${fields[i]}: ${fields[i + 1]}\r\n`
  if (!head.hasDate) text += `Date: ${httpDate()}\r\n`
  if (framing === 'chunked') text += 'Transfer-Encoding: chunked\r\n'
  if (!connection.isKept) return `${text}Connection: close\r\n\r\n`
  // Less than a second cannot be said.
  if (connection.keepAliveSeconds === 0) return `${text}Connection: keep-alive\r\n\r\n`
  return `${text}Connection: keep-alive\r\nKeep-Alive: timeout=${connection.keepAliveSeconds}\r\n\r\n`
}

let dateSecond = Number.NaN
let dateText = ''

/** Made once a second. */
function httpDate(): string {
  const second = Math.floor(Date.now() / 1_000)
  if (second !== dateSecond) {
    dateSecond = second
    dateText = new Date(second * 1_000).toUTCString()
  }
  return dateText
}
