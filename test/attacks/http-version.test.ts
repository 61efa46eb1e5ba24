/**
 * The attack: a version that the parser accepts but that has other rules. HTTP/0.9 has no fields, HTTP/2.0 does not exist as
 * text, and the preface of HTTP/2 ended other programs with an unhandled error. Versions that Node's parser does not know are
 * 400, others 505.
 */

import { test } from 'vitest'
import { get, HOST, head, ORG, sentFor, startTable } from '../support/case-table.ts'

const table = await startTable()

const closes = { closes: true }
const line = (requestLine: string) => head(requestLine, HOST, ORG)
const NOT_SUPPORTED = [
  'GET /v2/x HTTP/2.0',
  'GET /v2/x HTTP/0.9',
  'GET /v2/x',
  'DESCRIBE /v2/x RTSP/1.0',
  'GET /v2/x RTSP/1.0',
]
const UNKNOWN = ['GET /v2/x HTTP/1.2', 'GET /v2/x http/1.1']
table.refuses(sentFor(NOT_SUPPORTED, line), 505, 'http_version_refused', closes)
table.refuses(sentFor(UNKNOWN, line), 400, 'request_invalid', closes)
const OTHERS = {
  'the preface of HTTP/2': 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n',
  'TLS on a plain port': '\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03',
}
table.refuses(OTHERS, 400, 'request_invalid', closes)

test.each([['empty lines before a request are skipped', `\r\n\r\n${get('/v2/x', '{org}')}`, false]])(
  '%s: forwarded',
  (_, send, closes) => table.run({ send, forwards: ['GET /v2/x'], closes }),
)
