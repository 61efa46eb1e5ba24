/** A request as it stands on the wire (RFC 9112 §3 and §6). */

import type { OriginRequest } from './attempt.ts'

/** Methods whose requests state their length even where it is zero (RFC 9110 §8.6). */
const STATES_LENGTH: ReadonlySet<string> = new Set(['POST', 'PUT', 'PATCH', 'QUERY', 'PROPFIND', 'PROPPATCH'])

/** The head, in latin1. `isLast`: the connection ends with this exchange. */
export function requestHeadText(request: OriginRequest, isLast: boolean): string {
  const { method, target, fields, content } = request
  let text = `${method} ${target} HTTP/1.1\r\n`
  for (let i = 0; i + 1 < fields.length; i += 2) text += `${fields[i]}: ${fields[i + 1]}\r\n`
  text += isLast ? 'connection: close\r\n' : 'connection: keep-alive\r\n'
  if (content === undefined) return STATES_LENGTH.has(method) ? `${text}content-length: 0\r\n\r\n` : `${text}\r\n`
  const length = Buffer.isBuffer(content) ? content.length : request.contentLength
  return length === undefined ? `${text}transfer-encoding: chunked\r\n\r\n` : `${text}content-length: ${length}\r\n\r\n`
}
