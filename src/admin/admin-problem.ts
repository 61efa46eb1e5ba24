/** Error responses of the admin listener: problem details (RFC 9457). Status and title are those of the proxy's own listener. */

import { type ServerResponse, STATUS_CODES } from 'node:http'
import type { Duplex } from 'node:stream'
import type { ErrorCode } from '../errors.ts'
import { PROBLEMS } from '../http/problem.ts'

/** What to do, by code. */
export const ADMIN_PROBLEMS = {
  request_invalid: 'Send one well-formed HTTP/1.1 request.',
  request_timeout: 'Send the whole request at once.',
  request_head_too_large: 'Keep the request line and all fields together under 16 KiB.',
  http_version_refused: 'Use HTTP/1.1.',
  host_invalid: 'Send exactly one Host field, such as "localhost:9090".',
  host_refused: 'Address the admin listener as localhost, or add the name to listen.hosts.',
  browser_refused: 'Type the address of the status page into the browser. Other pages may neither link nor call here.',
  forwarded_refused:
    'The request came through another proxy. Call from the same host, or set listen.refuseForwarded to false.',
  remote_refused: 'Other machines get health and metrics only. Ask from this machine, or set admin.allowRemote.',
  callers_refused:
    'Callers can reach this address, and may not see or purge what is not theirs: it serves health and metrics only. Set admin.address to a unix socket.',
  not_found:
    'GET /, /status, /metrics, /livez, /healthz, /readyz?verbose, or POST /tokens/purge?org=ORG, /tokens/resume.',
  method_refused: 'Use a method from the Allow field.',
  org_id_missing: 'Send one ?org=ORG, or ?org=all for every Org. For an Org whose id is "all", send ?orgId=all.',
  org_id_invalid: 'Send one id that matches orgs.pattern.',
  proxy_internal_error: 'This is a bug of the proxy. Report it with the lines of its log.',
} as const

export type AdminProblemCode = keyof typeof ADMIN_PROBLEMS

const OWN = {
  callers_refused: { status: 403, title: 'Not served where callers can reach it' },
  not_found: { status: 404, title: 'There is no such path' },
} as const satisfies Readonly<Record<Exclude<AdminProblemCode, ErrorCode>, object>>

const PROBLEM_TYPE = 'application/problem+json'

export function respondWithAdminProblem(response: ServerResponse, code: AdminProblemCode, allow?: string): void {
  const { status, content } = render(code)
  response.statusCode = status
  response.setHeader('content-type', PROBLEM_TYPE)
  if (allow !== undefined) response.setHeader('allow', allow)
  response.end(content)
}

/** The same for input that is no request. Closes the connection. */
export function endWithAdminProblem(socket: Duplex, code: AdminProblemCode): void {
  const { status, content } = render(code)
  socket.end(
    `HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\ncontent-type: ${PROBLEM_TYPE}\r\n` +
      `content-length: ${Buffer.byteLength(content)}\r\nconnection: close\r\n\r\n${content}`,
  )
}

function render(code: AdminProblemCode): { readonly status: number; readonly content: string } {
  const { status, title } = code === 'callers_refused' || code === 'not_found' ? OWN[code] : PROBLEMS[code]
  const type = `urn:org-access-proxy:problem:${code}`
  return { status, content: `${JSON.stringify({ type, title, status, detail: ADMIN_PROBLEMS[code], code })}\n` }
}
