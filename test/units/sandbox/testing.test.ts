import { expect, test } from 'vitest'
import { startSandbox } from '../../../src/sandbox/sandbox.ts'
import { startProxy } from '../../../src/sandbox/testing.ts'

test('a proxy in front of a sandbox, with its settings and its log', async () => {
  await using sandbox = await startSandbox()
  const lines: string[] = []
  await using proxy = await startProxy(sandbox, {
    config: { orgs: { allow: ['acme'] }, tokens: { warm: ['acme'] } },
    log: (line) => lines.push(line),
  })
  expect(sandbox.stats().orgs['acme']?.mints).toBe(1)
  const call = (org: string) => fetch(`${proxy.url}/v2/example/endpoint`, { headers: { 'x-org-id': org } })
  expect((await call('acme')).status).toBe(200)
  expect((await call('globex')).status).toBe(403)
  const status = await (await fetch(`${proxy.adminUrl}/status`)).json()
  expect(status).toMatchObject({ isReady: true, service: { baseUrl: `${sandbox.baseUrl}/` } })
  const requests = lines.map((line) => JSON.parse(line)).filter(({ msg }) => msg === 'request')
  expect(requests.map(({ orgId, status }) => [orgId, status])).toEqual([
    ['acme', 200],
    ['globex', 403],
  ])
})

test('wrong settings are named, and nothing keeps running', async () => {
  await using sandbox = await startSandbox()
  // @ts-expect-error: the types name every setting, too
  await expect(startProxy(sandbox, { config: { tokens: { lifeTime: '2s' } } })).rejects.toThrow(
    /^tokens\.lifeTime .*did you mean tokens\.lifetime\?$/,
  )
})

test('a relative path begins in the working directory', async () => {
  await using sandbox = await startSandbox()
  const caFile = 'test/support/certificates/ca.pem'
  await using proxy = await startProxy(sandbox, { config: { origin: { caFile } } })
  expect((await fetch(`${proxy.adminUrl}/readyz`)).status).toBe(200)
})

test('it waits no longer for new tokens to become known than the sandbox takes', async () => {
  await using sandbox = await startSandbox()
  const lines: string[] = []
  await using proxy = await startProxy(sandbox, { log: (line) => lines.push(line) })
  const call = () => fetch(`${proxy.url}/v2/example/endpoint`, { headers: { 'x-org-id': 'acme' } })
  expect((await call()).status).toBe(200)
  sandbox.revoke('acme')
  expect((await call()).status).toBe(200)
  const requests = lines.map((line) => JSON.parse(line)).filter(({ msg }) => msg === 'request')
  // The rejected token is tried once more, because it worked a moment ago. By default, it would be tried for seconds.
  expect(requests.map(({ token }) => token)).toEqual(['miss', 'replayed'])
  expect(sandbox.stats().orgs['acme']).toMatchObject({ mints: 2, rejected: 2 })
})

test('it calls the token endpoint of the sandbox', async () => {
  await using sandbox = await startSandbox({ tokenEndpoint: 'PUT /v2.1/t/{orgId}/new', tokenField: 'data.token' })
  await using proxy = await startProxy(sandbox)
  const response = await fetch(`${proxy.url}/v2.1/example/endpoint`, { headers: { 'x-org-id': 'acme' } })
  expect(await response.json()).toMatchObject({ org: 'acme', path: '/v2.1/example/endpoint' })
})
