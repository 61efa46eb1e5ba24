import { expect, test } from 'vitest'
import { type Fault, type Sandbox, startSandbox } from '../../src/sandbox/sandbox.ts'
import { fieldOf, RawClient, type RawResponse } from '../support/raw-client.ts'
import { type Random, withSeed } from '../support/seed.ts'
import { basic, call, callTokenEndpoint, mint } from './client.ts'

async function rawMint(client: RawClient, sandbox: Sandbox): Promise<void> {
  client.send(
    [
      'POST /v2/orgs/acme/access HTTP/1.1',
      'Host: sandbox',
      `Authorization: ${basic(sandbox.appId, sandbox.appSecret)}`,
      'Content-Length: 0',
      '\r\n',
    ].join('\r\n'),
  )
}

async function withFault(fault: Fault): Promise<RawResponse> {
  await using sandbox = await startSandbox({ mintFaults: [fault] })
  await using client = await RawClient.connect(Number(new URL(sandbox.baseUrl).port))
  await rawMint(client, sandbox)
  return await client.response('POST')
}

test('429 has Retry-After', async () => {
  const response = await withFault({ kind: 'status', status: 429, retryAfterSeconds: 7 })
  expect(response.status).toBe(429)
  expect(fieldOf(response, 'retry-after')).toBe('7')
})

test('5xx without Retry-After', async () => {
  const response = await withFault({ kind: 'status', status: 503 })
  expect(response.status).toBe(503)
  expect(fieldOf(response, 'retry-after')).toBeUndefined()
})

test.each([
  [200, {}],
  [502, { status: 502 }],
])('HTML instead of JSON, with %i', async (status, option) => {
  const response = await withFault({ kind: 'html', ...option })
  expect(response.status).toBe(status)
  expect(fieldOf(response, 'content-type')).toBe('text/html')
  expect(response.content.toString()).toMatch(/^<!doctype html>/)
})

test('truncated JSON is a complete message', async () => {
  const response = await withFault({ kind: 'truncated-json' })
  expect(response).toMatchObject({ status: 200, isComplete: true })
  expect(response.content.toString()).toMatch(/^\{"orgAccessToken":"/)
  expect(() => JSON.parse(response.content.toString())).toThrow(SyntaxError)
})

test('cut content is shorter than declared', async () => {
  const response = await withFault({ kind: 'cut' })
  expect(response).toMatchObject({ status: 200, isComplete: false })
  expect(response.content.length).toBeGreaterThan(0)
  expect(Number(fieldOf(response, 'content-length'))).toBeGreaterThan(response.content.length)
})

test('reset is a TCP reset without an answer', async () => {
  await using sandbox = await startSandbox({ mintFaults: [{ kind: 'reset' }] })
  await using client = await RawClient.connect(Number(new URL(sandbox.baseUrl).port))
  await rawMint(client, sandbox)
  expect(await client.untilClosed()).toEqual({ bytes: Buffer.alloc(0), end: 'reset' })
})

test('hang gives no answer until the sandbox is closed, and delays no other request', async () => {
  const sandbox = await startSandbox({ mintFaults: [{ kind: 'hang', count: 1 }] })
  await using client = await RawClient.connect(Number(new URL(sandbox.baseUrl).port))
  await rawMint(client, sandbox)
  await expect.poll(() => sandbox.stats().totals.mints).toBe(1)
  expect((await callTokenEndpoint(sandbox, 'acme')).status).toBe(200)
  expect(client.received.length).toBe(0)
  await sandbox.close()
  expect((await client.untilClosed()).bytes.length).toBe(0)
})

test('a fault with a count applies so many times, then the next fault in the list, then none', async () => {
  await using sandbox = await startSandbox({
    mintFaults: [
      { kind: 'status', status: 500, count: 2 },
      { kind: 'status', status: 503, count: 1 },
    ],
  })
  const statuses: number[] = []
  for (let count = 0; count < 5; count += 1) statuses.push((await callTokenEndpoint(sandbox, 'acme')).status)
  expect(statuses).toEqual([500, 500, 503, 200, 200])
})

test('a fault of one org does not affect others', async () => {
  await using sandbox = await startSandbox({ mintFaults: [{ kind: 'status', status: 500, org: 'acme' }] })
  expect((await callTokenEndpoint(sandbox, 'acme')).status).toBe(500)
  expect((await callTokenEndpoint(sandbox, 'globex')).status).toBe(200)
})

test('faults of requests do not affect the token endpoint, and vice versa', async () => {
  await using sandbox = await startSandbox({ requestFaults: [{ kind: 'status', status: 502 }] })
  const token = await mint(sandbox, 'acme')
  expect((await call(sandbox, '/v2/example/endpoint', token)).status).toBe(502)
  sandbox.set({ requestFaults: [], mintFaults: [{ kind: 'status', status: 500 }] })
  expect((await call(sandbox, '/v2/example/endpoint', token)).status).toBe(200)
  expect((await callTokenEndpoint(sandbox, 'acme')).status).toBe(500)
})

test('a probability is the share of requests with the fault', async () => {
  await withSeed(async (random: Random) => {
    await using sandbox = await startSandbox({
      random: () => random.next(),
      mintFaults: [{ kind: 'status', status: 500, probability: 0.3 }],
    })
    let struck = 0
    for (let count = 0; count < 400; count += 1) {
      if ((await callTokenEndpoint(sandbox, 'acme')).status === 500) struck += 1
    }
    expect(struck).toBeGreaterThan(70)
    expect(struck).toBeLessThan(170)
  })
})

test('a fault with probability 0 never happens, with 1 always', async () => {
  await using sandbox = await startSandbox({
    random: () => 0,
    mintFaults: [{ kind: 'status', status: 500, probability: 0 }],
  })
  expect((await callTokenEndpoint(sandbox, 'acme')).status).toBe(200)
  sandbox.set({ mintFaults: [{ kind: 'status', status: 500, probability: 1 }] })
  expect((await callTokenEndpoint(sandbox, 'acme')).status).toBe(500)
})

test('latency delays the answer of a mint, and of a request', async () => {
  await using sandbox = await startSandbox({ mintLatencyMs: 60 })
  const startedAt = performance.now()
  const token = await mint(sandbox, 'acme')
  const mintMs = performance.now() - startedAt
  expect(mintMs).toBeGreaterThanOrEqual(59)

  sandbox.set({ mintLatencyMs: 0, requestLatencyMs: 60 })
  const requestedAt = performance.now()
  expect((await call(sandbox, '/v2/example/endpoint', token)).status).toBe(200)
  expect(performance.now() - requestedAt).toBeGreaterThanOrEqual(59)
})
