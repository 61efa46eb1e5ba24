/** The numbers of the admin listener, compared with the requests that were sent through the real program. */

import { expect, test } from 'vitest'
import type { StatusDocument } from '../../../src/admin/status.ts'
import { Canaries } from '../../support/canaries.ts'
import { get } from '../../support/case-table.ts'
import { eventually } from '../../support/changes.ts'
import { HANDSHAKE } from '../../support/handshake.ts'
import { RawClient, request } from '../../support/raw-client.ts'
import { startService } from '../../support/service.ts'
import { startBoth, startProxy } from '../../support/start-proxy.ts'
import { parseExposition } from '../../units/admin/exposed.ts'

const ADMIN = { 'admin.address': 'localhost:0' } as const

test('every request is counted once, by its outcome', async () => {
  const { service, proxy } = await startBoth({}, ADMIN)
  await using client = await RawClient.connect(proxy.port)
  for (let i = 0; i < 30; i++) {
    client.send(get('/v2/x', `org-${i % 3}`))
    expect((await client.response()).status).toBe(200)
  }
  await request(proxy.port, 'GET /v2/x HTTP/1.1\r\nHost: localhost\r\n\r\n')
  service.tokens.revoke('org-0')
  await request(proxy.port, get('/v2/x', 'org-0'))
  // Some counts change a moment after the answer.
  await eventually(async () => (await proxy.metric('oap_request_duration_seconds_count')) === 32, 'all to be counted')
  const { values } = parseExposition((await proxy.askAdmin('/metrics')).content)
  const value = (name: string) => values.get(name)
  expect(value('oap_requests_total{method="GET",status="200"}')).toBe(31)
  expect(value('oap_requests_total{method="GET",status="400"}')).toBe(1)
  expect(value('oap_refused_total{code="org_id_missing"}')).toBe(1)
  expect(value('oap_token_lookups_total{result="miss"}')).toBe(3)
  expect(value('oap_token_lookups_total{result="hit"}')).toBe(27)
  expect(value('oap_token_lookups_total{result="replayed"}')).toBe(1)
  expect(value('oap_token_rejections_total{outcome="repeated"}')).toBe(1)
  expect(value('oap_replays_total{outcome="accepted"}')).toBe(1)
  expect(value('oap_mints_total{reason="cold",outcome="ok"}')).toBe(3)
  expect(value('oap_mints_total{reason="rejected",outcome="ok"}')).toBe(1)
  expect(value('oap_mint_duration_seconds_count')).toBe(service.tokens.mints.length)
  expect(value('oap_cached_tokens')).toBe(3)
  expect(value('oap_service_response_seconds_count')).toBe(31)
  expect(value('oap_overhead_seconds_count')).toBe(32)
  expect(value('oap_requests_in_flight')).toBe(0)
  expect(value('oap_overhead_seconds_sum') ?? 0).toBeLessThan(value('oap_request_duration_seconds_sum') ?? 0)
})

test('the status lists each Org, without its token', async () => {
  await using service = await startService({
    mint: (mint) => (mint.org === 'stranger' ? { status: 403, content: '{}' } : mint.issue()),
  })
  await using proxy = await startProxy(service, ADMIN)
  await request(proxy.port, get('/v2/x', 'acme'))
  await request(proxy.port, get('/v2/x', 'stranger'))
  const shown = await Promise.all(['/status', '/metrics', '/'].map((path) => proxy.askAdmin(path)))
  const { orgs, errors }: StatusDocument = JSON.parse(shown[0]?.content ?? '')
  expect(orgs).toMatchObject([
    { org: 'stranger', state: 'refused', lastRefusal: { tokenEndpointStatus: 403 } },
    { org: 'acme', state: 'fresh' },
  ])
  expect(errors).toMatchObject([{ code: 'org_access_refused', count: 1, examples: [{ orgId: 'stranger' }] }])
  const canaries = new Canaries().add('secret', service.tokens.appSecret).add('token', service.tokens.marker)
  expect(canaries.search(shown.map(({ content }) => content).join('\n'))).toEqual([])
})

