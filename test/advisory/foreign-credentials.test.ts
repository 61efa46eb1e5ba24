/**
 * The attack: the client sends its own credential, in one field, in two, or in a trailer, so that the origin uses it instead
 * of ours, or uses ours for another Org (CVE-2026-88004).
 */

import { afterAll, describe, expect, test } from 'vitest'
import { type Case, get, HOST, head, ORG, startTable } from '../support/case-table.ts'

const table = await startTable()
afterAll(() => table[Symbol.asyncDispose]())

/** After every row, the table checks that exactly one Authorization was sent, with the token of the Org. */
const replaced = (name: string, ...lines: string[]): Case => ({
  name,
  send: get('/v2/x', '{org}', ...lines),
  status: 200,
  forwards: ['GET /v2/x'],
})

describe('in a field', () => {
  test.each<Case>([
    replaced('T-HH-06 Bearer', 'Authorization: Bearer evil'),
    replaced('T-HH-07 Basic', 'Authorization: Basic ZXZpbDpldmls'),
    replaced('T-HH-07 two lines', 'Authorization: Bearer evil', 'Authorization: Bearer worse'),
    replaced('T-HH-07 in every case', 'authorization: Bearer a', 'AUTHORIZATION: Bearer b', 'AuThOrIzAtIoN: Bearer c'),
    replaced('T-HH-08 Proxy-Authorization', 'Proxy-Authorization: Basic ZXZpbDpldmls'),
  ])('$name', (row) =>
    table.run({ ...row, also: ({ requests }) => expect(requests[0]?.values('proxy-authorization')).toEqual([]) }),
  )
})

describe('in a trailer', () => {
  const withTrailers = (name: string, ...trailers: string[]): Case => ({
    name,
    send: `${head('POST /v2/x HTTP/1.1', HOST, ORG, 'Transfer-Encoding: chunked', 'Trailer: X-T')}2\r\nhi\r\n0\r\n${head(...trailers)}`,
    content: 'hi',
    status: 200,
    forwards: ['POST /v2/x'],
    also: ({ requests }) => expect(requests[0]?.trailers).toEqual([]),
  })
  test.each<Case>([
    withTrailers('T-FR-30 Authorization', 'Authorization: Bearer evil'),
    withTrailers('T-FR-31 X-Org-Id', 'X-Org-Id: {other}'),
    withTrailers('T-FR-31 several', 'X-T: 1', 'Host: evil.example', 'X-Org-Id: {other}', 'Authorization: Bearer evil'),
  ])('$name', (row) => table.run(row))
})
