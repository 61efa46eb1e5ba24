/** The head of an origin's response as it may go on to the client. */

import { isFieldValue, namedByConnection, responseFieldKind, withoutFields } from './fields.ts'

export interface ResponseHead {
  /** Flat list, order, case and duplicates as received. */
  fields: string[]
  /** Octets; undefined where the content is chunked or ends with the connection. */
  readonly contentLength: number | undefined
}

export interface ResponseHeadOptions {
  /** Keep `Access-Control-*`: only where browsers are let in at all. */
  readonly keepsAccessControl: boolean
}

const LENGTH = /^\d{1,15}$/

/**
 * Undefined where the framing is doubtful (RFC 9112 §6.3): several or conflicting lengths, a length beside a transfer
 * coding, a coding other than chunked; or where a value could not be sent on.
 */
export function readResponseHead(rawFields: readonly Buffer[], options: ResponseHeadOptions): ResponseHead | undefined {
  const fields: string[] = []
  let contentLength: number | undefined
  let isChunked = false
  let named: string[] | undefined
  for (let i = 0; i + 1 < rawFields.length; i += 2) {
    const name = latin1(rawFields[i])
    const value = latin1(rawFields[i + 1])
    if (!isFieldValue(value)) return undefined
    switch (responseFieldKind(name)) {
      case 'plain':
        fields.push(name, value)
        break
      case 'content-length':
        if (contentLength !== undefined || !LENGTH.test(value)) return undefined
        contentLength = Number(value)
        fields.push(name, value)
        break
      case 'transfer-encoding':
        if (isChunked || value.toLowerCase() !== 'chunked') return undefined
        isChunked = true
        break
      case 'connection':
        named = [...(named ?? []), ...(namedByConnection(value) ?? [])]
        break
      case 'access-control':
        if (options.keepsAccessControl) fields.push(name, value)
        break
      case 'dropped':
        break
    }
  }
  if (isChunked && contentLength !== undefined) return undefined
  if (named === undefined || named.length === 0) return { fields, contentLength }
  return { fields: withoutFields(fields, named.filter(isNotFraming)), contentLength }
}

/** The length belongs to the message, whatever `Connection` says. */
function isNotFraming(name: string): boolean {
  return name !== 'content-length'
}

function latin1(bytes: Buffer | undefined): string {
  return bytes === undefined ? '' : bytes.toString('latin1')
}
