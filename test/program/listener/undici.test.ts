/** undici, the client of many services, through the proxy: its pool keeps connections, and its `fetch` streams. */

import { fetch, Pool } from 'undici'
import { expect, onTestFinished, test } from 'vitest'
import { startService } from '../../support/service.ts'
import { startProxy } from '../../support/start-proxy.ts'

test('a pool: each answer is that of its Org, and rejected tokens are not seen', async () => {
  await using service = await startService({
    script: async (seen) => {
      const org = service.orgOf(seen)
      await seen.ended
      return { content: `${org} ${seen.contentBytes}` }
    },
  })
  await using proxy = await startProxy(service)
  const pool = new Pool(`http://127.0.0.1:${proxy.port}`, { connections: 4 })
  onTestFinished(() => pool.close())
  const send = async (i: number) => {
    const org = `org-${i % 3}`
    const method = i % 2 === 0 ? 'GET' : 'POST'
    const body = method === 'POST' ? Buffer.alloc(i * 10) : null
    const answer = await pool.request({ method, path: `/v2/things/${i}`, headers: { 'x-org-id': org }, body })
    expect([answer.statusCode, await answer.body.text()]).toEqual([200, `${org} ${body?.length ?? 0}`])
  }
  await Promise.all(Array.from({ length: 60 }, (_, i) => send(i)))
  service.tokens.revoke()
  await Promise.all(Array.from({ length: 60 }, (_, i) => send(i)))
  expect(service.tokens.mints).toHaveLength(6)
})

test('fetch: streamed content both ways', async () => {
  await using service = await startService({
    script: async (seen) => {
      await seen.ended
      return { content: seen.content }
    },
  })
  await using proxy = await startProxy(service)
  const chunks = Array.from({ length: 50 }, (_, i) => Buffer.alloc(1_000, i))
  const answer = await fetch(`http://127.0.0.1:${proxy.port}/v2/echo`, {
    method: 'POST',
    headers: { 'x-org-id': 'acme' },
    body: new ReadableStream({
      start(controller) {
        for (const chunk of chunks) controller.enqueue(chunk)
        controller.close()
      },
    }),
    duplex: 'half',
  })
  expect(answer.status).toBe(200)
  expect(Buffer.from(await answer.arrayBuffer()).equals(Buffer.concat(chunks))).toBe(true)
})
