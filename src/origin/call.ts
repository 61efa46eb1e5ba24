/** Sends one request and reads its answer into memory, within one time limit. The token endpoint is called this way. */

import * as clock from '../clock.ts'
import { OriginError } from '../errors.ts'
import type { ReceivedResponse, WholeResponse } from '../http1/response-parser.ts'
import { Attempt, type AttemptSink, type OriginRequest } from './attempt.ts'
import type { ConnectionPool } from './connection-pool.ts'

const MAX_CONTENT_BYTES = 64 * 1024
/** An error says most by its status. Of its content, as much is read as comes in this time. */
const ERROR_CONTENT_MS = 500

const NO_ANSWER = new OriginError('http_response_timeout', 'no answer in time')
const NO_CONNECTION = new OriginError('connection_timeout', 'no connection in time', {
  hint: 'TCP and TLS took longer than the whole call may.',
})

export interface CallRequest extends Pick<OriginRequest, 'method' | 'target' | 'fields' | 'needsNewConnection'> {
  readonly content?: Buffer
  /** The head is the answer, whatever its status. */
  readonly ignoresContent?: boolean
}

/** Sends a request, once. Rejects with an `OriginError`, or with another error if the fault is ours. */
export function call(pool: ConnectionPool, request: CallRequest, timeoutMs: number): Promise<WholeResponse> {
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = []
    let length = 0
    let head: ReceivedResponse | undefined
    const succeed = ({ status, rawFields: fields }: ReceivedResponse) =>
      resolve({ status, fields, content: Buffer.concat(chunks) })
    const expire = () => attempt.abort(attempt.isSent ? NO_ANSWER : NO_CONNECTION)
    const isError = () => head !== undefined && head.status >= 300
    let timer = clock.after(timeoutMs, expire)
    const sink: AttemptSink = {
      responseHead(given) {
        head = given
        if (request.ignoresContent === true) {
          timer.cancel()
          succeed(head)
          attempt.discardResponse()
        } else if (isError()) {
          timer.cancel()
          timer = clock.after(ERROR_CONTENT_MS, expire)
        }
      },

      responseContent(bytes, start, end) {
        length += end - start
        if (length > MAX_CONTENT_BYTES) attempt.abort(new OriginError('http_protocol_error', 'the answer is too large'))
        else chunks.push(Buffer.from(bytes.subarray(start, end)))
        return 'consumed'
      },

      responseEnd() {
        timer.cancel()
        if (head !== undefined) succeed(head)
      },

      attemptFailed(_, error) {
        timer.cancel()
        // Its status is the answer.
        if (head !== undefined && isError() && error instanceof OriginError) {
          succeed(head)
          return
        }
        const isCut = head !== undefined && error instanceof OriginError && error.code === 'connection_terminated'
        reject(isCut ? new OriginError('http_response_incomplete', 'the answer was cut off') : error)
      },
    }
    const attempt = new Attempt(request, request.content, sink)
    pool.dispatch(attempt)
  })
}
