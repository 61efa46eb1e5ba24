/**
 * The attack: the client sends its own credential, in one field, in two, or in a trailer, so that the origin uses it instead
 * of ours, or uses ours for another Org (CVE-2026-88004).
 */

import { describe, expect, test } from 'vitest'
import { type Case, get, HOST, head, ORG, startTable } from '../support/case-table.ts'

const table = await startTable()

/** After every row, the table checks that exactly one Authorization was sent, with the token of the Org. */
const replaced = (name: string, ...lines: string[]): Case => ({
  name,
  send: get('/v2/x', '{org}', ...lines),
})

describe('in a field', () => {
  test.each<Case>([
    replaced('Bearer', 'Authorization: Bearer evil'),
    replaced('Basic', 'Authorization: Basic ZXZpbDpldmls'),
    replaced('two lines', 'Authorization: Bearer evil', 'Authorization: Bearer worse'),
    replaced('in every case', 'authorization: Bearer a', 'AUTHORIZATION: Bearer b', 'AuThOrIzAtIoN: Bearer c'),
    replaced('Proxy-Authorization', 'Proxy-Authorization: Basic ZXZpbDpldmls'),
  ])('$name', (row) =>
    table.run({ ...row, also: ({ requests }) => expect(requests[0]?.values('proxy-authorization')).toEqual([]) }),
  )
})

describe('in a trailer', () => {
  const withTrailers = (name: string, ...trailers: string[]): Case => ({
    name,
    send: `${head('POST /v2/x HTTP/1.1', HOST, ORG, 'Transfer-Encoding: chunked', 'Trailer: X-T')}2\r\nhi\r\n0\r\n${head(...trailers)}`,
    content: 'hi',
    also: ({ requests }) => expect(requests[0]?.trailers).toEqual([]),
  })
  test.each<Case>([
    withTrailers('Authorization', 'Authorization: Bearer evil'),
    withTrailers('X-Org-Id', 'X-Org-Id: {other}'),
    withTrailers('several', 'X-T: 1', 'Host: evil.example', 'X-Org-Id: {other}', 'Authorization: Bearer evil'),
  ])('$name', (row) => table.run(row))
})
