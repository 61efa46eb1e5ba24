/** States that last: told from their beginning to their end, in `/status`, on the command line and by a gauge. */

import { readFile, writeFile } from 'node:fs/promises'
import { describe, expect, onTestFinished, test } from 'vitest'
import type { StatusDocument } from '../../../src/admin/status.ts'
import { Warnings } from '../../../src/admin/warnings.ts'
import { documentAt, tablesBelow, unquoted } from '../../processes/docs/documents.ts'
import { randomSecret } from '../../support/canaries.ts'
import { get } from '../../support/case-table.ts'
import { eventually } from '../../support/changes.ts'
import { HANDSHAKE } from '../../support/handshake.ts'
import { KeepAliveClient } from '../../support/keep-alive-client.ts'
import { RawClient, request } from '../../support/raw-client.ts'
import { startService } from '../../support/service.ts'
import { type ProxySettings, type ProxyUnderTest, startBoth, startProxy } from '../../support/start-proxy.ts'

const ADMIN = { 'admin.address': 'localhost:0' } as const

async function warningsOf(proxy: ProxyUnderTest): Promise<StatusDocument['warnings']> {
  return JSON.parse((await proxy.askAdmin('/status')).content).warnings
}

test('a state is told from the moment it is first seen to its end', () => {
  let finding: { text: string; leftMs?: number } | undefined
  const warnings = new Warnings([{}, { warnings: () => ({ fleet_store_lost: finding }) }])
  expect(warnings.present(0)).toEqual([])
  finding = { text: 'lost' }
  const since = '1970-01-01T00:00:01.000Z'
  expect(warnings.present(1_000)).toEqual([{ code: 'fleet_store_lost', text: 'lost', since, until: undefined }])
  expect(warnings.present(60_000)).toMatchObject([{ since }])
  finding = undefined
  expect(warnings.present(61_000)).toEqual([])
  finding = { text: 'lost', leftMs: 3_000 }
  expect(warnings.present(70_000)).toMatchObject([
    { since: '1970-01-01T00:01:10.000Z', until: '1970-01-01T00:01:13.000Z' },
  ])
})

test('each code has its row in Operations, and no other', async () => {
  await using service = await startService()
  await using proxy = await startProxy(service, ADMIN)
  const exposed = (await proxy.askAdmin('/metrics')).content.matchAll(/^oap_warnings\{code="(\w+)"\} 0$/gm)
  const documented = tablesBelow(documentAt('docs/operations.md'), '## Warnings').map(([code = '']) => unquoted(code))
  expect(Array.from(exposed, ([, code]) => code).toSorted()).toEqual(documented.toSorted())
})

test('cookies that are dropped are told for an hour, with the setting', async () => {
  const { service, proxy } = await startBoth({}, ADMIN)
  expect((await request(proxy.port, get('/v2/x', 'acme'))).status).toBe(200)
  expect(await warningsOf(proxy)).toEqual([])
  expect((await request(proxy.port, get('/v2/x', 'acme', 'Cookie: a=1'))).status).toBe(200)
  expect(service.requests.map((received) => received.values('cookie'))).toEqual([[], []])
  const [dropped] = await warningsOf(proxy)
  expect(dropped).toMatchObject({ code: 'cookies_dropped', text: expect.stringContaining('origin.sendCookies') })
  const leftMs = Date.parse(dropped?.until ?? '') - Date.now()
  expect([leftMs > 50 * 60_000, leftMs <= 60 * 60_000]).toEqual([true, true])
})

test('cookies that are sent on are no reason for a warning', async () => {
  const { service, proxy } = await startBoth({}, { ...ADMIN, 'origin.sendCookies': 'true' })
  await request(proxy.port, get('/v2/x', 'acme', 'Cookie: a=1', 'cookie: b="2"'))
  expect(service.requests.map((received) => received.values('cookie'))).toEqual([['a=1', 'b="2"']])
  expect(await warningsOf(proxy)).toEqual([])
})

