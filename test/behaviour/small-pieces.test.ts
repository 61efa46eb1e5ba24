import { setImmediate as turn } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { get } from '../support/case-table.ts'
import { RawClient } from '../support/raw-client.ts'
import { startService } from '../support/service.ts'
import { startProxy } from '../support/start-proxy.ts'

const PIECE = Buffer.alloc(2 * 1024)
const TOTAL = 48 * 1024 * 1024
/** More than waits at the origin while its reader keeps up. */
const STALLED = 2 * 1024 * 1024

test('T-UP-25 small pieces do not pile up behind a client that reads none of them', { timeout: 30_000 }, async () => {
  let resolve = (_: boolean) => {}
  const ended = new Promise<boolean>((settle) => {
    resolve = settle
  })
  await using service = await startService({
    script: async (_, connection) => {
      connection.write(`HTTP/1.1 200 OK\r\nContent-Length: ${TOTAL}\r\n\r\n`)
      for (let sent = 0; sent < TOTAL && connection.socket.writableLength < STALLED; sent += PIECE.length) {
        connection.socket.write(PIECE)
        await turn()
      }
      resolve(connection.socket.writableLength >= STALLED)
      return undefined
    },
  })
  await using proxy = await startProxy(service)
  await using client = await RawClient.connect(proxy.port)
  client.socket.pause()
  client.send(get('/v2/x', 'acme'))
  expect(await ended, 'the origin has to wait').toBe(true)
})
