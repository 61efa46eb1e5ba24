import { expect, test } from 'vitest'
import { request } from './raw-client.ts'
import { type Service, startService } from './service.ts'

function mint(service: Service, org: string, apiKey = service.tokens.apiKey): string {
  return `POST ${new URL(service.baseUrl).pathname.replace(/\/$/, '')}/v2/orgs/${org}/access HTTP/1.1\r\nHost: x\r\nAuthorization: Basic ${apiKey}\r\nContent-Length: 0\r\n\r\n`
}

function get(token: string, path = '/v2/x'): string {
  return `GET ${path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${token}\r\n\r\n`
}

test('issues a token per Org and knows whose it is', async () => {
  await using service = await startService()
  const { orgAccessToken } = JSON.parse((await request(service.origin.port, mint(service, 'acme'))).content.toString())
  expect(orgAccessToken).toMatch(/^tok-acme-1-/)
  expect((await request(service.origin.port, get(orgAccessToken))).status).toBe(200)
  expect(service.requests.map((seen) => service.orgOf(seen))).toEqual(['acme'])
  expect(service.tokens.mintsOf('acme')).toHaveLength(1)
})

test('a token that was taken back, or never given out, is refused', async () => {
  await using service = await startService()
  const token = service.tokens.issueToken('acme')
  service.tokens.revoke('acme')
  expect((await request(service.origin.port, get(token))).status).toBe(401)
  expect((await request(service.origin.port, get('invented'))).status).toBe(401)
})

test('wrong credentials get no token', async () => {
  await using service = await startService()
  expect((await request(service.origin.port, mint(service, 'acme', 'bm8='))).status).toBe(401)
  expect(service.tokens.mintsOf('acme')).toHaveLength(1)
})

test('serves under a prefix, and mints nowhere else', async () => {
  await using service = await startService({ prefix: '/api' })
  expect((await request(service.origin.port, mint(service, 'acme'))).status).toBe(200)
  const without = mint(service, 'acme').replace('/api', '')
  expect((await request(service.origin.port, without)).status).toBe(401)
  expect(service.tokens.mints).toHaveLength(1)
})
