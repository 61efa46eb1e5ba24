/**
 * The attack: while the proxy serves one request, its client sends others without end. Node goes on parsing them, and keeps
 * about 4 KiB for each of 18 bytes: a process with 256 MB died after 7 MB. Content of waiting requests fills the memory, too,
 * above all in chunks of one byte, because Node makes an object of each.
 */

import { connect } from 'node:net'
import { describe, expect, test } from 'vitest'
import { get } from '../support/case-table.ts'
import { Changes } from '../support/changes.ts'
import { type ProxyProcess, startProxyProcess } from '../support/proxy-process.ts'
import { request } from '../support/raw-client.ts'
import { startService } from '../support/service.ts'

const CONNECTIONS = 100
const MOST_GROWTH_BYTES = 128 * 1024 * 1024
/** Sent on each connection. The memory of the proxy grew by 1 GiB before half of it was sent. */
const SENT_BYTES = 1_500_000

const tiny = Buffer.from('GET / HTTP/1.1\r\n\r\n'.repeat(3_600))
const large = Buffer.from(
  get('/v2/x', 'acme', 'Content-Length: 61440').replace('GET', 'POST') + 'x'.repeat(61_440),
  'latin1',
)
const offers = Buffer.from(get('/v2/x', 'acme', 'Connection: Upgrade', 'Upgrade: h2c').repeat(500), 'latin1')

const chunks = Buffer.from('1\r\nx\r\n'.repeat(10_000))

const held = get('/v2/held', 'acme')
const heldForToken = get('/v2/x', 'cold', 'Transfer-Encoding: chunked').replace('GET', 'POST')

/**
 * Sends the first bytes, then the piece again and again, and never reads. Resolves when the system takes no more, or enough
 * was sent.
 */
async function flood(proxy: ProxyProcess, first: string, piece: Buffer): Promise<Disposable> {
  const socket = connect(proxy.port, '127.0.0.1')
  socket.on('error', () => undefined)
  const changes = new Changes()
  let isBlocked = false
  let isQuiet: NodeJS.Timeout | undefined
  const push = () => {
    clearTimeout(isQuiet)
    while (!socket.destroyed && socket.bytesWritten < SENT_BYTES) if (!socket.write(piece)) break
    // The buffers stay full: the proxy does not read any more.
    isQuiet = setTimeout(() => {
      isBlocked = true
      changes.notify()
    }, 500)
  }
  socket.once('connect', () => {
    socket.write(first)
    push()
  })
  socket.on('drain', push)
  socket.once('close', () => changes.notify())
  await changes.until(() => isBlocked || socket.destroyed, 'the end of a flood', 30_000)
  return {
    [Symbol.dispose]: () => {
      clearTimeout(isQuiet)
      socket.destroy()
    },
  }
}

describe('a flood after a request in flight', () => {
  test.each([
    ['requests of 18 bytes', held, tiny],
    ['requests with 60 KiB of content', held, large],
    ['offers of h2c', held, offers],
    ['chunks of one byte, while a token is awaited', heldForToken, chunks],
  ])('%s', async (_, first, piece) => {
    await using service = await startService({
      mint: (mint) => (mint.org === 'cold' ? new Promise(() => {}) : mint.issue()),
      script: (seen) => (seen.target === '/v2/held' ? new Promise(() => {}) : { content: 'alive' }),
    })
    await using proxy = await startProxyProcess(service)
    expect((await request(proxy.port, get('/v2/alive', 'acme'))).status).toBe(200)
    const before = await proxy.memory()
    const floods = await Promise.all(Array.from({ length: CONNECTIONS }, () => flood(proxy, first, piece)))
    expect((await fetch(`http://127.0.0.1:${proxy.adminPort}/livez`)).status).toBe(200)
    expect((await request(proxy.port, get('/v2/alive', 'acme'))).status).toBe(200)
    const { peakBytes } = await proxy.memory()
    expect(peakBytes - before.residentBytes).toBeLessThan(MOST_GROWTH_BYTES)
    for (const one of floods) one[Symbol.dispose]()
  })
})
