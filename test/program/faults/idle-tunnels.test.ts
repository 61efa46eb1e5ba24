/** Hundreds of idle WebSockets: each is counted, none delays other requests, and a stop ends all of them. */

import { expect, test } from 'vitest'
import { get } from '../../support/case-table.ts'
import { eventually } from '../../support/changes.ts'
import { HANDSHAKE } from '../../support/handshake.ts'
import { startProxyProcess } from '../../support/proxy-process.ts'
import { RawClient, request } from '../../support/raw-client.ts'
import { startService } from '../../support/service.ts'
import { echoServer } from '../../support/websocket-echo.ts'

const TUNNELS = 400

test(`${TUNNELS} idle tunnels`, async () => {
  await using service = await startService(echoServer({}))
  await using proxy = await startProxyProcess(service, {
    settings: { 'shutdown.timeout': '60s', 'listen.maxConnections': `${TUNNELS + 100}` },
  })
  const clients: RawClient[] = []
  const opener = async () => {
    while (clients.length < TUNNELS) {
      const client = await RawClient.connect(proxy.port, { deadlineMs: 30_000 })
      clients.push(client)
      client.send(get('/v2/ws', 'acme', ...HANDSHAKE))
      expect((await client.response()).status).toBe(101)
    }
  }
  await Promise.all(Array.from({ length: 32 }, opener))
  const opened = clients.length
  expect(opened).toBeGreaterThanOrEqual(TUNNELS)
  expect(await proxy.metric('oap_origin_connections{state="tunnel"}')).toBe(opened)
  expect(await proxy.metric('oap_requests_total{method="GET",status="101"}')).toBe(opened)
  expect(await proxy.metric('oap_requests_in_flight')).toBe(0)
  expect((await request(proxy.port, get('/v2/x', 'acme'))).status).toBe(200)

  const [first, ...others] = clients
  await first?.[Symbol.asyncDispose]()
  await eventually(
    async () => (await proxy.metric('oap_origin_connections{state="tunnel"}')) === others.length || undefined,
    'one tunnel less',
  )

  const signalledAt = performance.now()
  proxy.spawned.signal('SIGTERM')
  await proxy.spawned.waitForLine(/"msg":"drain"/)
  const ends = await Promise.all(others.map((client) => client.untilClosed()))
  expect(performance.now() - signalledAt, 'they did not wait for the deadline').toBeLessThan(30_000)
  expect(ends.every(({ bytes }) => bytes.length === 0)).toBe(true)
  expect((await proxy.spawned.exited).code).toBe(0)
  expect(proxy.spawned.logs).toContainEqual(expect.objectContaining({ level: 'info', msg: 'stopped' }))
  const told = proxy.spawned.logs.filter(({ msg }) => msg === 'websocket ended')
  expect(told).toHaveLength(opened)
  expect(told.slice(1).every(({ endedBy, reason }) => endedBy === 'proxy' && reason === 'closed')).toBe(true)
  await service.origin.waitFor(() => service.origin.openConnections.length === 0, 'the ends at the origin')
})
