/** The switches, the faults, and the endpoints below `/sandbox/`. */

import { expect, test } from 'vitest'
import { type Fault, type Sandbox, startSandbox } from '../../../src/sandbox/sandbox.ts'
import { fieldOf, RawClient } from '../../support/raw-client.ts'
import { basic, call, callTokenEndpoint, mint } from './client.ts'

function control(sandbox: Sandbox, path: string, init: RequestInit = {}): Promise<Response> {
  return fetch(`${sandbox.baseUrl}/sandbox/${path}`, init)
}

function turn(sandbox: Sandbox, content: unknown): Promise<Response> {
  return control(sandbox, 'switches', { method: 'PUT', body: JSON.stringify(content) })
}

test('switches can be set over HTTP, and are shown without the secret', async () => {
  await using sandbox = await startSandbox({ appSecret: 'a-secret-to-look-for' })
  const response = await turn(sandbox, {
    unlinkedStatus: 404,
    tokenLifetimeMs: 2000,
    mintFaults: [{ kind: 'status', status: 429, retryAfterSeconds: 1, count: 1 }],
  })
  expect(response.status).toBe(200)
  const answer = await response.text()
  expect(JSON.parse(answer)).toMatchObject({ unlinkedStatus: 404, tokenLifetimeMs: 2000, badCredentialsStatus: 401 })
  expect(answer).not.toMatch(/secret/i)

  expect((await callTokenEndpoint(sandbox, 'acme')).status).toBe(429)
  expect((await callTokenEndpoint(sandbox, 'initech')).status).toBe(404)
})

test('the secret can be rotated over HTTP, and two may be valid at once', async () => {
  await using sandbox = await startSandbox({ appSecret: 'old' })
  const statusWith = async (secret: string) =>
    (await callTokenEndpoint(sandbox, 'acme', basic(sandbox.appId, secret))).status
  const statuses = () => Promise.all(['old', 'new'].map(statusWith))
  expect(await statuses()).toEqual([200, 401])
  await turn(sandbox, { appSecret: ['old', 'new'] })
  expect(await statuses()).toEqual([200, 200])
  expect(sandbox.appSecret).toBe('new')
  await turn(sandbox, { appSecret: 'new' })
  expect(await statuses()).toEqual([401, 200])
})

test.each([
  ['{"tokenLifeTimeMs": 1}', '"tokenLifeTimeMs"'],
  ['{"tokenLifetimeMs": "5s"}', 'tokenLifetimeMs: .*expected number'],
  ['{"expiredStatus": 99}', 'expiredStatus: .*>=200'],
  ['{"mintFaults": {"kind": "hang"}}', 'mintFaults: .*expected array'],
  ['{"requestFaults": [{"kind": "hang", "times": 2}]}', 'requestFaults.0: .*"times"'],
  ['{"mintLatencyMs": -1, "toString": 1}', 'mintLatencyMs: .*>=0; .*"toString"'],
  ['{', 'SyntaxError: .*JSON'],
])('%s is refused with the reason, and nothing changes', async (body, message) => {
  await using sandbox = await startSandbox()
  const shown = async () => (await turn(sandbox, {})).text()
  const before = await shown()
  const response = await control(sandbox, 'switches', { method: 'PUT', body })
  expect(response.status).toBe(400)
  expect(await response.json()).toEqual({ error: 'switches_invalid', message: expect.stringMatching(message) })
  expect(await shown()).toBe(before)
})

test('options and set() refuse the same', async () => {
  await expect(startSandbox({ unlinkedStatus: 1000 })).rejects.toThrow('unlinkedStatus: ')
  await using sandbox = await startSandbox()
  expect(() => sandbox.set({ tokenLifetimeMs: Number.NaN })).toThrow(TypeError)
})

test('tokens can be revoked over HTTP, but not by a web page', async () => {
  await using sandbox = await startSandbox()
  const token = await mint(sandbox, 'acme')
  const page = { method: 'POST', headers: { origin: 'https://page.example' } }
  expect((await control(sandbox, 'revoke?org=acme', page)).status).toBe(403)
  const response = await control(sandbox, 'revoke?org=acme', { method: 'POST' })
  expect(await response.json()).toEqual({ revoked: 1 })
  expect((await call(sandbox, '/v2/example/endpoint', token)).status).toBe(401)
  expect((await control(sandbox, 'revoke', { method: 'POST' })).status).toBe(400)
})

