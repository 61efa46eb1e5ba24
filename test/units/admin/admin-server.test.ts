import { once } from 'node:events'
import { connect } from 'node:net'
import { networkInterfaces } from 'node:os'
import { beforeEach, describe, expect, test } from 'vitest'
import type { StatusDocument } from '../../../src/admin/status.ts'
import { eventually } from '../../support/changes.ts'
import { fieldOf, problemOf, RawClient, request } from '../../support/raw-client.ts'
import { AdminUnderTest } from './start-admin.ts'

function get(path: string, ...fields: string[]): string {
  return `GET ${path} HTTP/1.1\r\n${['Host: localhost:9090', ...fields].join('\r\n')}\r\n\r\n`
}

function post(path: string, ...fields: string[]): string {
  return get(path, ...fields).replace('GET', 'POST')
}

let admin: AdminUnderTest
beforeEach(async () => {
  admin = await AdminUnderTest.start()
  return () => admin[Symbol.asyncDispose]()
})

describe('health', () => {
  test('/livez and /healthz answer ok while the event loop runs', async () => {
    admin.checks = [{ name: 'listening', isOk: false }]
    for (const path of ['/livez', '/healthz', '/livez?verbose']) {
      const response = await request(admin.port, get(path))
      expect([response.status, response.content.toString()]).toEqual([200, 'ok\n'])
    }
  })

  test('/readyz follows the checks, and lists them with ?verbose', async () => {
    expect((await request(admin.port, get('/readyz'))).status).toBe(200)
    admin.checks = [
      { name: 'listening', isOk: true },
      { name: 'draining', isOk: false },
    ]
    const refused = await request(admin.port, get('/readyz'))
    expect([refused.status, refused.content.toString()]).toEqual([503, 'not ready: draining\n'])
    const verbose = await request(admin.port, get('/readyz?verbose'))
    expect(verbose.content.toString()).toContain('[+]listening ok\n[-]draining failed\n')
  })

  test('HEAD gets the same head as GET', async () => {
    for (const path of ['/livez', '/readyz', '/metrics', '/status', '/']) {
      const response = await request(admin.port, get(path).replace('GET', 'HEAD'))
      expect([path, response.status, response.content.length]).toEqual([path, 200, 0])
    }
  })
})

test('the status has as many matching Orgs as were asked for', async () => {
  await admin.mint('a-1', 'a-2', 'a-3', 'b-1')
  const response = await request(admin.port, get('/status?orgs=2&search=a-'))
  expect(fieldOf(response, 'content-type')).toBe('application/json')
  const status: StatusDocument = JSON.parse(response.content.toString())
  expect([status.orgCount, status.orgs.length]).toEqual([3, 2])
})

describe('purge', () => {
  test('drops the token of one Org, or of all', async () => {
    await admin.mint('a', 'b', 'c')
    const one = await request(admin.port, post('/tokens/purge?org=a'))
    expect([one.status, JSON.parse(one.content.toString())]).toEqual([200, { purged: 1 }])
    const again = await request(admin.port, post('/tokens/purge?org=a'))
    expect(JSON.parse(again.content.toString())).toEqual({ purged: 0 })
    const all = await request(admin.port, post('/tokens/purge?org=all'))
    expect(JSON.parse(all.content.toString())).toEqual({ purged: 2 })
    expect(admin.orgs.tokenCount).toBe(0)
  })

  test.each([
    ['', 'org_id_missing'],
    ['?org=a&org=b', 'org_id_missing'],
    ['?org=', 'org_id_invalid'],
    ['?org=..%2Fa', 'org_id_invalid'],
  ])('%j is refused as %s and drops nothing', async (query, code) => {
    await admin.mint('a', 'b')
    const response = await request(admin.port, post(`/tokens/purge${query}`))
    expect([response.status, problemOf(response).code]).toEqual([400, code])
    expect(admin.orgs.tokenCount).toBe(2)
  })
})