describe('an Org of which the service answers one route no more', () => {
  async function startHanging(settings: ProxySettings) {
    const { service, proxy } = await startBoth(
      { script: ({ target }) => (target.startsWith('/v2/hang') ? undefined : { status: 200 }) },
      { ...ADMIN, ...settings },
    )
    const hang = async (count: number) => {
      const before = service.requests.length
      const clients = Array.from({ length: count }, async (_, i) => {
        const client = await RawClient.sending(proxy.port, get(`/v2/hang/${i}`, 'slow'))
        onTestFinished(() => client[Symbol.asyncDispose]())
        return client
      })
      const sent = await Promise.all(clients)
      await service.origin.waitFor(() => service.requests.length === before + count, 'requests that hang')
      return sent
    }
    return { proxy, hang }
  }

  test('is told at two thirds of origin.responseTimeout: who, which route, how many, for how long; to the end', async () => {
    const { proxy, hang } = await startHanging({ 'origin.responseTimeout': '3s' })
    const clients = await hang(3)
    expect((await request(proxy.port, get('/v2/x', 'well'))).status).toBe(200)
    expect(await warningsOf(proxy)).toEqual([])
    const told = async () => (await warningsOf(proxy)).find(({ code }) => code === 'answers_overdue')
    const { text } = await eventually(told, 'the warning')
    expect(text).toMatch(/does not answer GET \/v2\/hang\/\* for slow \(3 in flight, the oldest for [23] s\)\./)
    const { inFlight }: StatusDocument = JSON.parse((await proxy.askAdmin('/status')).content)
    expect(inFlight.orgs).toMatchObject([{ name: 'slow', count: 3, longest: { route: 'GET /v2/hang/*' } }])
    for (const client of clients) expect((await client.response()).status).toBe(504)
    expect(await told()).toBeUndefined()
  })

  test('and that fills the proxy: 503 overloaded of others names the limit; log, status and warning also the Org', async () => {
    const { proxy, hang } = await startHanging({ 'origin.connections': '4', 'listen.maxInFlight': '4' })
    await hang(3)
    await using _last = await RawClient.sending(proxy.port, get('/v2/hang/last', 'other'))
    await eventually(async () => (await proxy.metric('oap_requests_in_flight')) === 4 || undefined, 'four in flight')
    const { status, content } = await request(proxy.port, get('/v2/refused', 'third'))
    expect([status, content.includes('listen.maxInFlight'), content.includes('slow')]).toEqual([503, true, false])
    const named = expect.stringMatching(/listen\.maxInFlight allows\. In flight: slow 3, other 1\./)
    expect(await proxy.logOf('/v2/refused')).toMatchObject({ code: 'overloaded', detail: named })
    expect(await warningsOf(proxy)).toMatchObject([{ code: 'overloaded', text: named }])
    expect((await warningsOf(proxy))[0]?.text).toContain('the last one of third.')
  })
})

test('Orgs that are limited are told with the end, and the slower pace with its setting; POST /tokens/resume ends both', async () => {
  let isLimited = true
  await using service = await startService({
    mint: (mint) => (isLimited ? { status: 429, fields: ['Retry-After', '120'] } : mint.issue()),
  })
  await using proxy = await startProxy(service, ADMIN)
  for (const org of ['a', 'b']) expect((await request(proxy.port, get('/v2/x', org))).status).toBe(503)
  const [paused, pace, ...others] = await warningsOf(proxy)
  expect([paused?.code, pace?.code, others]).toEqual(['orgs_paused', 'mint_pace_reduced', []])
  expect(paused?.text).toMatch(/^No new token for b, a: The token endpoint answered 429: it limits the rate/)
  expect(Date.parse(paused?.until ?? '') - Date.now()).toBeGreaterThan(60_000)
  expect(pace?.text).toMatch(/makes 25 % of the calls .* set tokens\.mintRate to/)
  const metrics = () =>
    Promise.all(
      ['oap_warnings{code="orgs_paused"}', 'oap_orgs_paused', 'oap_mint_pace_ratio'].map((name) => proxy.metric(name)),
    )
  expect(await metrics()).toEqual([1, 2, 0.25])

  isLimited = false
  expect((await proxy.askAdmin('/tokens/resume')).status).toBe(405)
  const { status, content } = await proxy.askAdmin('/tokens/resume', 'POST')
  expect([status, JSON.parse(content)]).toEqual([200, { resumed: true }])
  expect(await warningsOf(proxy)).toEqual([])
  expect(await metrics()).toEqual([0, 0, 1])
  expect((await request(proxy.port, get('/v2/x', 'a'))).status).toBe(200)
})

