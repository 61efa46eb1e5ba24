import { expect, test } from 'vitest'
import { type Sandbox, startSandbox } from '../../src/sandbox/sandbox.ts'
import { call, callTokenEndpoint, mint } from './client.ts'

function control(sandbox: Sandbox, path: string, init: RequestInit = {}): Promise<Response> {
  return fetch(`${new URL(sandbox.baseUrl).origin}/sandbox/${path}`, init)
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
  const shown = await (await control(sandbox, 'switches')).text()
  expect(shown).toBe(answer)
  expect(shown).not.toMatch(/secret/i)

  expect((await callTokenEndpoint(sandbox, 'acme')).status).toBe(429)
  expect((await callTokenEndpoint(sandbox, 'initech')).status).toBe(404)
})

test('the secret can be rotated over HTTP', async () => {
  await using sandbox = await startSandbox()
  await turn(sandbox, { appSecret: 'another' })
  expect(sandbox.appSecret).toBe('another')
})

test.each([
  [{ tokenLifeTimeMs: 1 }, 'tokenLifeTimeMs'],
  [{ tokenLifetimeMs: '5s' }, 'tokenLifetimeMs: .*expected number'],
  [{ expiredStatus: 99 }, 'expiredStatus: .*>=200'],
  [{ tokenFormat: 'xml' }, 'tokenFormat: .*"opaque"\\|"jwt"'],
  [{ linked: 'acme' }, 'linked: '],
  [{ appSecret: [] }, 'appSecret: '],
  [{ mintFaults: { kind: 'hang' } }, 'mintFaults: .*expected array'],
  [{ mintFaults: ['hang'] }, 'mintFaults.0: .*expected object'],
  [{ mintFaults: [{ kind: 'explode' }] }, 'mintFaults.0.kind: '],
  [{ mintFaults: [{ kind: 'status' }] }, 'mintFaults.0.status: .*expected number'],
  [{ requestFaults: [{ kind: 'hang', probability: 2 }] }, 'requestFaults.0.probability: .*<=1'],
  [{ requestFaults: [{ kind: 'hang', times: 2 }] }, 'requestFaults.0: .*"times"'],
  [{ mintLatencyMs: -1, toString: 1 }, 'mintLatencyMs: .*>=0; .*"toString"'],
  [[], 'expected object'],
])('%j is refused with the reason, and nothing changes', async (switches, message) => {
  await using sandbox = await startSandbox()
  const before = await (await control(sandbox, 'switches')).text()
  const response = await turn(sandbox, switches)
  expect(response.status).toBe(400)
  expect(await response.json()).toEqual({ error: 'switches_invalid', message: expect.stringMatching(message) })
  expect(await (await control(sandbox, 'switches')).text()).toBe(before)
})

test('if one switch is wrong, none is set', async () => {
  await using sandbox = await startSandbox()
  expect((await turn(sandbox, { unlinkedStatus: 404, expiredStatus: 'x' })).status).toBe(400)
  expect((await callTokenEndpoint(sandbox, 'initech')).status).toBe(403)
})

test('options and set() refuse the same', async () => {
  await expect(startSandbox({ unlinkedStatus: 1000 })).rejects.toThrow('unlinkedStatus: ')
  await using sandbox = await startSandbox()
  expect(() => sandbox.set({ tokenLifetimeMs: Number.NaN })).toThrow(TypeError)
})

test('content that is not JSON, or too much of it', async () => {
  await using sandbox = await startSandbox()
  const notJson = await control(sandbox, 'switches', { method: 'PUT', body: '{' })
  expect(notJson.status).toBe(400)
  expect(await notJson.json()).toEqual({ error: 'switches_invalid', message: 'The content is not JSON.' })
  const tooLarge = await turn(sandbox, { linked: ['x'.repeat(70_000)] })
  expect(tooLarge.status).toBe(400)
  expect(await tooLarge.json()).toEqual({ error: 'switches_invalid', message: 'the content is too large' })
})

test('tokens can be revoked over HTTP', async () => {
  await using sandbox = await startSandbox()
  const token = await mint(sandbox, 'acme')
  const response = await control(sandbox, 'revoke?org=acme', { method: 'POST' })
  expect(await response.json()).toEqual({ revoked: 1 })
  expect((await call(sandbox, '/v2/example/endpoint', token)).status).toBe(401)
  expect((await control(sandbox, 'revoke', { method: 'POST' })).status).toBe(400)
})

test('a web page can set no switch', async () => {
  await using sandbox = await startSandbox()
  const token = await mint(sandbox, 'acme')
  const headers = { origin: 'https://page.example' }
  expect((await control(sandbox, 'revoke?org=acme', { method: 'POST', headers })).status).toBe(403)
  expect((await call(sandbox, '/v2/example/endpoint', token)).status).toBe(200)
})

test.each([
  ['nothing', 404],
  ['stats/', 404],
  ['stats?org=acme', 200],
])('/sandbox/%s answers %i', async (path, status) => {
  await using sandbox = await startSandbox()
  expect((await control(sandbox, path)).status).toBe(status)
})
