import { existsSync, readdirSync, statSync, unlinkSync } from 'node:fs'
import { networkInterfaces } from 'node:os'
import { afterAll, describe, expect, test } from 'vitest'
import { get } from '../support/case-table.ts'
import { folderForFile } from '../support/folder.ts'
import { HANDSHAKE } from '../support/handshake.ts'
import { fieldOf, problemOf, RawClient, request } from '../support/raw-client.ts'
import { startService } from '../support/service.ts'
import { type ProxySettings, startProxy } from '../support/start-proxy.ts'

const folder = await folderForFile()
const service = await startService()
afterAll(() => service[Symbol.asyncDispose]())

/** An address of this machine that others can reach. Undefined if it has none. */
const outward = Object.values(networkInterfaces())
  .flatMap((addresses) => addresses ?? [])
  .find((address) => address.family === 'IPv4' && !address.internal)?.address

describe('a listener on loopback', () => {
  test.skipIf(outward === undefined)('does not answer on an address that others can reach', async () => {
    await using proxy = await startProxy(service)
    await expect(RawClient.connect(proxy.port, { host: outward ?? '' })).rejects.toThrow('ECONNREFUSED')
    expect((await request(proxy.port, get('/v2/x', 'acme'))).status).toBe(200)
  })

  test.each(['127.0.0.1:0', '[::1]:0', 'localhost:0'])('%s needs no permission', async (address) => {
    await using proxy = await startProxy(service, { 'listen.address': address })
    const host = address.startsWith('[') ? '::1' : '127.0.0.1'
    expect((await request(proxy.port, get('/v2/x', 'acme'), { host })).status).toBe(200)
  })

  // Like with a firewall rule or a misrouted packet: the listener is on loopback, the peer is not.
  describe.skipIf(outward === undefined || process.platform !== 'linux')('reached from another address', () => {
    const from = { localAddress: outward ?? '' }

    test('every request is refused, without a mint', async () => {
      await using proxy = await startProxy(service)
      const { length: requests } = service.origin.requests
      const upload = get('/v2/x', 'abroad', 'Content-Length: 5').replace('GET', 'POST')
      for (const raw of [
        get('/v2/x', 'abroad'),
        `${upload}hello`,
        upload,
        get('/v2/x', 'abroad', ...HANDSHAKE),
        get('/v2/x', 'abroad', 'Origin: https://evil.example'),
      ]) {
        await using client = await RawClient.sending(proxy.port, raw, from)
        const response = await client.response()
        expect([response.status, problemOf(response).code]).toEqual([403, 'remote_refused'])
        expect(fieldOf(response, 'connection')).toBe('close')
        client.endSending()
        await client.untilClosed()
      }
      expect(service.origin.requests.length).toBe(requests)
      expect((await request(proxy.port, get('/v2/x', 'acme'))).status).toBe(200)
    })

    test('it takes no place from clients on this machine', async () => {
      await using proxy = await startProxy(service, { 'listen.maxConnections': '1' })
      await using client = await RawClient.sending(proxy.port, get('/v2/x', 'acme'))
      expect((await client.response()).status).toBe(200)
      await using stranger = await RawClient.connect(proxy.port, from)
      expect((await stranger.untilClosed()).bytes.length).toBe(0)
      client.send(get('/v2/x', 'acme'))
      expect((await client.response()).status).toBe(200)
    })

    test('listen.allowRemote lets it in', async () => {
      await using proxy = await startProxy(service, { 'listen.allowRemote': 'true' })
      expect((await request(proxy.port, get('/v2/x', 'acme'), from)).status).toBe(200)
    })

    test('the admin listener does not answer', async () => {
      await using proxy = await startProxy(service, { 'admin.address': '127.0.0.1:0' })
      await using client = await RawClient.sending(proxy.adminPort, get('/livez', 'acme'), from)
      expect((await client.untilClosed()).bytes.length).toBe(0)
    })
  })

  test.skipIf(outward === undefined)(
    'with listen.allowRemote, other machines are served, under the permitted names',
    async () => {
      await using proxy = await startProxy(service, { 'listen.address': '0.0.0.0:0', 'listen.allowRemote': 'true' })
      const host = outward ?? ''
      expect((await request(proxy.port, get('/v2/x', 'acme'), { host })).status).toBe(200)
      const rebound = get('/v2/x', 'acme').replace('localhost', 'evil.example')
      expect((await request(proxy.port, rebound, { host })).status).toBe(421)
    },
  )
})