test('App credentials that were never accepted are told from the second Org on; later, a 401 is told with the Orgs that met it', async () => {
  let isAccepted = false
  const { proxy } = await startBoth({ mint: (mint) => (isAccepted ? mint.issue() : { status: 401 }) }, ADMIN)
  const codes = async () => (await warningsOf(proxy)).map(({ code }) => code)
  expect((await request(proxy.port, get('/v2/x', 'acme'))).status).toBe(502)
  expect(await codes(), 'one Org may not be linked').toEqual(['orgs_paused'])
  expect((await request(proxy.port, get('/v2/x', 'globex'))).status).toBe(502)
  expect(await codes()).toEqual(['app_credentials_rejected'])
  expect(await proxy.metric('oap_warnings{code="app_credentials_rejected"}')).toBe(1)
  isAccepted = true
  await proxy.askAdmin('/tokens/resume', 'POST')
  expect((await request(proxy.port, get('/v2/x', 'acme'))).status).toBe(200)
  expect(await warningsOf(proxy)).toEqual([])
  isAccepted = false
  for (const org of ['hooli', 'initech']) await request(proxy.port, get('/v2/x', org))
  const [told, ...others] = await warningsOf(proxy)
  expect([told?.code, others]).toEqual(['orgs_paused', []])
  // The proxy may have asked for the first ones by itself meanwhile.
  const [, named] =
    /No new token for (.+?)(?: since \S+)?: The token endpoint answered 401/.exec(told?.text ?? '') ?? []
  expect(named?.split(', ')).toEqual(expect.arrayContaining(['initech', 'hooli']))
})

test('Orgs for which the endpoint fails are told with each cause, also between two pauses, until a call succeeds', async () => {
  let isUp = false
  await using service = await startService({
    mint: (mint) => (isUp ? mint.issue() : { status: mint.org === 'acme' ? 500 : 502 }),
  })
  await using proxy = await startProxy(service, ADMIN)
  const orgs = ['acme', 'globex', 'initech', 'umbrella', 'hooli']
  for (const org of orgs) expect((await request(proxy.port, get('/v2/x', org))).status).toBe(503)
  const told = async () => (await warningsOf(proxy)).find(({ code }) => code === 'orgs_paused')
  await eventually(async () => {
    const warning = await told()
    const call = `The call is POST ${service.baseUrl.replace(/\/$/, '')}/v2/orgs/{orgId}/access.`
    expect(warning?.text.replaceAll(/ since \d{4}-\S+Z/g, '')).toContain(
      `No new token for hooli, umbrella, initech and 1 more: The token endpoint answered 502. ${call} No new token for acme: The token endpoint answered 500. ${call}`,
    )
    return warning?.until === undefined
  }, 'the end of the first pauses')
  isUp = true
  for (const org of orgs) expect((await request(proxy.port, get('/v2/x', org))).status).toBe(200)
  expect(await told()).toBeUndefined()
})

test('a trouble of another kind has its own time, and so has the one that is left', async () => {
  const answers = new Map([
    ['a', { status: 403 }],
    ['b', { status: 500 }],
  ])
  const settings = { ...ADMIN, 'tokens.refusalTtl': '1ms' }
  const { proxy } = await startBoth({ mint: (mint) => answers.get(mint.org) ?? mint.issue() }, settings)
  const ask = async (org: string) => (await request(proxy.port, get('/v2/x', org))).status
  expect([await ask('a'), await ask('b')]).toEqual([403, 503])
  const first = (await warningsOf(proxy))[0]
  const pausedAt = Date.now()
  answers.set('a', { status: 500 })
  expect(await ask('a')).toBe(503)
  await proxy.askAdmin('/tokens/purge?org=b', 'POST')
  const [told] = await warningsOf(proxy)
  expect(told?.code).toBe('orgs_paused')
  expect(told?.text).toMatch(/^No new token for a: /)
  expect(Date.parse(told?.since ?? '')).toBeGreaterThanOrEqual(pausedAt)
  expect(Date.parse(first?.since ?? '')).toBeLessThanOrEqual(pausedAt)
})

test('a token that the service rejects is told as rejected, until it or another is accepted', async () => {
  let accepts = true
  const settings = { ...ADMIN, 'tokens.settleTime': '0s' }
  const service = { acceptsAnyToken: true, script: () => ({ status: accepts ? 200 : 401 }) }
  const { service: running, proxy } = await startBoth(service, settings)
  const state = async () => JSON.parse((await proxy.askAdmin('/status')).content).orgs[0].state
  const ask = async () => (await request(proxy.port, get('/v2/x', 'acme'))).status
  expect([await ask(), await state()]).toEqual([200, 'fresh'])
  accepts = false
  running.tokens.script = () => ({ status: 401 })
  expect([await ask(), await state()]).toEqual([502, 'paused'])
  running.tokens.script = (mint) => mint.issue()
  await proxy.askAdmin('/tokens/resume', 'POST')
  expect([await ask(), await state()]).toEqual([401, 'rejected'])
  accepts = true
  expect([await ask(), await state()]).toEqual([200, 'fresh'])
})