test('the status tells who is busy, who meets errors, who holds requests and WebSockets, and how slow the service is', async () => {
  await using service = await startService({
    script: async (seen, connection) => {
      if (seen.target === '/v2/ws') {
        connection.tunnel()
        connection.write('HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n')
        return undefined
      }
      return seen.target === '/v2/hang' ? undefined : { status: seen.target === '/v2/bad' ? 500 : 200 }
    },
  })
  await using proxy = await startProxy(service, ADMIN)
  for (let i = 0; i < 8; i++) {
    for (let org = 0; org < 8 - i; org++) await request(proxy.port, get('/v2/x', `org-${org}`))
  }
  for (const org of ['org-7', 'org-7', 'org-3']) await request(proxy.port, get('/v2/bad', org))
  await using socket = await RawClient.sending(proxy.port, get('/v2/ws', 'org-4', ...HANDSHAKE))
  expect((await socket.response()).status).toBe(101)
  await using _waiting = await RawClient.sending(proxy.port, get('/v2/hang', 'org-5'))
  await service.origin.waitFor(() => service.requests.at(-1)?.target === '/v2/hang', 'the request that hangs')
  const status: StatusDocument = JSON.parse((await proxy.askAdmin('/status')).content)
  expect(status.busiest.orgs.map(({ name, requests }) => [name, requests])).toEqual([
    ['org-0', 8],
    ['org-1', 7],
    ['org-2', 6],
    ['org-3', 6],
    ['org-4', 5],
  ])
  expect(status.mostErrors.orgs.map(({ name, errors }) => [name, errors])).toEqual([
    ['org-7', 2],
    ['org-3', 1],
  ])
  expect(status.inFlight.orgs).toMatchObject([{ name: 'org-5', count: 1, longest: { route: 'GET /v2/hang' } }])
  expect(status.tunnels).toEqual({ count: 1, orgs: [{ name: 'org-4', count: 1 }] })
  expect(await proxy.metric('oap_tunnels')).toBe(1)
  const { service: ofService, proxy: own } = status.recent
  for (const { p50Ms = -1, p99Ms = -1 } of [ofService, own]) expect([p50Ms > 0, p99Ms >= p50Ms]).toEqual([true, true])
})

test('a purged token is minted anew by the next request; evicted tokens are counted', async () => {
  const { service, proxy } = await startBoth({}, { ...ADMIN, 'tokens.maxOrgs': '2' })
  for (const org of ['a', 'b', 'c', 'd']) await request(proxy.port, get('/v2/x', org))
  expect(await proxy.metric('oap_token_evictions_total')).toBe(2)
  expect(await proxy.metric('oap_cached_tokens')).toBe(2)
  await proxy.askAdmin('/tokens/purge?org=d', 'POST')
  expect((await request(proxy.port, get('/v2/x', 'd'))).status).toBe(200)
  expect(service.tokens.mintsOf('d')).toHaveLength(2)
})

test('a baseUrl that leads to a proxy is told as such, and not as an Org that is not linked', async () => {
  await using service = await startService()
  await using proxy = await startProxy(service, { 'listen.address': 'localhost:0' })
  await using wrong = await startProxy(service, { baseUrl: `http://localhost:${proxy.port}` })
  const { status, content } = await request(wrong.port, get('/v2/x', 'acme'))
  const says = 'is the answer of an org-access-proxy, not of the service: correct baseUrl, which leads to a proxy'
  expect([status, JSON.parse(content.toString()).detail]).toEqual([502, expect.stringContaining(says)])
})

test('the problem and the log name a wrong address; the log also names the request', async () => {
  const { service, proxy } = await startBoth({ mint: () => ({ status: 404, content: '<h1>Not Found</h1>' }) }, ADMIN)
  const response = await request(proxy.port, get('/v2/x', 'acme'))
  const problem = JSON.parse(response.content.toString())
  const url = `${service.baseUrl}/v2/orgs/{orgId}/access`
  const says = `The token endpoint answered 404 to POST ${url}: it knows no such Org or path.`
  expect([problem.status, problem.code]).toEqual([502, 'token_response_invalid'])
  expect(problem.detail).toContain(says)
  await eventually(() => proxy.logs.some(({ msg }) => msg === 'mint failed'), 'the failed mint to be logged')
  expect(proxy.logs.find(({ msg }) => msg === 'mint failed')).toMatchObject({
    orgId: 'acme',
    requestId: problem.requestId,
    url: `${service.baseUrl}/v2/orgs/acme/access`,
    detail: says,
  })
})
