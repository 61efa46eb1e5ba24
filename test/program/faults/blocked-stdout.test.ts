/** A reader of the log has stopped reading: requests are served, memory is bounded, and the program can still end. */

import { expect, test } from 'vitest'
import { eventually } from '../../support/changes.ts'
import { KeepAliveClient } from '../../support/keep-alive-client.ts'
import { startProxyProcess } from '../../support/proxy-process.ts'
import { startService } from '../../support/service.ts'

const REQUESTS = 12_000
/** Length of the path, of which the log contains as much. All lines together exceed every buffer on their way. */
const PATH_BYTES = 1_000
const MAX_GROWTH_BYTES = 96 * 1024 * 1024

test(`${REQUESTS} requests whose lines nobody reads`, async () => {
  await using service = await startService()
  await using proxy = await startProxyProcess(service)
  const { stdout } = proxy.spawned.child
  stdout?.pause()
  using first = new KeepAliveClient(proxy.port)
  await first.get('/v2/x', 'acme')
  const { residentBytes } = await proxy.memory()

  let sent = 0
  const client = async () => {
    using connection = new KeepAliveClient(proxy.port)
    while (sent++ < REQUESTS) {
      expect((await connection.get(`/v2/${'p'.repeat(PATH_BYTES)}`, 'acme')).status).toBe(200)
      service.origin.requests.length = 0
    }
  }
  await Promise.all(Array.from({ length: 8 }, client))
  expect((await proxy.memory()).residentBytes - residentBytes).toBeLessThan(MAX_GROWTH_BYTES)

  const isTold = async () => (await proxy.metric('oap_warnings{code="log_lines_dropped"}')) === 1
  await eventually(isTold, 'the lost lines to be told')
  expect(await proxy.metric('oap_log_lines_dropped_total')).toBeGreaterThan(0)
  stdout?.resume()
  proxy.spawned.signal('SIGTERM')
  expect((await proxy.spawned.exited).code).toBe(0)
})
