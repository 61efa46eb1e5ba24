/** Error responses of the admin listener: problem details (RFC 9457), all in one table. */

import { type ServerResponse, STATUS_CODES } from 'node:http'
import type { Duplex } from 'node:stream'

interface AdminProblemEntry {
  readonly status: number
  readonly title: string
  readonly detail: string
}

export const ADMIN_PROBLEMS = {
  request_invalid: {
    status: 400,
    title: 'The request is not well-formed HTTP',
    detail: 'Send one well-formed HTTP/1.1 request.',
  },
  request_timeout: {
    status: 408,
    title: 'The request did not arrive in time',
    detail: 'Send the whole request at once.',
  },
  request_head_too_large: {
    status: 431,
    title: 'The request head is too large',
    detail: 'Keep the request line and all fields together under 16 KiB.',
  },
  http_version_refused: { status: 505, title: 'HTTP version not supported', detail: 'Use HTTP/1.1.' },
  host_invalid: {
    status: 400,
    title: 'Host field missing or invalid',
    detail: 'Send exactly one Host field, such as "localhost:9090".',
  },
  host_refused: {
    status: 421,
    title: 'This host is not served here',
    detail: 'Address the admin listener as localhost, or add the name to listen.hosts.',
  },
  browser_refused: {
    status: 403,
    title: 'Requests from other pages are refused',
    detail: 'Type the address of the status page into the browser. Other pages may neither link nor call here.',
  },
  forwarded_refused: {
    status: 403,
    title: 'Forwarded requests are refused',
    detail: 'The request came through another proxy. Call from the same host, or set listen.refuseForwarded to false.',
  },
  remote_refused: {
    status: 403,
    title: 'This address serves health and metrics only',
    detail: 'Other machines can reach this address. Ask from this machine, or set admin.allowRemote.',
  },
  callers_refused: {
    status: 403,
    title: 'This address serves health and metrics only',
    detail:
      'Callers can reach this address, and may not see or purge what is not theirs. Set admin.address to a unix socket.',
  },
  not_found: {
    status: 404,
    title: 'There is no such path',
    detail:
      'GET /, /status, /metrics, /livez, /healthz, /readyz?verbose, or POST /tokens/purge?org=ORG or /tokens/resume.',
  },
  method_refused: { status: 405, title: 'Method not allowed', detail: 'Use a method from the Allow field.' },
  org_id_missing: {
    status: 400,
    title: 'No Org, or more than one, is named',
    detail: 'Send one ?org=ORG, or ?org=all for every Org. For an Org whose id is "all", send ?orgId=all.',
  },
  org_id_invalid: { status: 400, title: 'The org id is invalid', detail: 'Send one id that matches orgs.pattern.' },
  proxy_internal_error: {
    status: 500,
    title: 'The proxy failed',
    detail: 'This is a bug of the proxy. Report it with the lines of its log.',
  },
} as const satisfies Readonly<Record<string, AdminProblemEntry>>

export type AdminProblemCode = keyof typeof ADMIN_PROBLEMS

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
  const { status, title, detail } = ADMIN_PROBLEMS[code]
  const type = `urn:org-access-proxy:problem:${code}`
  return { status, content: `${JSON.stringify({ type, title, status, detail, code })}\n` }
}
