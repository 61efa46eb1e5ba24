/** The token endpoint rejects the App credentials: mints stop for a growing pause, and cached tokens go on working. */

import { writeFile } from 'node:fs/promises'
import { expect, test } from 'vitest'
import { randomSecret } from '../../support/canaries.ts'
import { eventually } from '../../support/changes.ts'
import { KeepAliveClient } from '../../support/keep-alive-client.ts'
import { type Service, startService } from '../../support/service.ts'
import { startProxy } from '../../support/start-proxy.ts'

const LOADED = 'new secret loaded: the next mint uses it'

/** The token endpoint accepts only `appSecret`. */
function takeOnly(service: Service, appSecret: string): void {
  const { tokens, origin } = service
  const expected = `Basic ${Buffer.from(`${tokens.appId}:${appSecret}`).toString('base64')}`
  const answer = origin.script
  origin.script = (received, connection) => {
    const org = service.orgOfMint(received)
    if (org === undefined) return answer(received, connection)
    if (received.values('authorization').join() !== expected) return { status: 401 }
    return { content: JSON.stringify({ orgAccessToken: tokens.issueToken(org) }) }
  }
}

test.concurrent('hundreds of requests for new orgs, a few mints; the org with a token is served throughout', async () => {
  await using service = await startService()
  await using proxy = await startProxy(service, { 'admin.address': 'localhost:0' })
  using warm = new KeepAliveClient(proxy.port)
  using cold = new KeepAliveClient(proxy.port)
  expect((await warm.get('/v2/x', 'warm')).status).toBe(200)
  service.tokens.script = () => ({ status: 401 })

  const startedAt = performance.now()
  let requests = 0
  while (performance.now() - startedAt < 3_000) {
    const answer = await cold.get('/v2/x', `cold-${++requests}`)
    expect(answer.status).toBe(403)
    expect(JSON.parse(answer.content)).toMatchObject({ code: 'org_access_refused', tokenEndpointStatus: 401 })
    expect((await warm.get('/v2/x', 'warm')).status).toBe(200)
  }
  expect(requests).toBeGreaterThan(10)
  // Two orgs show that the App is rejected. Then one mint follows each pause, of about 1 s and about 2 s.
  expect(service.tokens.mints.length - 1).toBeLessThanOrEqual(5)
  const ready = await fetch(`http://127.0.0.1:${proxy.adminPort}/readyz`)
  // The App was accepted before: a trouble that all replicas share must not take them all out of service.
  expect(ready.status).toBe(200)
})

test.concurrent('a wrong secret from the start, then the right one: ready again before any request', async () => {
  await using service = await startService()
  const right = randomSecret()
  takeOnly(service, right)
  await using proxy = await startProxy(service, { 'admin.address': 'localhost:0' })
  using client = new KeepAliveClient(proxy.port)
  const readiness = async () => (await fetch(`http://127.0.0.1:${proxy.adminPort}/readyz`)).status
  for (const org of ['a', 'b']) expect((await client.get('/v2/x', org)).status).toBe(502)
  expect(await readiness()).toBe(503)
  // An instance that is not ready may get no request. Only the file tells it.
  await writeFile(proxy.secretFile, right)
  await eventually(async () => (await readiness()) === 200 || undefined, 'readiness')
  expect((await client.get('/v2/x', 'a')).status).toBe(200)
})

/** An instance that is not ready may get no request. If all instances of the App are in this state, nobody asks any more. */
test.concurrent('the service rejects the App for a while: ready again before any request', async () => {
  await using service = await startService()
  await using proxy = await startProxy(service, { 'admin.address': 'localhost:0' })
  using client = new KeepAliveClient(proxy.port)
  const readiness = async () => (await fetch(`http://127.0.0.1:${proxy.adminPort}/readyz`)).status
  const issue = service.tokens.script
  service.tokens.script = () => ({ status: 401 })
  expect((await client.get('/v2/x', 'a')).status).toBe(502)
  expect(await readiness(), 'the trouble of one org is its own').toBe(200)
  expect((await client.get('/v2/x', 'b')).status).toBe(502)
  expect(await readiness()).toBe(503)
  // The proxy asks by itself, and is told again that the App is rejected.
  const { mints } = service.tokens
  const before = mints.length
  await eventually(() => mints.length > before || undefined, 'another mint', 10_000)
  await proxy.until(() => proxy.logs.some(({ reason }) => reason === 'probe'), 'its log line')
  expect(proxy.logs.filter(({ reason }) => reason === 'warm')).toEqual([])
  service.tokens.script = issue
  await eventually(async () => (await readiness()) === 200 || undefined, 'readiness', 10_000)
  expect(proxy.logs.filter((line) => line.msg === 'mints paused').length).toBe(2)
})

test.concurrent('with only one org, a changed secret ends its pause', async () => {
  await using service = await startService()
  const right = randomSecret()
  takeOnly(service, right)
  await using proxy = await startProxy(service)
  using client = new KeepAliveClient(proxy.port)
  const mints = () => service.origin.requests.length - service.requests.length
  // Three rejections: the pause has grown.
  await eventually(
    async () => {
      expect((await client.get('/v2/x', 'acme')).status).toBe(502)
      return mints() >= 3 || undefined
    },
    'a pause that has grown',
    10_000,
  )
  await writeFile(proxy.secretFile, right)
  await eventually(() => proxy.logs.some(({ msg }) => msg === LOADED) || undefined, 'the new secret in use')
  expect((await client.get('/v2/x', 'acme')).status).toBe(200)
  expect(mints()).toBe(4)
})
