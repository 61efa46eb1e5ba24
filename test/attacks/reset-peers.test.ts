/**
 * The attack: a peer on another address sends a request and resets the connection at once (`SO_LINGER` with a time of zero).
 * The system then no longer knows its address, but its bytes can still be read. A proxy that takes a missing address for a
 * unix socket carries out the request of a stranger as one of this machine.
 */

import { execFileSync } from 'node:child_process'
import { networkInterfaces } from 'node:os'
import { describe, expect, test } from 'vitest'
import { get } from '../support/case-table.ts'
import { request } from '../support/raw-client.ts'
import { startBoth } from '../support/start-proxy.ts'

/** An address of this machine that others can reach. Undefined if it has none. */
const outward = Object.values(networkInterfaces())
  .flatMap((addresses) => addresses ?? [])
  .find((address) => address.family === 'IPv4' && !address.internal)?.address

const ATTEMPTS = 5

/** Sends `bytes` and a reset on each of some connections. The proxy, which runs in this process, sees none of it before the end. */
function sendAndReset(port: number, bytes: string, localAddress = '127.0.0.1'): void {
  const script = `
    const options = { host: '127.0.0.1', port: ${port}, localAddress: ${JSON.stringify(localAddress)} }
    for (let i = 0; i < ${ATTEMPTS}; i++) {
      const socket = require('node:net').connect(options, () => {
        socket.write(${JSON.stringify(bytes)})
        Object.assign(socket, { resetAndClosing: true }).destroy()
      })
    }`
  execFileSync(process.execPath, ['-e', script])
}

describe.skipIf(outward === undefined || process.platform !== 'linux')('a peer of another address that resets', () => {
  test.each([
    ['a listener on loopback', { 'listen.address': '127.0.0.1:0' }],
    ['a listener on all addresses', { 'listen.address': '0.0.0.0:0', 'listen.allowRemote': 'true' }],
  ])('%s: causes neither a mint nor a request to the service', async (_, settings) => {
    const { service, proxy } = await startBoth({}, settings)
    sendAndReset(proxy.port, get('/v2/reset', 'abroad'), outward)
    // It has accepted and closed those connections when it has answered a later one.
    expect((await request(proxy.port, get('/v2/x', 'acme'))).status).toBe(200)
    expect(service.tokens.mintsOf('abroad')).toHaveLength(0)
    expect(service.requests.map(({ target }) => target)).toEqual(['/v2/x'])
  })

  test('admin listener: purges no tokens', async () => {
    const { service, proxy } = await startBoth({}, { 'admin.address': '0.0.0.0:0' })
    expect((await request(proxy.port, get('/v2/x', 'acme'))).status).toBe(200)
    sendAndReset(proxy.adminPort, 'POST /tokens/purge?org=all HTTP/1.1\r\nHost: localhost\r\n\r\n', outward)
    expect((await proxy.askAdmin('/livez')).status).toBe(200)
    expect((await request(proxy.port, get('/v2/x', 'acme'))).status).toBe(200)
    expect(service.tokens.mintsOf('acme')).toHaveLength(1)
  })
})
