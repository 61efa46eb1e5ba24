/** The sandbox's plain answers, as values: JSON that a person can read, and refusals in one shape. */

import type { OutgoingHttpHeaders, ServerResponse } from 'node:http'

export interface Reply {
  readonly status: number
  readonly value: unknown
  readonly fields?: OutgoingHttpHeaders
}

export function refusal(status: number, error: string, message: string, fields: OutgoingHttpHeaders = {}): Reply {
  return { status, value: { error, message }, fields }
}

export function methodRefusal(allowed: string): Reply {
  return refusal(405, 'method_not_allowed', `Use ${allowed}.`, { allow: allowed })
}

export function send(response: ServerResponse, { status, value, fields }: Reply): void {
  const content = `${JSON.stringify(value, null, 2)}\n`
  response.writeHead(status, {
    'content-type': 'application/json',
    'content-length': Buffer.byteLength(content),
    ...fields,
  })
  response.end(content)
}
