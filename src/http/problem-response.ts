/** Turns failures into responses. Nothing else does. */

import { type ServerResponse, STATUS_CODES } from 'node:http'
import type { Duplex } from 'node:stream'
import type { Failure } from '../errors.ts'
import { renderProblem } from './problem.ts'

/** The origin of the page that may read a response of ours (CORS). The service decides about its own responses. */
const readers = new WeakMap<ServerResponse, string>()

/** Lets pages of a listed `origin` read our answer. Call it before the answer is sent. */
export function letPageRead(response: ServerResponse, origin: string): void {
  readers.set(response, origin)
}

/** The answer of our own that was sent. */
export interface Answered {
  readonly status: number
  /** Octets of content. */
  readonly bytes: number
}

/** Answers with problem details. The caller decides through `shouldKeepAlive` whether the connection is kept. */
export function respondWithProblem(response: ServerResponse, failure: Failure, requestId: string): Answered {
  const problem = renderProblem(failure, requestId)
  const fields = [...problem.fields, ...openingFields(readers.get(response))]
  response.writeHead(problem.status, STATUS_CODES[problem.status] ?? 'Error', fields)
  response.end(problem.content)
  return { status: problem.status, bytes: response.req.method === 'HEAD' ? 0 : Buffer.byteLength(problem.content) }
}

function openingFields(origin: string | undefined): readonly string[] {
  if (origin === undefined) return []
  const exposed = 'proxy-status, retry-after, x-request-id'
  return ['access-control-allow-origin', origin, 'access-control-expose-headers', exposed, 'vary', 'Origin']
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
