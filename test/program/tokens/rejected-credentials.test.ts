/** The token endpoint answers 401: at the start, calls go one a second; later, each org pauses by itself. */

import { writeFile } from 'node:fs/promises'
import { expect, test } from 'vitest'
import { randomSecret } from '../../support/canaries.ts'
import { eventually } from '../../support/changes.ts'
import { KeepAliveClient } from '../../support/keep-alive-client.ts'
import { scaled } from '../../support/pace.ts'
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

test.concurrent('from the start: a call a second, and an org that was not refused yet goes first', async () => {
  let isAccepted = false
  await using service = await startService({ mint: (mint) => (isAccepted ? mint.issue() : { status: 401 }) })
  await using proxy = await startProxy(service, { 'admin.address': 'localhost:0' })
  const clients = Array.from({ length: 30 }, () => new KeepAliveClient(proxy.port))
  expect((await clients[0]?.get('/v2/x', 'first'))?.status).toBe(502)
  const startedAt = performance.now()
  const asked = clients.map((client, i) => client.get('/v2/x', `org-${i}`))
  await eventually(() => service.tokens.mints.length === 3 || undefined, 'two more calls', 10_000)
  expect(performance.now() - startedAt).toBeGreaterThan(1_000)
  expect(new Set(service.tokens.mints.map(({ org }) => org)).size).toBe(3)
  isAccepted = true
  const statuses = (await Promise.all(asked)).map(({ status }) => status)
  // One more call, and all others follow at once.
  expect(statuses.filter((status) => status === 200)).toHaveLength(28)
  expect(performance.now() - startedAt).toBeLessThan(scaled(4_000))
  for (const client of clients) client[Symbol.dispose]()
})

test.concurrent('after a success: hundreds of requests for one org, a few mints; others are served', async () => {
  await using service = await startService({
    mint: (mint) => (mint.org === 'bad' ? { status: 401 } : mint.issue()),
  })
  await using proxy = await startProxy(service, { 'admin.address': 'localhost:0' })
  using client = new KeepAliveClient(proxy.port)
  const startedAt = performance.now()
  let orgs = 0
  while (performance.now() - startedAt < 3_000 || orgs < 20) {
    expect((await client.get('/v2/x', `good-${++orgs}`)).status).toBe(200)
    const refused = await client.get('/v2/x', 'bad')
    expect(refused.status).toBe(403)
    expect(JSON.parse(refused.content)).toMatchObject({ code: 'org_access_refused', tokenEndpointStatus: 401 })
  }
  const seconds = (performance.now() - startedAt) / 1_000
  expect(service.tokens.mintsOf('bad').length).toBeLessThanOrEqual(1 + seconds / 1.5) // pauses of 1 s, 2 s and 4 s
  const ready = await fetch(`http://127.0.0.1:${proxy.adminPort}/readyz`)
  expect(ready.status).toBe(200)
})

test.concurrent('a wrong secret from the start, then the right one: ready again before any request', async () => {
  await using service = await startService()
  const right = randomSecret()
  takeOnly(service, right)
  await using proxy = await startProxy(service, { 'admin.address': 'localhost:0' })
  using client = new KeepAliveClient(proxy.port)
  const readiness = async () => (await fetch(`http://127.0.0.1:${proxy.adminPort}/readyz`)).status
  expect((await client.get('/v2/x', 'a')).status).toBe(502)
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
  expect(await readiness()).toBe(503)
  // The proxy asks by itself, and is told again that the App is rejected.
  await eventually(() => service.tokens.mints.length > 1 || undefined, 'another mint', 10_000)
  service.tokens.script = issue
  await eventually(async () => (await readiness()) === 200 || undefined, 'readiness', 10_000)
})

test.concurrent('with only one org, a changed secret ends its pause', async () => {
  await using service = await startService()
  const right = randomSecret()
  takeOnly(service, right)
  await using proxy = await startProxy(service)
  using client = new KeepAliveClient(proxy.port)
  const mints = () => service.origin.requests.length - service.requests.length
  // Three rejections: the pause has grown to four seconds.
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
