/** What Node's parser complains of, and the clock that watches it, as a failure of ours. */

export interface ParserComplaint {
  readonly code: 'request_timeout' | 'request_head_too_large' | 'request_invalid'
  /** The request was a HEAD, as far as can be told. */
  readonly looksLikeHead: boolean
}

const HEAD = Buffer.from('HEAD ')

/** Undefined where there is nobody left to answer. */
export function readComplaint(error: Error): ParserComplaint | undefined {
  const code = codeOf(error)
  return code === undefined ? undefined : { code, looksLikeHead: looksLikeHead(error) }
}

function codeOf(error: Error): ParserComplaint['code'] | undefined {
  const code = 'code' in error ? error.code : ''
  if (code === 'ERR_HTTP_REQUEST_TIMEOUT') return 'request_timeout'
  if (code === 'HPE_HEADER_OVERFLOW') return 'request_head_too_large'
  return typeof code === 'string' && code.startsWith('HPE_') ? 'request_invalid' : undefined
}

/** The parser does not say what it had understood before it complained; a head mostly comes in one packet. */
function looksLikeHead(error: Error): boolean {
  return 'rawPacket' in error && Buffer.isBuffer(error.rawPacket) && error.rawPacket.subarray(0, 5).equals(HEAD)
}
