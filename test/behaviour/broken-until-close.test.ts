/**
 * The attack: a response breaks off that goes to an HTTP/1.0 client on a unix socket. The proxy asked for a reset of that
 * socket, which threw, and the program ended.
 */

import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { RawClient, request } from '../support/raw-client.ts'
import { startService } from '../support/service.ts'
import { startProxy } from '../support/start-proxy.ts'

const OLD_REQUEST = 'GET /v2/a HTTP/1.0\r\nHost: localhost\r\nX-Org-Id: acme\r\n\r\n'
/** A chunked response that ends inside a chunk. */
const BROKEN = 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n10\r\nhalf'

function startBreakingService() {
  return startService({
    script: async (_, connection) => {
      connection.socket.end(BROKEN)
      await once(connection.socket, 'close')
    },
  })
}

test('a unix socket has no reset: the connection ends, and the program goes on', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'oap-'))
  await using _ = { [Symbol.asyncDispose]: () => rm(folder, { recursive: true }) }
  const path = join(folder, 'proxy.sock')
  await using service = await startBreakingService()
  await using proxy = await startProxy(service, { 'listen.address': `unix:${path}` })
  await using client = await RawClient.sending(path, OLD_REQUEST)
  await client.untilClosed()
  expect((await proxy.logOf('/v2/a')).code).toBe('http_response_incomplete')
  service.origin.script = () => ({ content: 'whole' })
  expect((await request(path, OLD_REQUEST)).content.toString()).toBe('whole')
})
