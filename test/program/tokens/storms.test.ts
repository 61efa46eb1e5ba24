/**
 * However many requests come at once, the token endpoint gets few calls: one per org, one per rejection, within the rate.
 */

import { expect, test } from 'vitest'
import { KeepAliveClient } from '../../support/keep-alive-client.ts'
import { startOrgEcho } from '../../support/org-echo.ts'
import { startProxyProcess } from '../../support/proxy-process.ts'
import { startService } from '../../support/service.ts'
import { startProxy } from '../../support/start-proxy.ts'

/** Fewer than may wait for the token of one Org. */
const CONNECTIONS = 400

/** Sends the requests over several connections, and counts the answers by status. */
async function storm(port: number, requests: number, orgOf: (index: number) => string): Promise<Map<number, number>> {
  const statuses = new Map<number, number>()
  let begun = 0
  const send = async () => {
    using client = new KeepAliveClient(port)
    while (begun < requests) {
      const org = orgOf(begun++)
      const { status } = await client.get(`/v2/as/${org}`, org)
      statuses.set(status, (statuses.get(status) ?? 0) + 1)
    }
  }
  await Promise.all(Array.from({ length: Math.min(CONNECTIONS, requests) }, send))
  return statuses
}

test('six hundred cold requests for one org: one mint', async () => {
  await using service = await startOrgEcho()
  await using proxy = await startProxyProcess(service, {
    settings: { 'log.requests': 'off', 'tokens.mintTimeout': '1m' },
  })
  expect(await storm(proxy.port, 600, () => 'acme')).toEqual(new Map([[200, 600]]))
  expect(service.stats().totals.mints).toBe(1)
  expect(await proxy.metric('oap_mints_total{reason="cold",outcome="ok"}')).toBe(1)
})

test('all orgs lose their tokens at once, under load: one mint for each', async () => {
  await using service = await startService()
  await using proxy = await startProxy(service, { 'tokens.mintRate': '1000' })
  const orgs = Array.from({ length: 20 }, (_, i) => `org-${i}`)
  const orgOf = (index: number) => orgs[index % orgs.length] ?? ''
  await storm(proxy.port, 100, orgOf)
  service.tokens.revoke()
  expect(await storm(proxy.port, 400, orgOf)).toEqual(new Map([[200, 400]]))
  for (const org of orgs) expect(service.tokens.mintsOf(org), org).toHaveLength(2)
})
