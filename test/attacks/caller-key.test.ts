/**
 * The attack: another user of the same machine, or another container of the same pod, calls the proxy. Only clients with the
 * key may do so.
 */

import { expect, test } from 'vitest'
import { HOST, head, ORG, startTable } from '../support/case-table.ts'
import { folderForFile } from '../support/folder.ts'

const key = 'the-key-of-the-callers-0123456789'
const file = await (await folderForFile()).write('key', `${key}\n`)
const table = await startTable({ 'listen.callerKeyFile': file }, {}, [`X-Proxy-Key: ${key}`])

const GET = 'GET /v2/x HTTP/1.1'

test.each([
  ['absent', []],
  ['empty', ['X-Proxy-Key:']],
  ['wrong', ['X-Proxy-Key: another']],
  ['the right beginning', [`X-Proxy-Key: ${key.slice(0, -1)}`]],
  ['the right one and more', [`X-Proxy-Key: ${key}x`]],
  ['in another case', [`X-Proxy-Key: ${key.toUpperCase()}`]],
  ['twice', [`X-Proxy-Key: ${key}`, `X-Proxy-Key: ${key}`]],
  ['a wrong one before it', ['X-Proxy-Key: another', `X-Proxy-Key: ${key}`]],
  ['under a name that only resembles it', [`X_Proxy_Key: ${key}`]],
])('%s', (_, lines) => table.run({ send: head(GET, HOST, ORG, ...lines), status: 403, code: 'caller_refused' }))

test('the right key is accepted, and not forwarded', () =>
  table.run({
    send: head(GET, HOST, ORG, `X-Proxy-Key: ${key}`),
    also: ({ requests }) => expect(requests[0]?.fields.join()).not.toContain(key),
  }))
