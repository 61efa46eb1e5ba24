/** Turns failures into responses. Nothing else does. */

import { type ServerResponse, STATUS_CODES } from 'node:http'
import type { Duplex } from 'node:stream'
import type { Failure } from '../errors.ts'
import { renderProblem } from './problem.ts'

/** The answer of our own that was sent. */
export interface Answered {
  readonly status: number
  /** Octets of content. */
  readonly bytes: number
}

/** Answers with problem details. The caller decides through `shouldKeepAlive` whether the connection is kept. */
export function respondWithProblem(response: ServerResponse, failure: Failure, requestId: string): Answered {
  const problem = renderProblem(failure, requestId)
  response.writeHead(problem.status, STATUS_CODES[problem.status] ?? 'Error', [...problem.fields])
  response.end(problem.content)
  return { status: problem.status, bytes: response.req.method === 'HEAD' ? 0 : Buffer.byteLength(problem.content) }
}

/**
 * Does the same on a connection on which no request was recognized, and ends it. If the request looks like a HEAD, sends neither
 * content nor a length, which is a complete response to any method.
 */
export function endWithProblem(socket: Duplex, failure: Failure, requestId: string, looksLikeHead = false): Answered {
  const { status, fields, content } = renderProblem(failure, requestId)
  let head = `HTTP/1.1 ${status} ${STATUS_CODES[status] ?? 'Error'}\r\n`
  for (let i = 0; i < fields.length; i += 2) {
    if (!looksLikeHead || fields[i] !== 'content-length') head += `${fields[i]}: ${fields[i + 1]}\r\n`
  }
  head += `Date: ${new Date().toUTCString()}\r\nConnection: close\r\n\r\n`
  socket.end(looksLikeHead ? head : head + content)
  return { status, bytes: looksLikeHead ? 0 : Buffer.byteLength(content) }
}