describe('refusals', () => {
  test.each([
    ['another host', get('/status').replace('localhost', 'evil.example'), 421, 'host_refused'],
    ['no host', 'GET /status HTTP/1.1\r\n\r\n', 400, 'host_invalid'],
    ['two hosts', get('/status', 'Host: localhost'), 400, 'host_invalid'],
    ['a host with a user', get('/status').replace('localhost', 'localhost@evil.example'), 400, 'host_invalid'],
    ['a page elsewhere', get('/status', 'Origin: http://evil.example'), 403, 'browser_refused'],
    ['the same name on another port', get('/status', 'Origin: http://localhost:3000'), 403, 'browser_refused'],
    ['another name for this machine', get('/status', 'Origin: http://127.0.0.1:9090'), 403, 'browser_refused'],
    ['TLS in front of another page', get('/status', 'Origin: https://localhost:9090'), 403, 'browser_refused'],
    ['a sandboxed frame or a file', get('/status', 'Origin: null'), 403, 'browser_refused'],
    ['two origins', get('/', 'Origin: http://localhost:9090', 'Origin: http://evil.example'), 403, 'browser_refused'],
    ['two sites', get('/', 'Sec-Fetch-Site: none', 'Sec-Fetch-Site: cross-site'), 403, 'browser_refused'],
    ['a link from elsewhere', get('/', 'Sec-Fetch-Site: cross-site'), 403, 'browser_refused'],
    ['another proxy', get('/metrics', 'X-Forwarded-For: 10.0.0.1'), 403, 'forwarded_refused'],
    ['another proxy by the standard', get('/metrics', 'Forwarded: for=10.0.0.1'), 403, 'forwarded_refused'],
    ['another proxy by address', get('/metrics', 'X-Real-IP: 10.0.0.1'), 403, 'forwarded_refused'],
    ['health for a page elsewhere', get('/livez', 'Sec-Fetch-Site: same-site'), 403, 'browser_refused'],
    ['a path that is nothing', get('/admin'), 404, 'not_found'],
    ['a path with more behind', get('/status/'), 404, 'not_found'],
    ['a target in absolute form', get('http://localhost:9090/status'), 404, 'not_found'],
    ['a method that is not for it', post('/status'), 405, 'method_refused'],
    ['OPTIONS', get('/status').replace('GET', 'OPTIONS'), 405, 'method_refused'],
    ['a link or an image that would purge', get('/tokens/purge?org=all'), 405, 'method_refused'],
    ['a version without Host', get('/livez').replace('1.1', '0.9'), 505, 'http_version_refused'],
    ['a version with frames', get('/livez').replace('1.1', '2.0'), 505, 'http_version_refused'],
  ])('%s: %s', async (_, raw, status, code) => {
    const response = await request(admin.port, raw)
    expect([response.status, problemOf(response).code]).toEqual([status, code])
    expect(fieldOf(response, 'content-type')).toBe('application/problem+json')
    expect(fieldOf(response, 'allow') === undefined).toBe(status !== 405)
    expect((await request(admin.port, get('/livez'))).status).toBe(200)
  })

  test('what is no HTTP, or has a huge head, is refused', async () => {
    expect((await request(admin.port, 'NONSENSE\r\n\r\n')).status).toBe(400)
    expect((await request(admin.port, get('/', `X: ${'x'.repeat(17 * 1024)}`))).status).toBe(431)
  })

  test('people, the page itself and client libraries are let in', async () => {
    await using admin = await AdminUnderTest.start({ refuseForwarded: false })
    const requests = [
      get('/', 'Sec-Fetch-Site: none', 'Sec-Fetch-Mode: navigate'),
      get('/status', 'Sec-Fetch-Site: same-origin'),
      get('/status', 'Origin: http://localhost:9090').replace('Host: localhost', 'Host: LOCALHOST'),
      get('/status', 'Sec-Fetch-Mode: cors').replace('localhost:9090', '[::1]:1'),
      get('/status', 'X-Forwarded-For: 1.2.3.4', 'Forwarded: for=1.2.3.4', 'X-Real-IP: 1.2.3.4'), // by the settings
    ]
    for (const raw of requests) expect([raw, (await request(admin.port, raw)).status]).toEqual([raw, 200])
  })

  test('errors repeat nothing of the request', async () => {
    const response = await request(admin.port, get('/canary?canary', 'X-Canary: canary').replace('GET', 'PROPFIND'))
    expect(response.status).toBe(404)
    expect(response.content.toString()).not.toContain('canary')
  })

  test('a fault of the listener is answered, and logged', async () => {
    const fault = new Error('broken')
    Object.defineProperty(admin, 'checks', {
      get: () => {
        throw fault
      },
    })
    const response = await request(admin.port, get('/readyz'))
    expect([response.status, problemOf(response).code]).toEqual([500, 'proxy_internal_error'])
    expect(admin.reported).toEqual([fault])
  })
})