test('of more than three causes, the Orgs of the others are counted', async () => {
  const statuses = new Map([
    ['a', 500],
    ['b', 501],
    ['c', 502],
    ['d', 504],
    ['e', 505],
  ])
  const { proxy } = await startBoth({ mint: ({ org }) => ({ status: statuses.get(org) ?? 500 }) }, ADMIN)
  for (const org of statuses.keys()) await request(proxy.port, get('/v2/x', org))
  const [told] = await warningsOf(proxy)
  expect(told?.text).toMatch(/ No new token for c since .* No new token for 2 more, for other causes\. To try again/)
})

test('a request that waits for a token is counted as such', async () => {
  const { proxy } = await startBoth({ mint: () => undefined }, { ...ADMIN, 'tokens.mintTimeout': '1s' })
  const waiting = request(proxy.port, get('/v2/x', 'acme'))
  const count = async () => JSON.parse((await proxy.askAdmin('/status')).content).totals.requestsWaitingForToken
  await eventually(async () => (await count()) === 1, 'the request to wait')
  expect((await waiting).status).toBe(504)
  expect(await count()).toBe(0)
})

test('an Org whose new tokens are rejected, too, is named until one is accepted', async () => {
  let isAccepted = false
  await using service = await startService({ script: () => ({ status: isAccepted ? 200 : 401 }) })
  await using proxy = await startProxy(service, {
    ...ADMIN,
    'tokens.settleTime': '10ms',
    'tokens.rejectedCooldown': '1s',
  })
  const told = async () => (await warningsOf(proxy)).find(({ code }) => code === 'fresh_tokens_rejected')?.text
  await eventually(async () => {
    expect((await request(proxy.port, get('/v2/x', 'acme'))).status).toBe(401)
    return await told()
  }, 'the Org to be named')
  expect(await told()).toContain('rejected new tokens of acme')
  isAccepted = true
  expect((await request(proxy.port, get('/v2/x', 'acme'))).status).toBe(200)
  expect(await told()).toBeUndefined()
})

test('two proxies for one Org, where a new token ends the one before: both tell of it, with the remedies', async () => {
  await using service = await startService({
    mint: (mint) => {
      service.tokens.revoke(mint.org)
      return mint.issue()
    },
  })
  const settings = { ...ADMIN, 'tokens.settleTime': '300ms', 'tokens.rejectedCooldown': '100ms' }
  await using one = await startProxy(service, settings)
  await using other = await startProxy(service, settings)
  const told = await eventually(async () => {
    for (let i = 0; i < 10; i += 1)
      await Promise.all([one, other].map(({ port }) => request(port, get('/v2/x', 'acme'))))
    const found = await Promise.all([one, other].map(warningsOf))
    const texts = found.flatMap((all) => all.find(({ code }) => code === 'tokens_ended_young')?.text ?? [])
    return texts.length === 2 ? texts : undefined
  }, 'the warnings')
  for (const text of told) expect(text).toMatch(/of acme were .* \(fleet\.store\), .* \(minter\.url\)/)
})

test('a status that turned out to end tokens is named', async () => {
  const ended = new Set<string>()
  await using service = await startService({
    script: (received) => ({ status: ended.has(received.values('authorization').join()) ? 419 : 200 }),
  })
  await using proxy = await startProxy(service, { ...ADMIN, 'tokens.settleTime': '0s' })
  const statuses = async (count: number) => {
    const seen: (number | undefined)[] = []
    for (let i = 0; i < count; i++) seen.push((await request(proxy.port, get('/v2/x', 'acme'))).status)
    return seen
  }
  const told = async () => (await warningsOf(proxy)).find(({ code }) => code === 'rejection_status_learned')?.text
  expect(await statuses(1)).toEqual([200])
  expect(await told()).toBeUndefined()
  ended.add(service.requests.at(-1)?.values('authorization').join() ?? '')
  expect(await statuses(5)).toEqual([419, 419, 419, 419, 200])
  expect(await told()).toContain('Set tokens.rejectedStatuses to 401, 419.')
  expect(proxy.logs).toContainEqual(expect.objectContaining({ level: 'warn', status: 419 }))
})

