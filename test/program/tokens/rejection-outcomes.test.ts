/** The outcomes of rejections in the metrics. */

import { expect, test } from 'vitest'
import { KeepAliveClient } from '../../support/keep-alive-client.ts'
import { RawClient } from '../../support/raw-client.ts'
import { startService } from '../../support/service.ts'
import { startProxy } from '../../support/start-proxy.ts'

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
