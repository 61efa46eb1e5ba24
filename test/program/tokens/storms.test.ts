/**
 * However many requests come at once, the token endpoint gets few calls: one per org, one per rejection, within the rate.
 */

import { expect, test } from 'vitest'
import { KeepAliveClient } from '../../support/keep-alive-client.ts'
import { startOrgEcho } from '../../support/org-echo.ts'
import { scaledSetting } from '../../support/pace.ts'
import { startProxyProcess } from '../../support/proxy-process.ts'
import { startService } from '../../support/service.ts'
import { startProxy } from '../../support/start-proxy.ts'

/** Fewer than may wait for the token of one Org. */
const CONNECTIONS = 200

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

test('an origin that rejects everything, with many requests for many orgs: few mints, and few repeats', async () => {
  await using service = await startService({ acceptsAnyToken: true, script: () => ({ status: 401 }) })
  await using proxy = await startProxy(service, { 'tokens.mintRate': '1000' })
  const statuses = await storm(proxy.port, 500, (index) => `org-${index % 10}`)
  expect(statuses).toEqual(new Map([[401, 500]]))
  // The pauses between useless mints are 250 ms, 1 s, 4 s and 16 s, and five rejections in a row force one more.
  expect(service.tokens.mints.length).toBeLessThanOrEqual(10 * 8)
  expect(service.requests.length).toBeLessThanOrEqual(2 * 500)
})

test('four hundred cold orgs at once are served in turn, within the rate', async () => {
  const rate = 200
  await using service = await startOrgEcho()
  await using proxy = await startProxyProcess(service, {
    settings: { 'tokens.mintRate': `${rate}`, 'tokens.mintTimeout': scaledSetting(5_000), 'log.requests': 'off' },
  })
  const startedAt = performance.now()
  const clients = Array.from({ length: 400 }, () => new KeepAliveClient(proxy.port))
  const answers = await Promise.all(clients.map((client, i) => client.get(`/v2/as/org-${i}`, `org-${i}`)))
  const seconds = (performance.now() - startedAt) / 1_000
  for (const client of clients) client[Symbol.dispose]()
  const served = answers.filter((answer) => answer.status === 200)
  // Nine tenths of the rate are for cold orgs, and they may wait for half of tokens.mintTimeout: 400 have room.
  expect(served.length).toBe(400)
  expect(service.stats().totals.mints).toBe(400)
  expect(seconds).toBeGreaterThan((400 - rate) / rate - 0.5)
  expect(service.stats().totals.mints).toBeLessThanOrEqual(rate * (seconds + 1))
  expect(service.mismatches).toEqual([])
})

test('those beyond the budget are refused before a request gives up, with Retry-After', async () => {
  await using service = await startOrgEcho()
  await using proxy = await startProxyProcess(service, {
    settings: { 'tokens.mintRate': '2', 'tokens.mintTimeout': scaledSetting(2_000), 'log.requests': 'off' },
  })
  const clients = Array.from({ length: 150 }, () => new KeepAliveClient(proxy.port))
  const answers = await Promise.all(clients.map((client, i) => client.get(`/v2/as/org-${i}`, `org-${i}`)))
  for (const client of clients) client[Symbol.dispose]()
  const served = answers.filter((answer) => answer.status === 200)
  const refused = answers.filter((answer) => answer.status !== 200)
  expect(served.length).toBeGreaterThanOrEqual(2)
  expect(refused.length).toBeGreaterThanOrEqual(50)
  for (const answer of refused) {
    expect(answer.status).toBe(503)
    expect(answer.content).toContain('"token_endpoint_unavailable"')
    expect(answer.content, 'the setting to change').toContain('tokens.mintRate')
    expect(Number(/\r\nretry-after: (\d+)\r\n/i.exec(answer.head)?.[1])).toBeGreaterThanOrEqual(1)
  }
})
