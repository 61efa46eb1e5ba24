/** The token endpoint answers 401 from the start: for two Orgs, the proxy is not ready, and is ready again before any request. */

import { writeFile } from 'node:fs/promises'
import { expect, test } from 'vitest'
import { randomSecret } from '../../support/canaries.ts'
import { eventually } from '../../support/changes.ts'
import { KeepAliveClient } from '../../support/keep-alive-client.ts'
import { type Service, startService } from '../../support/service.ts'
import { startProxy } from '../../support/start-proxy.ts'

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
  for (const org of ['a', 'b']) expect((await client.get('/v2/x', org)).status).toBe(502)
  expect(await readiness()).toBe(503)
  // The proxy asks by itself, and is told again that the App is rejected.
  await eventually(() => service.tokens.mints.length > 1 || undefined, 'another mint', 10_000)
  service.tokens.script = issue
  await eventually(async () => (await readiness()) === 200 || undefined, 'readiness', 10_000)
})
