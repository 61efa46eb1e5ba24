/** The one place where a failure becomes a response. */

import { type ServerResponse, STATUS_CODES } from 'node:http'
import type { Duplex } from 'node:stream'
import type { Failure } from '../errors.ts'
import { renderProblem } from '../http/problem.ts'

/** Answers with problem details. Whether the connection lives on is the caller's to say, through `shouldKeepAlive`. */
export function respondWithProblem(response: ServerResponse, failure: Failure, requestId: string): number {
  const problem = renderProblem(failure, requestId)
  response.writeHead(problem.status, STATUS_CODES[problem.status] ?? 'Error', [...problem.fields])
  response.end(problem.content)
  return problem.status
}

/** The same on a connection where no request was recognized. Ends it. */
export function endWithProblem(socket: Duplex, failure: Failure, requestId: string): number {
  const problem = renderProblem(failure, requestId)
  let head = `HTTP/1.1 ${problem.status} ${STATUS_CODES[problem.status] ?? 'Error'}\r\n`
  for (let i = 0; i < problem.fields.length; i += 2) head += `${problem.fields[i]}: ${problem.fields[i + 1]}\r\n`
  socket.end(`${head}connection: close\r\n\r\n${problem.content}`)
  return problem.status
}
