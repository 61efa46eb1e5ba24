/** The name of the service gets another address, or has a dead one: requests, mints and WebSockets reach the service. */

import { once } from 'node:events'
import { createServer } from 'node:net'
import { expect, test } from 'vitest'
import { get } from '../support/case-table.ts'
import { openDeadEnd } from '../support/dead-end.ts'
import { HANDSHAKE } from '../support/handshake.ts'
import { type NameRecord, openNameRecord } from '../support/name-record.ts'
import { startOrigin } from '../support/origin.ts'
import { fieldOf, request } from '../support/raw-client.ts'
import { type Service, startService } from '../support/service.ts'
import { environmentFor, spawnProxy } from '../support/spawn-proxy.ts'
import { echoServer } from '../support/websocket-echo.ts'

const echo = echoServer()

function startNamedService(content: string): Promise<Service> {
  return startService({
    script: (seen, on) => (seen.target === '/v2/ws' ? echo.script(seen, on) : { content }),
  })
}

/** True if this machine has the address. Other systems have only 127.0.0.1, and some have no IPv6. */
async function has(host: string): Promise<boolean> {
  const probe = createServer().listen(0, host)
  const [isThere] = await Promise.race([
    once(probe, 'listening').then(() => [true]),
    once(probe, 'error').then(() => [false]),
  ])
  probe.close()
  return isThere === true
}

async function startBefore(service: Service, record: NameRecord) {
  const env = await environmentFor(service)
  const baseUrl = `http://${record.name}:${service.origin.port}`
  const settings = { OAP_BASE_URL: baseUrl, OAP_ORIGIN_ALLOW_INSECURE: 'true' }
  const proxy = spawnProxy({ env: { ...env, ...record.env, ...settings }, nodeArgs: record.nodeArgs })
  const { port } = await proxy.ready()
  const dispose = async () => {
    await proxy[Symbol.asyncDispose]()
    await env[Symbol.asyncDispose]()
  }
  return { port, [Symbol.asyncDispose]: dispose }
}

test.skipIf(!(await has('127.0.0.2')))(
  'the record changes and the old address dies: new connections go to the new address',
  async () => {
    await using service = await startNamedService('from the first')
    const { port: originPort } = service.origin
    await using second = await startOrigin(
      (seen, on) => {
        if (service.orgOfMint(seen) !== undefined) return service.origin.script(seen, on)
        return seen.target === '/v2/ws' ? echo.script(seen, on) : { content: 'from the second' }
      },
      { host: '127.0.0.2', port: originPort },
    )
    await using record = await openNameRecord('127.0.0.1')
    await using proxy = await startBefore(service, record)
    expect((await request(proxy.port, get('/v2/x', 'acme'))).content.toString()).toBe('from the first')
    expect(second.requests).toEqual([])

    await record.set('127.0.0.2')
    await service.origin.stop()
    for (const org of ['acme', 'cold']) {
      expect((await request(proxy.port, get('/v2/x', org))).content.toString()).toBe('from the second')
    }
    expect((await request(proxy.port, get('/v2/ws', 'acme', ...HANDSHAKE))).status).toBe(101)
    expect(second.requests.map(({ target }) => target)).toEqual(['/v2/x', '/v2/orgs/cold/access', '/v2/x', '/v2/ws'])
  },
)

test.skipIf(process.platform !== 'linux' || !(await has('::1')))(
  'an IPv6 address without an answer: the IPv4 address is tried before the time limit',
  async () => {
    await using service = await startNamedService('over IPv4')
    await using _ = await openDeadEnd('::1', service.origin.port)
    await using record = await openNameRecord('::1', '127.0.0.1')
    await using proxy = await startBefore(service, record)
    const { content } = await request(proxy.port, get('/v2/x', 'acme'))
    expect(content.toString()).toBe('over IPv4')
    const handshake = await request(proxy.port, get('/v2/ws', 'acme', ...HANDSHAKE))
    expect(handshake.status).toBe(101)
    expect(fieldOf(handshake, 'upgrade')).toBe('websocket')
  },
)
