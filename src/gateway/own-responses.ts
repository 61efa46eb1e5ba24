/** Answers of our own: problem details (RFC 9457) with a Proxy-Status (RFC 9209), and the answer to OPTIONS for this proxy. */

import { causeOf, type Failure, PROBLEMS, remedyOf, titleOf } from '../errors.ts'
import type { Client } from '../listener/request-handler.ts'
import type { GatewayObserver, RequestRecord } from './request-record.ts'

// No `import`: see admin-server.ts.
const { STATUS_CODES } = process.getBuiltinModule('node:http')

const ALLOW = 'allow: GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS'

/** Where an answer of our own is written. */
export interface OwnResponse {
  /** Octets of content so far. */
  contentBytes: number
  /** As the field has it. */
  readonly date: string
  /** The fields that say whether the connection is kept. */
  readonly connectionLines: string
  /** Writes it, and nothing else. */
  endWith(text: string): void
}

/** Returns the status. */
export function respondToOptions(response: OwnResponse, requestId: string): number {
  const head = ['HTTP/1.1 204 No Content', ALLOW, `x-request-id: ${requestId}`, `date: ${response.date}`]
  response.endWith(`${head.join('\r\n')}\r\n${response.connectionLines}\r\n`)
  return 204
}

/** Returns the status. The content is for its receiver alone. */
export function respondWithJson(
  response: OwnResponse,
  requestId: string,
  value: object,
  retryAfterSeconds?: number,
): number {
  const content = Buffer.from(`${JSON.stringify(value)}\n`).toString('latin1')
  const head = [
    'HTTP/1.1 200 OK',
    'content-type: application/json',
    `content-length: ${content.length}`,
    'cache-control: no-store',
    'x-content-type-options: nosniff',
    `x-request-id: ${requestId}`,
    `date: ${response.date}`,
    ...(retryAfterSeconds === undefined ? [] : [`retry-after: ${retryAfterSeconds}`]),
  ]
  response.contentBytes = content.length
  response.endWith(`${head.join('\r\n')}\r\n${response.connectionLines}\r\n${content}`)
  return 200
}

/** Answers with a problem. A fault of this program in that breaks off the connection, and is told. */
export function refuseWith(
  failure: Failure,
  record: RequestRecord,
  client: Pick<Client, 'response' | 'reset'>,
  observer: Pick<GatewayObserver, 'programFailed'>,
): void {
  try {
    record.status = respondWithProblem(client.response, record, failure)
  } catch (fault) {
    observer.programFailed(fault, record.requestId)
    client.reset()
  }
}

/** Returns the status. `keepsAlive` of the response says whether the connection is kept. */
export function respondWithProblem(response: OwnResponse, { method, requestId }: RequestRecord, failure: Failure) {
  const { code, tokenEndpointStatus } = failure
  const { status, proxyError } = PROBLEMS[code]
  const { detail } = remedyOf(code, failure.isOfMinter)
  const cause = causeOf(failure)
  const problem = {
    type: `urn:org-access-proxy:problem:${code}`,
    title: titleOf(code),
    status,
    detail: cause === undefined ? detail : `${cause} ${detail}`,
    code,
    requestId,
    tokenEndpointStatus,
  }
  const content = `${JSON.stringify(problem)}\n`
  const head = [
    `HTTP/1.1 ${status} ${STATUS_CODES[status] ?? 'Error'}`,
    'content-type: application/problem+json',
    `content-length: ${Buffer.byteLength(content)}`,
    'cache-control: no-store',
    'x-content-type-options: nosniff',
    `proxy-status: org-access-proxy; error=${proxyError}; details="${code}"`,
    `x-request-id: ${requestId}`,
    `date: ${response.date}`,
  ]
  const retryAfterSeconds = failure.retryAfterSeconds ?? (status === 503 ? 1 : undefined)
  if (retryAfterSeconds !== undefined) head.push(`retry-after: ${retryAfterSeconds}`)
  if (code === 'method_refused') head.push(ALLOW)
  const sent = method === 'HEAD' ? '' : Buffer.from(content).toString('latin1')
  response.contentBytes = sent.length
  response.endWith(`${head.join('\r\n')}\r\n${response.connectionLines}\r\n${sent}`)
  return status
}
