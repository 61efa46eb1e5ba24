/** Echoes: what was received, told back as JSON, without the credentials that it came with. */

import { createHash } from 'node:crypto'
import type { IncomingMessage } from 'node:http'
import type { OrgExchange } from './exchange.ts'
import { send } from './reply.ts'

/** The caller of a proxy must not learn from the echo what the proxy added for it. */
const CREDENTIAL_FIELDS = new Set(['authorization', 'proxy-authorization', 'x-proxy-key'])
const MASK = '[credentials]'

interface ContentDigest {
  readonly lengthBytes: number
  readonly sha256: string
}

export async function answerEcho(exchange: OrgExchange, status = 200): Promise<void> {
  const { request, response, org, path, query } = exchange
  const content = await digest(request)
  const value = { org, method: request.method, path, query, fields: fieldsOf(request), content }
  send(response, { status, value })
}

export async function answerUpload({ request, response, org }: OrgExchange): Promise<void> {
  send(response, { status: 200, value: { org, ...(await digest(request)) } })
}

async function digest(request: IncomingMessage): Promise<ContentDigest> {
  const hash = createHash('sha256')
  let lengthBytes = 0
  for await (const chunk of request) {
    hash.update(chunk)
    lengthBytes += chunk.length
  }
  return { lengthBytes, sha256: hash.digest('hex') }
}

/** Each field line as it came: in its order, its case, and its own line. */
function fieldsOf({ rawHeaders }: IncomingMessage): string[] {
  const fields: string[] = []
  for (let index = 0; index < rawHeaders.length; index += 2) {
    const name = rawHeaders[index] ?? ''
    const value = CREDENTIAL_FIELDS.has(name.toLowerCase()) ? MASK : rawHeaders[index + 1]
    fields.push(`${name}: ${value}`)
  }
  return fields
}
