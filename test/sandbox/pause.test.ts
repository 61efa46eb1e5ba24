import { once } from 'node:events'
import { createServer, request, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { expect, test } from 'vitest'
import { pause } from '../../src/sandbox/exchange.ts'

test('a pause ends when its client leaves', async () => {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  try {
    const client = request({ port: (server.address() as AddressInfo).port, host: '127.0.0.1' }).end()
    client.on('error', () => {})
    const [, response] = (await once(server, 'request')) as [unknown, ServerResponse]
    const longPause = pause(Number.MAX_SAFE_INTEGER, response)
    expect(await pause(1, response)).toBe(true)
    expect(response.listenerCount('close')).toBe(1) // only that of the long pause: the short one has removed its own
    client.destroy()
    expect(await longPause).toBe(false)
    expect(await pause(0, response)).toBe(false)
  } finally {
    server.close()
  }
})