describe('a unix socket', () => {
  const at = (name: string, more: ProxySettings = {}) => ({ 'listen.address': `unix:${folder.at(name)}`, ...more })
  const modeOf = (name: string) => statSync(folder.at(name)).mode & 0o777

  test('serves, with the mode of the settings, and leaves nothing behind', async () => {
    {
      await using _ = await startProxy(service, at('a'))
      expect((await request(folder.at('a'), get('/v2/x', 'acme'))).status).toBe(200)
      expect(modeOf('a')).toBe(0o660)
    }
    expect(existsSync(folder.at('a'))).toBe(false)
    await using _ = await startProxy(service, at('a', { 'listen.socketMode': '0600' }))
    expect(modeOf('a')).toBe(0o600)
  })

  // Clients send what their library makes of a path: an empty name, `unix`, or any other.
  test.each(['Host:', 'Host: unix', 'Host: localhost', 'Host: any.example:80'])(
    'serves any name, on each kind of socket: %s',
    async (line) => {
      const files = { 'proxy.yaml': 'callers: [{name: billing, socket: $FOLDER/billing.sock, orgs: [acme]}]' }
      await using open = await startProxy(service, at('any', { 'admin.address': 'unix:$FOLDER/admin.sock' }))
      await using callers = await startProxy(service, {}, files)
      const raw = (target: string) => get(target, 'acme').replace('Host: localhost', line)
      for (const path of [folder.at('any'), callers.at('billing.sock')]) {
        expect((await request(path, raw('/v2/x'))).status).toBe(200)
        expect((await request(path, raw('http://any.example/v2/x'))).status).toBe(200)
      }
      expect((await request(open.at('admin.sock'), raw('/status'))).status).toBe(200)
    },
  )

  test.each([
    ['no Host', ''],
    ['two', 'Host: a\r\nHost: a\r\n'],
    ['none that can be one', 'Host: a b\r\n'],
  ])('refuses a request with %s', async (_, lines) => {
    await using _proxy = await startProxy(service, at('strict'))
    const response = await request(folder.at('strict'), get('/v2/x', 'acme').replace('Host: localhost\r\n', lines))
    expect(problemOf(response).code).toBe('host_invalid')
  })

  test('a stopping instance leaves the socket of its successor alone', async () => {
    const old = await startProxy(service, at('handed-over'))
    unlinkSync(folder.at('handed-over')) // as a deployment does that cannot wait
    await using _ = await startProxy(service, at('handed-over'))
    await old[Symbol.asyncDispose]()
    expect((await request(folder.at('handed-over'), get('/v2/x', 'acme'))).status).toBe(200)
  })

  test('a socket in use is left alone', async () => {
    await using _ = await startProxy(service, at('used'))
    await expect(startProxy(service, at('used'))).rejects.toThrow(/in use/)
    expect(readdirSync(folder.path).filter((name) => name.startsWith('.'))).toEqual([]) // temporary names
    expect((await request(folder.at('used'), get('/v2/x', 'acme'))).status).toBe(200)
  })
})

test.each(['/metrics', '/status', '/livez', '/readyz', '/', '/tokens/purge?org=all'])(
  "%s is no admin page on the proxy's own port",
  async (path) => {
    await using proxy = await startProxy(service)
    expect((await request(proxy.port, get(path, 'acme').replace('X-Org-Id: acme\r\n', ''))).status).toBe(400)
    const response = await request(proxy.port, get(path, 'acme'))
    expect(response.content.toString()).toBe('hello from the origin')
  },
)
