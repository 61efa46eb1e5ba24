/** The simple form of an answer of a script, and its bytes. */

import { type FieldList, valuesOf } from './http-message.ts'

export interface Reply {
  readonly status?: number
  readonly reason?: string
  /** Names and values in turn. `Content-Length` is added if nothing else frames the content. */
  readonly fields?: FieldList
  readonly content?: string | Uint8Array
  /** Sends the content as one chunk. */
  readonly isChunked?: boolean
  /** Does not wait for the content of the request. */
  readonly isEarly?: boolean
  /** Ends the connection after the response. */
  readonly closes?: boolean
}

/** Writes head and content separately, like many servers, so that a relay cannot rely on getting both at once. */
export function renderReply(method: string, reply: Reply): Buffer[] {
  const { status = 200, reason = 'OK', fields = [], content = '', isChunked = false, closes = false } = reply
  const bytes = typeof content === 'string' ? Buffer.from(content) : Buffer.from(content)
  const lines = [`HTTP/1.1 ${status} ${reason}`]
  for (let i = 0; i < fields.length; i += 2) lines.push(`${fields[i]}: ${fields[i + 1]}`)
  if (isChunked) lines.push('Transfer-Encoding: chunked')
  else if (!isFramed(status, fields)) lines.push(`Content-Length: ${bytes.length}`)
  if (closes) lines.push('Connection: close')
  const head = Buffer.from(`${lines.join('\r\n')}\r\n\r\n`, 'latin1')
  if (method === 'HEAD') return [head]
  if (isChunked) return [head, asChunks(bytes)]
  return bytes.length > 0 ? [head, bytes] : [head]
}

function isFramed(status: number, fields: FieldList): boolean {
  if (status < 200 || status === 204 || status === 304) return true
  return ['content-length', 'transfer-encoding'].some((name) => valuesOf(fields, name).length > 0)
}

/** One chunk with all of the content, and the last chunk. */
function asChunks(bytes: Buffer): Buffer {
  const last = Buffer.from('0\r\n\r\n')
  if (bytes.length === 0) return last
  return Buffer.concat([Buffer.from(`${bytes.length.toString(16)}\r\n`), bytes, Buffer.from('\r\n'), last])
}