test('mints, tokens, requests and rejections are counted per org and in total', async () => {
  await using sandbox = await startSandbox()
  const before = sandbox.stats()
  const token = await mint(sandbox, 'acme')
  for (let count = 0; count < 3; count += 1) await call(sandbox, '/v2/example/endpoint', token)
  sandbox.revoke('acme')
  await call(sandbox, '/v2/example/endpoint', token)
  await call(sandbox, '/v2/example/endpoint', 'never-issued')
  await callTokenEndpoint(sandbox, 'initech')
  await callTokenEndpoint(sandbox, '__proto__', basic('sandbox-app', 'wrong'))

  const expected = {
    totals: { mints: 3, tokens: 1, requests: 3, rejected: 2 },
    orgs: {
      acme: { mints: 1, tokens: 1, requests: 3, rejected: 1 },
      initech: { mints: 1, tokens: 0, requests: 0, rejected: 0 },
      ['__proto__']: { mints: 1, tokens: 0, requests: 0, rejected: 0 },
    },
  }
  expect(sandbox.stats()).toEqual(expected)
  expect(await (await control(sandbox, 'stats?any=query')).json()).toEqual(expected)
  expect(before.totals.mints, 'a copy').toBe(0)
  expect((await control(sandbox, 'stats/')).status).toBe(404)
})

async function sendMint(client: RawClient, { appId, appSecret }: Sandbox): Promise<void> {
  const authorization = `Authorization: ${basic(appId, appSecret)}`
  client.send(`POST /v2/orgs/acme/access HTTP/1.1\r\nHost: sandbox\r\n${authorization}\r\nContent-Length: 0\r\n\r\n`)
}

test.each<[Fault, Record<string, unknown>, content: RegExp, field?: [string, string]]>([
  [{ kind: 'status', status: 429, retryAfterSeconds: 7 }, { status: 429 }, /sandbox_fault/, ['retry-after', '7']],
  [{ kind: 'status' }, { status: 500 }, /sandbox_fault/],
  [{ kind: 'html' }, { status: 200 }, /^<!doctype html>/, ['content-type', 'text/html']],
  [{ kind: 'html', status: 502 }, { status: 502 }, /^<!doctype html>/],
  [{ kind: 'truncated-json' }, { status: 200, isComplete: true }, /^\{"orgAccessToken":"[^"]*$/],
  [{ kind: 'cut' }, { status: 200, isComplete: false }, /^\{"orgAccessToken":"[^"]*$/],
])('the fault %j', async (fault, expected, content, field) => {
  await using sandbox = await startSandbox({ mintFaults: [fault] })
  await using client = await RawClient.connect(Number(new URL(sandbox.baseUrl).port))
  await sendMint(client, sandbox)
  const response = await client.response('POST')
  expect(response).toMatchObject(expected)
  expect(response.content.toString()).toMatch(content)
  if (field !== undefined) expect(fieldOf(response, field[0])).toBe(field[1])
})

test('reset is a TCP reset without an answer', async () => {
  await using sandbox = await startSandbox({ mintFaults: [{ kind: 'reset' }] })
  await using client = await RawClient.connect(Number(new URL(sandbox.baseUrl).port))
  await sendMint(client, sandbox)
  expect(await client.untilClosed()).toEqual({ bytes: Buffer.alloc(0), end: 'reset' })
})

test('hang gives no answer until the sandbox is closed, and delays no other request', async () => {
  const sandbox = await startSandbox({ mintFaults: [{ kind: 'hang', count: 1 }] })
  await using client = await RawClient.connect(Number(new URL(sandbox.baseUrl).port))
  await sendMint(client, sandbox)
  await expect.poll(() => sandbox.stats().totals.mints).toBe(1)
  expect((await callTokenEndpoint(sandbox, 'acme')).status).toBe(200)
  expect(client.received.length).toBe(0)
  await sandbox.close()
  expect((await client.untilClosed()).bytes.length).toBe(0)
})

test('a fault with a count applies so many times, whatever else is set, then the next fault in the list, then none', async () => {
  await using sandbox = await startSandbox({
    mintFaults: [
      { kind: 'status', status: 500, count: 1, org: 'globex' },
      { kind: 'status', status: 500, count: 2 },
      { kind: 'status', status: 503, count: 1 },
    ],
  })
  const statuses: number[] = []
  for (let count = 0; count < 5; count += 1) {
    statuses.push((await callTokenEndpoint(sandbox, 'acme')).status)
    sandbox.set({ tokenLifetimeMs: 1_000 })
  }
  expect(statuses).toEqual([500, 500, 503, 200, 200])
  expect((await callTokenEndpoint(sandbox, 'globex')).status, 'its own fault').toBe(500)
})

test('delays and faults of requests are their own, and those of the token endpoint, too', async () => {
  await using sandbox = await startSandbox({ requestLatencyMs: 60, requestFaults: [{ kind: 'status', status: 502 }] })
  const token = await mint(sandbox, 'acme')
  const timeOf = async (response: Promise<Response>) => {
    const startedAt = performance.now()
    const { status } = await response
    return [status, performance.now() - startedAt >= 59]
  }
  expect(await timeOf(call(sandbox, '/v2/example/endpoint', token))).toEqual([502, true])
  const mintFaults = [{ kind: 'status', status: 500 }] as const
  sandbox.set({ requestLatencyMs: 0, requestFaults: [], mintLatencyMs: 60, mintFaults })
  expect(await timeOf(callTokenEndpoint(sandbox, 'acme'))).toEqual([500, true])
  expect((await call(sandbox, '/v2/example/endpoint', token)).status).toBe(200)
})
