/** A client that sends its next request before it has read the last answer gets that answer complete; then the next one, or the end. */

import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, expect, test } from 'vitest'
import { get } from '../support/case-table.ts'
import { eventually } from '../support/changes.ts'
import { startFaultTable } from '../support/fault-table.ts'
import { RawClient } from '../support/raw-client.ts'

const KIB = 1024

/** A unix socket, because its buffers in the system are small and always have the same size. */
const folder = await mkdtemp(join(tmpdir(), 'oap-'))
afterAll(() => rm(folder, { recursive: true }))
const table = await startFaultTable({ 'listen.address': `unix:${join(folder, 'socket')}` })

const hasEnded = (path: string) => table.proxy.logs.some((line) => line.msg === 'request' && line.path === path)

async function askTwice(sizeBytes: number): Promise<void> {
  const first = table.target(() => ({ content: Buffer.alloc(sizeBytes, 'x') }))
  const second = table.target(() => ({ content: 'the second' }))
  await using client = await RawClient.connect(join(folder, 'socket'))
  client.socket.pause()
  client.send(get(first, 'acme'))
  // Some of these sizes have left the origin completely, but not the proxy.
  const end = eventually(() => hasEnded(first) || undefined, 'the end', 300)
  if (await end.catch(() => false)) {
    client.send(get(second, 'acme'))
    await eventually(() => table.requestsFor(second).length > 0 || undefined, 'x', 300).catch(() => undefined)
  } else client.send(get(second, 'acme'))
  client.socket.resume()
  expect((await client.response()).content, `${sizeBytes}`).toHaveLength(sizeBytes)
  const next = await client.response().catch((error: Error) => error.name)
  if (typeof next === 'string') expect(next, `behind ${sizeBytes}`).toBe('StreamEnded')
  else expect(next.content.toString(), `behind ${sizeBytes}`).toBe('the second')
}

test('however much is still unread', async () => {
  await askTwice(1)
  const sizes = Array.from({ length: 60 }, (_, i) => (64 + 8 * i) * KIB)
  await Promise.all(sizes.map(askTwice))
})
