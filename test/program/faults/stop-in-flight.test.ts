/** SIGTERM with requests in flight, each at another stage: none fails. */

import { expect, test } from 'vitest'
import { get } from '../../support/case-table.ts'
import { Gate } from '../../support/changes.ts'
import { startProxyProcess } from '../../support/proxy-process.ts'
import { fieldOf, RawClient } from '../../support/raw-client.ts'
import { startService } from '../../support/service.ts'

const WAITING = 16
const UPLOADING = 12
const DOWNLOADING = 8
const MINTING = 4
const IN_FLIGHT = WAITING + UPLOADING + DOWNLOADING + MINTING

const CONTENT = 'x'.repeat(50_000)
const DRAIN_MS = 60_000

test(`${IN_FLIGHT} in flight, 0 failed`, async () => {
  const gate = new Gate(60_000)
  await using service = await startService({
    mint: async (mint) => {
      if (mint.org.startsWith('cold-')) await gate.pass()
      return mint.issue()
    },
    script: async (seen, connection) => {
      if (seen.target === '/v2/warm') return {}
      const isDownload = seen.target === '/v2/download'
      if (isDownload) connection.write(`HTTP/1.1 200 OK\r\nContent-Length: ${CONTENT.length}\r\n\r\n`)
      await gate.pass()
      await seen.ended
      if (!isDownload) return { content: seen.content.length > 0 ? seen.content : CONTENT }
      connection.write(CONTENT)
    },
  })
  await using started = await startProxyProcess(service, {
    settings: {
      'origin.connections': `${2 * IN_FLIGHT}`,
      'tokens.mintConcurrency': `${4 * MINTING}`,
      'tokens.mintRate': '1000',
      'tokens.mintTimeout': '60s',
      'shutdown.timeout': `${DRAIN_MS}ms`,
    },
  })
  const { port, spawned: proxy } = started
  const open = (head: string) => RawClient.sending(port, head, { deadlineMs: 60_000 })
  const warm = await open(get('/v2/warm', 'acme'))
  await warm.response()

  const upload = get('/v2/upload', 'acme', `Content-Length: ${CONTENT.length}`).replace('GET', 'POST')
  const heads = [
    ...Array.from({ length: WAITING }, () => get('/v2/wait', 'acme')),
    ...Array.from({ length: UPLOADING }, () => upload + CONTENT.slice(0, 10_000)),
    ...Array.from({ length: DOWNLOADING }, () => get('/v2/download', 'acme')),
    ...Array.from({ length: MINTING }, (_, i) => get('/v2/wait', `cold-${i}`)),
  ]
  const clients = await Promise.all(heads.map(open))
  const hasAll = () =>
    service.requests.length === 1 + IN_FLIGHT - MINTING && service.tokens.mints.length === 1 + MINTING
  await service.origin.waitFor(hasAll, 'all requests and mints', 30_000)
  await Promise.all(clients.slice(WAITING + UPLOADING, -MINTING).map((client) => client.untilBytes('\r\n\r\n')))

  proxy.signal('SIGTERM')
  await proxy.waitForLine(/"msg":"drain"/)
  const drainedAt = performance.now()
  gate.open()
  for (const client of clients.slice(WAITING, WAITING + UPLOADING)) client.send(CONTENT.slice(10_000))
  const responses = await Promise.all(clients.map((client) => client.response()))
  for (const [i, response] of responses.entries()) {
    expect(response.status, heads[i]).toBe(200)
    expect(response.isComplete).toBe(true)
    expect(response.content.length).toBe(CONTENT.length)
    // Heads that were not sent before the stop say that the connection closes.
    if (!heads[i]?.startsWith('GET /v2/download')) expect(fieldOf(response, 'connection')).toBe('close')
  }
  expect(await proxy.exited).toEqual({ code: 0, signal: null })
  expect(performance.now() - drainedAt).toBeLessThan(DRAIN_MS + 1_000)
  for (const client of clients) await client[Symbol.asyncDispose]()
})