test('a status that seems to end the tokens of an app that only POSTs is named after two ends', async () => {
  const ended = new Set<string>()
  await using service = await startService({
    script: (received) => ({ status: ended.has(received.values('authorization').join()) ? 403 : 200 }),
  })
  await using proxy = await startProxy(service, { ...ADMIN, 'tokens.settleTime': '0s' })
  using client = new KeepAliveClient(proxy.port)
  const told = async () => (await warningsOf(proxy)).find(({ code }) => code === 'rejection_status_learned')?.text
  const texts: (string | undefined)[] = []
  for (let end = 0; end < 2; end += 1) {
    expect((await client.post('/v2/x', 'acme', 'x')).status).toBe(200)
    texts.push(await told())
    ended.add(service.requests.at(-1)?.values('authorization').join() ?? '')
    for (let i = 0; i < 5; i += 1) expect((await client.post('/v2/x', 'acme', 'x')).status).toBe(403)
    expect((await client.post('/v2/x', 'acme', 'x')).status).toBe(200)
  }
  expect(texts).toEqual([undefined, undefined])
  expect(await told()).toContain('may end tokens of acme')
  expect(await told()).toContain('set tokens.rejectedStatuses to 401, 403.')
})

test('a route that rejects every token of Orgs that are accepted elsewhere is named, until it accepts one', async () => {
  let isOpen = false
  await using service = await startService({
    script: ({ target }) => ({ status: target.startsWith('/v2/admin/') && !isOpen ? 401 : 200 }),
  })
  await using proxy = await startProxy(service, { ...ADMIN, 'tokens.settleTime': '10ms' })
  const told = async () => (await warningsOf(proxy)).find(({ code }) => code === 'route_rejected')?.text
  const ask = async (id: number) => (await request(proxy.port, get(`/v2/admin/keys/${id}`, 'acme'))).status
  for (let id = 0; id < 10; id++) expect(await ask(id)).toBe(401)
  // As far as anybody can tell by then, it is the Org.
  expect(await told()).toBeUndefined()
  expect((await request(proxy.port, get('/v2/x', 'acme'))).status).toBe(200)
  expect(await told()).toContain('GET /v2/admin/keys/* (401, 10 times in a row, the last for acme)')
  isOpen = true
  expect(await ask(77)).toBe(200)
  expect(await told()).toBeUndefined()
})

test('a WebSocket that goes on although one side has ended is named until it ends', async () => {
  await using service = await startService({
    script: (_, connection) => {
      connection.tunnel()
      connection.write('HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n')
    },
  })
  await using proxy = await startProxy(service, ADMIN)
  await using client = await RawClient.sending(proxy.port, get('/v2/ws', 'acme', ...HANDSHAKE))
  expect((await client.response()).status).toBe(101)
  const connection = service.requests.at(-1)?.connection
  const told = async () => (await warningsOf(proxy)).find(({ code }) => code === 'tunnels_left')?.text
  expect(await told()).toBeUndefined()
  client.endSending()
  await eventually(told, 'the WebSocket to be named', 10_000)
  expect(await told()).toMatch(/\/v2\/ws for acme \(request \S+\)/)
  connection?.end()
  await eventually(async () => (await told()) === undefined, 'the end of the warning')
})

test('a secret file that cannot be used is told until it is mended', async () => {
  const { proxy } = await startBoth({}, ADMIN)
  const isTold = async () => (await warningsOf(proxy)).some(({ code }) => code === 'secret_refused')
  const secret = await readFile(proxy.secretFile)
  await writeFile(proxy.secretFile, '')
  await eventually(isTold, 'the empty file to be told', 10_000)
  expect((await proxy.askAdmin('/readyz')).status).toBe(200)
  expect((await request(proxy.port, get('/v2/x', 'acme'))).status).toBe(200)
  await writeFile(proxy.secretFile, secret)
  await eventually(async () => !(await isTold()), 'the end of the warning', 10_000)

  // A wrong one is found out by the next mint, which goes on with the one before.
  await writeFile(proxy.secretFile, randomSecret())
  let orgs = 0
  const knows = async () => {
    expect((await request(proxy.port, get('/v2/x', `org-${++orgs}`))).status).toBe(200)
    return isTold()
  }
  await eventually(knows, 'the wrong secret to be told', 10_000)
  await writeFile(proxy.secretFile, secret)
  await eventually(async () => !(await isTold()), 'the end of the warning', 10_000)
})
