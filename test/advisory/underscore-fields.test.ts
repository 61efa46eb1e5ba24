/**
 * The attack: origins that read fields as environment variables (CGI, WSGI, Rack, PHP) see `X_Org_Id` and `X-Org-Id` under one
 * name. If a proxy checks one and forwards the other, a client can set fields that only the proxy may set.
 */

import { expect, test } from 'vitest'
import { type Case, get, startTable } from '../support/case-table.ts'

const table = await startTable()

const IMITATIONS = [
  'X_Org_Id: {other}',
  'X-Org_Id: {other}',
  'x_org-id: {other}',
  'Transfer_Encoding: chunked',
  'Content_Length: 5',
  'AUTHORIZATION_: x',
  'Authorization_: x',
  '_Authorization: x',
  'Proxy_Authorization: x',
  'X_Forwarded_For: 1.2.3.4',
  'X_Original_URL: /admin',
  'X_Rewrite-URL: /admin',
  'X_Proxy_Key: x',
  'X_Request_Id: x',
  'X_Forwarded_Host: evil.example',
  'X_Forwarded-Proto: http',
  'X_Forwarded_Prefix: /admin',
  'SCRIPT_NAME: /admin', // gunicorn takes its value for a part of the path, on loopback even by default
  'PATH_INFO: /admin',
  'Proxy_Foo: x',
  'Sec_Fetch_Site: none',
  'Sec_WebSocket_Key: x',
  'HTTP2_Settings: x',
  'Content_Type: text/html',
]

test.each(IMITATIONS)('%s', (line) =>
  table.run({ name: line, send: get('/v2/x', '{org}', line), status: 400, code: 'field_invalid' }),
)

test.each(['AUTHORIZATION\x20: x', 'X-Org-Id : {other}'])('%s', (line) =>
  table.run({ name: line, send: get('/v2/x', '{org}', line), status: 400, closes: true }),
)

test('an underscore is permitted in a name that imitates no protected one', () => {
  const row: Case = {
    send: get('/v2/x', '{org}', 'my_field: 1'),
    status: 200,
    forwards: ['GET /v2/x'],
    also: ({ requests }) => expect(requests[0]?.values('my_field')).toEqual(['1']),
  }
  return table.run(row)
})
