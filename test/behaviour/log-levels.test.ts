import { expect, test } from 'vitest'
import { get } from '../support/case-table.ts'
import { request } from '../support/raw-client.ts'
import { startBoth } from '../support/start-proxy.ts'

test('a 5xx for a fault of the client is logged as info', async () => {
  const { service, proxy } = await startBoth()
  await request(proxy.port, get('/v2/version', 'acme').replace('HTTP/1.1', 'HTTP/2.0'))
  await request(proxy.port, get('/v2/x', 'acme'))
  const [via = ''] = service.requests[0]?.values('via') ?? []
  await request(proxy.port, get('/v2/loop', 'acme', `Via: ${via}`))
  expect(await proxy.logOf('/v2/version')).toMatchObject({ level: 'info', status: 505, code: 'http_version_refused' })
  expect(await proxy.logOf('/v2/loop')).toMatchObject({ level: 'info', status: 508, code: 'proxy_loop_detected' })
})

test('a 5xx that is the fault of the service or the proxy is logged as a warning', async () => {
  const { proxy } = await startBoth({ script: (_, connection) => void connection.reset() })
  await request(proxy.port, get('/v2/reset', 'acme'))
  expect(await proxy.logOf('/v2/reset')).toMatchObject({ level: 'warn', status: 502, code: 'connection_terminated' })
})
