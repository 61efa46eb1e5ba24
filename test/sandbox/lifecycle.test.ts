import { once } from 'node:events'
import { createServer } from 'node:net'
import { networkInterfaces } from 'node:os'
import { inspect } from 'node:util'
import { expect, test } from 'vitest'
import { startSandbox } from '../../src/sandbox/sandbox.ts'
import { RawClient } from '../support/raw-client.ts'
import { call, mint } from './client.ts'

test('close ends idle, waiting and streaming connections at once', async () => {
  const sandbox = await startSandbox()
  const port = Number(new URL(sandbox.baseUrl).port)
  const token = await mint(sandbox, 'acme')
  await using idle = await RawClient.connect(port)
  const events = await call(sandbox, '/v2/example/events?intervalMs=3600000', token)
  sandbox.set({ requestLatencyMs: 3_600_000 })
  const slow = call(sandbox, '/v2/example/endpoint', token)
  const slowEnded = expect(slow).rejects.toThrow()
  await expect.poll(() => sandbox.stats().totals.requests).toBe(2)

  await sandbox.close()
  await slowEnded
  await expect(events.text()).rejects.toThrow()
  expect((await idle.untilClosed()).bytes.length).toBe(0)
  await expect(fetch(sandbox.baseUrl)).rejects.toThrow()
})

test('a taken port is a clear error', async () => {
  const holder = createServer().listen(0, '127.0.0.1')
  await once(holder, 'listening')
  try {
    const { port } = holder.address() as { port: number }
    await expect(startSandbox({ port })).rejects.toMatchObject({ code: 'EADDRINUSE' })
  } finally {
    holder.close()
  }
})

test('it listens on 127.0.0.1 and nowhere else', async () => {
  await using sandbox = await startSandbox()
  const { hostname, port } = new URL(sandbox.baseUrl)
  expect(hostname).toBe('127.0.0.1')
  const others = Object.values(networkInterfaces())
    .flatMap((addresses) => addresses ?? [])
    .filter(({ address, scopeid }) => address !== '127.0.0.1' && !scopeid)
  for (const { address } of others) {
    await expect(RawClient.connect(Number(port), { host: address })).rejects.toThrow()
  }
})

test('printing a sandbox does not print its secret', async () => {
  await using sandbox = await startSandbox({ appSecret: 'a-secret-to-look-for' })
  expect(inspect(sandbox, { depth: 10, showHidden: true })).not.toContain('a-secret-to-look-for')
  expect(JSON.stringify(sandbox)).not.toContain('a-secret-to-look-for')
})
