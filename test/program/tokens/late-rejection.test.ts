/** A rejection retires the rejected token, not its successor, and causes at most one mint. */

import { expect, test } from 'vitest'
import { get } from '../../support/case-table.ts'
import { Changes } from '../../support/changes.ts'
import { KeepAliveClient } from '../../support/keep-alive-client.ts'
import { RawClient } from '../../support/raw-client.ts'
import { startService } from '../../support/service.ts'
import { startProxy } from '../../support/start-proxy.ts'

test('late rejections of the old token, one after the other: the new token is kept', async () => {
  const changes = new Changes()
  const released = new Set<string>()
  await using service = await startService({
    acceptsAnyToken: true,
    script: async (received) => {
      const { target } = received
      if (target.startsWith('/v2/held'))
        await changes.until(() => released.has(target), `the release of ${target}`, 15_000)
      // Checked when it answers, like a service that notices late.
      return service.orgOf(received) === undefined ? { status: 401 } : { content: 'welcome' }
    },
  })
  await using proxy = await startProxy(service, { 'tokens.rejectedCooldown': '1ms' })
  using quick = new KeepAliveClient(proxy.port)
  expect((await quick.get('/v2/x', 'acme')).status).toBe(200)
  const targets = ['/v2/held-1', '/v2/held-2', '/v2/held-3']
  const held = await Promise.all(targets.map(() => RawClient.connect(proxy.port)))
  for (const [i, client] of held.entries()) client.send(get(targets[i] ?? '', 'acme'))
  await service.origin.waitFor(() => service.requests.length === 1 + held.length)

  service.tokens.revoke('acme')
  expect((await quick.get('/v2/x', 'acme')).status).toBe(200)
  expect(service.tokens.mintsOf('acme')).toHaveLength(2)
  for (const [i, client] of held.entries()) {
    released.add(targets[i] ?? '')
    changes.notify()
    expect((await client.response()).status).toBe(200)
    expect((await quick.get('/v2/x', 'acme')).status).toBe(200)
    await client[Symbol.asyncDispose]()
  }
  expect(service.tokens.mintsOf('acme')).toHaveLength(2)
})

test('the outcomes of rejections are counted', async () => {
  let isRejecting = false
  await using service = await startService({
    acceptsAnyToken: true,
    script: (received) => ({ status: isRejecting || service.orgOf(received) === undefined ? 401 : 200 }),
  })
  await using proxy = await startProxy(service, { 'admin.address': 'localhost:0', 'replay.maxBody': '1KiB' })
  using client = new KeepAliveClient(proxy.port)
  for (const org of ['repeated', 'refused']) await client.get('/v2/x', org)
  service.tokens.revoke()
  await using upload = await RawClient.connect(proxy.port)
  upload.send(
    `POST /v2/x HTTP/1.1\r\nHost: localhost\r\nX-Org-Id: refused\r\nContent-Length: 2000\r\n\r\n${'x'.repeat(2_000)}`,
  )
  expect((await upload.response('POST')).status).toBe(401)
  expect((await client.get('/v2/x', 'repeated')).status).toBe(200)
  isRejecting = true
  expect((await client.get('/v2/x', 'repeated')).status).toBe(401)
  expect((await client.get('/v2/x', 'repeated')).status).toBe(401)

  const metrics = await (await fetch(`http://127.0.0.1:${proxy.adminPort}/metrics`)).text()
  const counts = metrics.split('\n').filter((line) => /^oap_(replays_total|token_rejections_total)/.test(line))
  expect(counts.filter((line) => !line.endsWith(' 0')).toSorted()).toEqual([
    'oap_replays_total{outcome="accepted"} 1',
    'oap_replays_total{outcome="passed"} 1',
    'oap_replays_total{outcome="refused"} 1',
    'oap_replays_total{outcome="rejected"} 1',
    'oap_token_rejections_total{outcome="not_kept"} 1',
    'oap_token_rejections_total{outcome="passed"} 1',
    'oap_token_rejections_total{outcome="repeated"} 1',
    'oap_token_rejections_total{outcome="useless"} 1',
  ])
})