describe('an address that other machines can reach', () => {
  const anywhere = { address: { kind: 'tcp', host: '0.0.0.0', port: 0 }, isRemote: true } as const

  test('answers health without a name, and nothing else', async () => {
    await using open = await AdminUnderTest.start(anywhere)
    expect((await request(open.port, 'GET /livez HTTP/1.0\r\n\r\n')).status).toBe(200)
    const host = outwardAddress()
    if (host === undefined) return
    for (const raw of [get('/'), get('/status'), post('/tokens/purge?org=all'), post('/reload')]) {
      const response = await request(open.port, raw, { host })
      expect([response.status, problemOf(response).code]).toEqual([403, 'remote_refused'])
    }
    await using allowing = await AdminUnderTest.start({ ...anywhere, allowRemote: true, quit: async () => 0 })
    expect((await request(allowing.port, post('/reload'), { host })).status).toBe(200)
    const remote = await request(allowing.port, post('/quitquitquit'), { host })
    expect(problemOf(remote).code).toBe('remote_refused')
    expect((await request(allowing.port, post('/quitquitquit'))).status).toBe(200)
    await expect(request(admin.port, get('/livez'), { host })).rejects.toThrow('ECONNREFUSED')
  })
})

// A caller could read the orgs of all others, and purge their tokens in a loop.
test.each([
  ['callers on this machine', { callers: 'here' }, 'callers_refused'],
  ['callers elsewhere', { callers: 'elsewhere' }, undefined],
  ['callers elsewhere who can reach it', { callers: 'elsewhere', isOutside: true }, 'callers_refused'],
] as const)('%s: %j', async (_, { callers, ...rest }, expected) => {
  const host = 'isOutside' in rest ? outwardAddress() : 'localhost'
  if (host === undefined) return
  const address = { kind: 'tcp', host: '0.0.0.0', port: 0 } as const
  await using admin = await AdminUnderTest.start({ address, isRemote: true, allowRemote: true, callers })
  for (const raw of [get('/'), get('/status'), post('/tokens/purge?org=all'), post('/tokens/resume')]) {
    const response = await request(admin.port, raw, { host })
    expect(response.status === 200 ? undefined : problemOf(response).code).toBe(expected)
  }
  expect((await request(admin.port, get('/metrics'), { host })).status).toBe(200)
})

function outwardAddress(): string | undefined {
  const addresses = Object.values(networkInterfaces()).flatMap((each) => each ?? [])
  return addresses.find(({ family, internal }) => family === 'IPv4' && !internal)?.address
}

describe('limits', () => {
  test('a client with many connections does not lock out probes', async () => {
    const hoard = Array.from({ length: 200 }, () => connect(admin.port, '127.0.0.1').on('error', () => undefined))
    await Promise.all(hoard.map((socket) => once(socket, 'connect').catch(() => undefined)))
    expect((await request(admin.port, get('/readyz'))).status).toBe(200)
    for (const socket of hoard) socket.resume()
    await eventually(() => hoard.filter(({ closed }) => !closed).length <= 64, 'most of the hoard to be dropped')
    for (const socket of hoard) socket.destroy()
  })

  test('content is not read: the connection ends after the answer', async () => {
    await using client = await RawClient.sending(
      admin.port,
      `${post('/tokens/purge?org=all', 'Content-Length: 100000000')}GET /smuggled HTTP/1.1`,
    )
    const response = await client.response('POST')
    expect([response.status, fieldOf(response, 'connection')]).toEqual([200, 'close'])
    const { bytes } = await client.untilClosed()
    expect(bytes).toHaveLength(0)
  })

  // A thousand requests for the status in one packet, from each of 64 connections that read nothing, took 750 MB and the
  // event loop for minutes.
  test('pipelined requests end the connection, and are not answered', async () => {
    let answers = 0
    admin.metrics.families = () => {
      answers += 1
      return []
    }
    await using client = await RawClient.sending(admin.port, get('/metrics').repeat(1_000))
    await client.untilClosed()
    expect(answers).toBe(1)
    expect((await request(admin.port, get('/livez'))).status).toBe(200)
  })

  test('a browser that polls keeps its connection', async () => {
    await using client = await RawClient.connect(admin.port)
    for (let i = 0; i < 3; i++) {
      client.send(get('/status', 'Sec-Fetch-Site: same-origin'))
      expect((await client.response()).status).toBe(200)
    }
  })

  test('close() ends open connections', async () => {
    await using client = await RawClient.sending(admin.port, get('/livez'))
    await client.response()
    await admin[Symbol.asyncDispose]()
    await client.untilClosed()
    await expect(request(admin.port, get('/livez'))).rejects.toThrow('ECONNREFUSED')
  })
})
