/**
 * The attack: a version that the parser accepts but that has other rules. HTTP/0.9 has no fields, HTTP/2.0 does not exist as
 * text, and the preface of HTTP/2 ended other programs with an unhandled error. Versions that Node's parser does not know are
 * 400, others 505.
 */

import { test } from 'vitest'
import { type Case, get, HOST, head, ORG, startTable } from '../support/case-table.ts'

const table = await startTable()

test.each<Case>([
  { name: 'HTTP/2.0', send: head('GET /v2/x HTTP/2.0', HOST, ORG), status: 505 },
  { name: 'HTTP/1.2', send: head('GET /v2/x HTTP/1.2', HOST, ORG), status: 400 },
  { name: 'HTTP/0.9', send: head('GET /v2/x HTTP/0.9', HOST, ORG), status: 505 },
  { name: 'HTTP/3.0', send: head('GET /v2/x HTTP/3.0', HOST, ORG), status: 400 },
  { name: 'no version', send: head('GET /v2/x', HOST, ORG), status: 505 },
  { name: 'a version in lower case', send: head('GET /v2/x http/1.1', HOST, ORG), status: 400 },
  { name: 'another protocol', send: head('GET /v2/x ICE/1.0', HOST, ORG), status: 400 },
  { name: 'RTSP', send: head('DESCRIBE /v2/x RTSP/1.0', HOST, ORG), status: 505 },
  { name: 'RTSP in 1.1', send: head('GET_PARAMETER /v2/x RTSP/1.1', HOST, ORG), status: 505 },
  { name: 'a method of RTSP', send: head('SETUP /v2/x HTTP/1.1', HOST, ORG), status: 400 },
  { name: 'the preface of HTTP/2', send: 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n', status: 400 },
  { name: 'TLS on a plain port', send: '\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03', status: 400 },
])('$name', (row) => table.run({ ...row, closes: true }))

test('a GET of RTSP/1.0 is HTTP/1.0 for Node, and HTTP/1.1 for the service', () =>
  table.run({
    name: 'GET of RTSP',
    send: head('GET /v2/x RTSP/1.0', HOST, ORG),
    status: 200,
    forwards: ['GET /v2/x'],
    closes: true,
  }))

test('empty lines before a request are skipped', () =>
  table.run({ send: `\r\n\r\n${get('/v2/x', '{org}')}`, status: 200, forwards: ['GET /v2/x'] }))
