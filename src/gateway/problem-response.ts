/** The one place where a failure becomes a response. */

import { type ServerResponse, STATUS_CODES } from 'node:http'
import type { Duplex } from 'node:stream'
import type { Failure } from '../errors.ts'
import { renderProblem } from '../http/problem.ts'

/** Pages that may read our answer, by the response that holds it (CORS). The service answers for itself. */
const readers = new WeakMap<ServerResponse, string>()

/** To be called before the answer. `origin` is one that is let in. */
export function letPageRead(response: ServerResponse, origin: string): void {
  readers.set(response, origin)
}

/** Answers with problem details. Whether the connection lives on is the caller's to say, through `shouldKeepAlive`. */
export function respondWithProblem(response: ServerResponse, failure: Failure, requestId: string): number {
  const problem = renderProblem(failure, requestId)
  const fields = [...problem.fields, ...openingFields(readers.get(response))]
  response.writeHead(problem.status, STATUS_CODES[problem.status] ?? 'Error', fields)
  response.end(problem.content)
  return problem.status
}

function openingFields(origin: string | undefined): readonly string[] {
  if (origin === undefined) return []
  const exposed = 'proxy-status, retry-after, x-request-id'
  return ['access-control-allow-origin', origin, 'access-control-expose-headers', exposed, 'vary', 'Origin']
}

/**
 * The same on a connection where no request was recognized. Ends it. Where there was a HEAD by all appearances, there is no
 * content and no length of one: that is a whole response for whoever reads it, even if it was another method.
 */
export function endWithProblem(socket: Duplex, failure: Failure, requestId: string, looksLikeHead = false): number {
  const { status, fields, content } = renderProblem(failure, requestId)
  let head = `HTTP/1.1 ${status} ${STATUS_CODES[status] ?? 'Error'}\r\n`
  for (let i = 0; i < fields.length; i += 2) {
    if (!looksLikeHead || fields[i] !== 'content-length') head += `${fields[i]}: ${fields[i + 1]}\r\n`
  }
  head += `Date: ${new Date().toUTCString()}\r\nConnection: close\r\n\r\n`
  socket.end(looksLikeHead ? head : head + content)
  return status
}
