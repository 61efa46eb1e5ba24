/**
 * The attack: while the proxy has one request in hand, its client sends others without end. Node goes on parsing them and
 * keeps some 4 KiB for each of 18 bytes: a process with 256 MB died after 7 MB. Content of waiting requests does the same, most
 * of all in chunks of one byte: Node makes an object of each.
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
/** Of each connection; the memory of the proxy grew by 1 GiB before the first half of it had been sent. */
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

/** Sends the first bytes, then the piece again and again; never reads. Resolves once the system takes no more, or enough is sent. */
async function flood(proxy: ProxyProcess, first: string, piece: Buffer): Promise<Disposable> {
  const socket = connect(proxy.port, '127.0.0.1')
  socket.on('error', () => undefined)
  const changes = new Changes()
  let isBlocked = false
  let isQuiet: NodeJS.Timeout | undefined
  const push = () => {
    clearTimeout(isQuiet)
    while (!socket.destroyed && socket.bytesWritten < SENT_BYTES) if (!socket.write(piece)) break
    // No room for a while: the proxy reads no more of it.
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

describe('a flood behind a request in hand', () => {
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
    await using proxy = await startProxyProcess({
      baseUrl: service.baseUrl,
      appId: service.tokens.appId,
      appSecret: service.tokens.appSecret,
    })
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
