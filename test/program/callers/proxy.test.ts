/** Callers in the whole program: their Orgs, their routes, and their limits of requests at once. */

import { stat } from 'node:fs/promises'
import { describe, expect, test } from 'vitest'
import { CA_FILE } from '../../support/certificates.ts'
import { during, eventually, Gate } from '../../support/changes.ts'
import { KeepAliveClient } from '../../support/keep-alive-client.ts'
import { freePort } from '../../support/listening.ts'
import { fieldOf, outcomeOf, problemOf, RawClient, type RawResponse, request } from '../../support/raw-client.ts'
import { startService } from '../../support/service.ts'
import {
  type ProxySettings,
  type ProxyUnderTest,
  startBoth,
  startBothForFile,
  startProxy,
} from '../../support/start-proxy.ts'
import { makeIssuer, sign } from '../../units/callers/issuer.ts'
import { KeySetServer } from '../../units/callers/key-set-server.ts'

const REPORTS_KEY = 'reports-key-0123456789'
const NEXT_KEY = 'reports-next-key-0123456789'

const CALLERS = `
routes: {allow: ["GET /v2/*", "POST /v2/invoices"]}
callers:
  - name: billing
    socket: $FOLDER/billing.sock
    orgs: [acme, "globex-*"]
    routes: ["GET /v2/invoices/*"]
  - name: reports
    keyFiles: [reports.key, reports.next.key]
    orgs: ["*"]
  - name: batch
    jwt:
      issuer: https://issuer.example
      audience: org-access-proxy
      subject: system:serviceaccount:jobs:batch
      jwks: jwks.json
    orgs: [acme]
  - name: idle
    keyFiles: [idle.key]
  - {name: shipping, socket: $FOLDER/shipping.sock, orgs: [initech]}
`

/** A caller whose key set is behind this URL. */
const batchFrom = (jwks: string) => `
callers:
  - name: batch
    jwt: {issuer: "https://issuer.example", audience: org-access-proxy, subject: "system:serviceaccount:jobs:batch", jwks: "${jwks}", jwksCaFile: ${CA_FILE}}
    orgs: [acme]
`

const issuer = await makeIssuer()
const files = {
  'proxy.yaml': CALLERS,
  'reports.key': `${REPORTS_KEY}\n`,
  'reports.next.key': NEXT_KEY,
  'idle.key': 'idle-key-0123456789',
  'jwks.json': issuer.jwks,
}
// With callers, only a unix socket serves the status.
const { service, proxy } = await startBothForFile({}, { 'admin.address': 'unix:$FOLDER/admin.sock' }, files)

const inFlight = (of: ProxyUnderTest) => of.metric('oap_requests_in_flight')

/** The caller `batch`, whose key set is behind this URL, and another with NEXT_KEY. */
const startWith = (url: string, settings: ProxySettings = {}, to = service) =>
  startProxy(
    to,
    { 'admin.address': 'localhost:0', ...settings },
    { 'proxy.yaml': `${batchFrom(url)}  - {name: other, keyFiles: [other.key], orgs: ["*"]}\n`, 'other.key': NEXT_KEY },
  )

const fieldsWith = (key: string) => `Host: localhost\r\nX-Org-Id: acme\r\nX-Proxy-Key: ${key}\r\n\r\n`

interface Sent {
  readonly key?: string | undefined
  readonly org?: string
  readonly route?: string
  readonly on?: number | string
}

async function send({ key, org = 'acme', route = 'GET /v2/invoices/1', on = proxy.port }: Sent) {
  const field = key === undefined ? '' : `X-Proxy-Key: ${key}\r\n`
  return outcomeOf(await request(on, `${route} HTTP/1.1\r\nHost: localhost\r\nX-Org-Id: ${org}\r\n${field}\r\n`))
}

describe('by socket', () => {
  const on = () => proxy.at('billing.sock')

  test('its Orgs and routes are admitted, others are not', async () => {
    expect(await send({ on: on() })).toBe(200)
    expect(await send({ on: on(), org: 'globex-7' })).toBe(200)
    expect(await send({ on: on(), org: 'globex' })).toBe('org_not_allowed')
    expect(await send({ on: on(), org: 'initech' })).toBe('org_not_allowed')
    expect(await send({ on: proxy.at('shipping.sock'), org: 'initech' })).toBe(200)
    expect(await send({ on: on(), route: 'GET /v2/members' })).toBe('route_refused')
    expect(await send({ on: on(), route: 'POST /v2/invoices/1' })).toBe('route_refused')
  })

  test('the mode of the socket is that of listen.socketMode', async () => {
    expect((await stat(on())).mode & 0o777).toBe(0o660)
  })
})

describe('by key', () => {
  test('each key is accepted, on the common address only', async () => {
    expect(await send({ key: REPORTS_KEY, org: 'any-org' })).toBe(200)
    expect(await send({ key: NEXT_KEY, route: 'GET /v2/members' })).toBe(200)
    expect(await send({ key: REPORTS_KEY, route: 'DELETE /v2/members' })).toBe('route_refused')
    expect(await send({ key: 'idle-key-0123456789' })).toBe('org_not_allowed')
  })

  test('a request of no caller is refused as such, whatever else is wrong with it', async () => {
    expect(await send({})).toBe('caller_refused')
    expect(await send({ key: 'wrong' })).toBe('caller_refused')
    expect(await send({ route: 'GET /v2/../x' })).toBe('caller_refused')
    expect(await send({ route: 'POST /v2/orgs/acme/access' })).toBe('caller_refused')
    expect(await send({ key: REPORTS_KEY, route: 'POST /v2/orgs/acme/access' })).toBe('token_endpoint_refused')
  })
})

describe('by JWT', () => {
  test('a token is verified, and admitted again without waiting', async () => {
    const token = await sign(issuer)
    expect(await send({ key: token })).toBe(200)
    expect(await send({ key: token })).toBe(200)
    expect(await send({ key: token, org: 'globex' })).toBe('org_not_allowed')
    expect(await send({ key: await sign(issuer, { expiresIn: -60 }) })).toBe('caller_refused')
    expect(await send({ key: await sign(await makeIssuer()) })).toBe('caller_refused')
  })

  test.each([
    ['content', 'Content-Length: 7', 'content', 'content'],
    ['chunks', 'Transfer-Encoding: chunked', '7\r\ncontent\r\n0\r\n\r\n', 'content'],
    ['chunked content that is empty', 'Transfer-Encoding: chunked', '0\r\n\r\n', ''],
  ])('%s that arrives before the verification has ended goes through', async (jti, framing, sent, content) => {
    const token = await sign(issuer, { claims: { jti } })
    const head = `POST /v2/invoices HTTP/1.1\r\nHost: localhost\r\nX-Org-Id: acme\r\nX-Proxy-Key: ${token}\r\n${framing}\r\n\r\n`
    expect((await request(proxy.port, head + sent)).status).toBe(200)
    expect(service.requests.at(-1)?.content.toString()).toBe(content)
  })
})

test('no credential of a caller is forwarded, logged or shown', async () => {
  const token = await sign(issuer, { claims: { jti: 'shown' } })
  await send({ key: token })
  await send({ key: REPORTS_KEY })
  await send({ key: 'a-wrong-key-that-is-not-told' })
  const shown = await Promise.all(['/status', '/metrics'].map(async (path) => (await proxy.askAdmin(path)).content))
  const forwarded = service.requests.map(({ fields }) => fields.join())
  const seen = [proxy.output, ...shown, ...forwarded].join('\n')
  for (const secret of [token, token.split('.')[2] ?? '', REPORTS_KEY, NEXT_KEY, 'a-wrong-key-that-is-not-told']) {
    expect(seen).not.toContain(secret)
    expect(seen).not.toContain(Buffer.from(secret).toString('base64'))
  }
  expect(forwarded.join().toLowerCase()).not.toContain('x-proxy-key')
})

test('the counts of each caller begin at zero, so that the first increase is seen', async () => {
  for (const status of ['2xx', '3xx', '4xx', '5xx']) {
    expect(await proxy.metric(`oap_caller_requests_total{caller="shipping",status="${status}"}`)).not.toBeNaN()
  }
})

test('the log and the metrics name the caller, also for refusals', async () => {
  await send({ on: proxy.at('billing.sock'), org: 'nobody', route: 'GET /v2/invoices/log' })
  expect(await proxy.logOf('/v2/invoices/log')).toMatchObject({ caller: 'billing', code: 'org_not_allowed' })
  const { content } = await proxy.askAdmin('/metrics')
  expect(content).toMatch(/oap_caller_requests_total\{caller="billing",status="4xx"\} \d/)
  expect(content).toMatch(/oap_caller_requests_total\{caller="reports",status="2xx"\} \d/)
  expect(content).not.toMatch(/oap_caller_requests_total\{caller="(undefined|)"/)
})

/** Callers that may name all Orgs. The first has REPORTS_KEY and at most so many requests at once, the other NEXT_KEY. */
const twoCallers = (maxInFlight: number) => ({
  'proxy.yaml': `
callers:
  - {name: first, keyFiles: [first.key], orgs: ["*"], maxInFlight: ${maxInFlight}}
  - {name: other, keyFiles: [other.key], orgs: ["*"]}
`,
  'first.key': REPORTS_KEY,
  'other.key': NEXT_KEY,
})

test('a caller gets no more requests at once than its maxInFlight, and other callers do not wait', async () => {
  const gate = new Gate()
  const script = () => gate.pass().then(() => ({}))
  const { service: slow, proxy: limited } = await startBoth({ script }, {}, twoCallers(2))
  const get = (key: string) =>
    request(limited.port, `GET /v2/x HTTP/1.1\r\nHost: localhost\r\nX-Org-Id: acme\r\nX-Proxy-Key: ${key}\r\n\r\n`)
  const first = [get(REPORTS_KEY), get(REPORTS_KEY)]
  await slow.origin.waitFor(() => slow.requests.length === 2, 'two requests at the service')
  const refused = await get(REPORTS_KEY)
  expect([refused.status, JSON.parse(refused.content.toString()).code]).toEqual([503, 'overloaded'])
  const other = get(NEXT_KEY)
  await slow.origin.waitFor(() => slow.requests.length === 3, 'the request of the other caller')
  gate.open()
  expect((await Promise.all([...first, other])).map(({ status }) => status)).toEqual([200, 200, 200])
  expect((await get(REPORTS_KEY)).status).toBe(200)
})

test('while no key set was ever had, its callers get 503, and a warning says so; it is back soon after its server', async () => {
  const port = await freePort()
  const url = `https://localhost:${port}/jwks.json`
  await using keyless = await startWith(`${url}?code=hunter2`, { 'admin.address': 'unix:$FOLDER/admin.sock' })
  const lines = () => keyless.logs.filter(({ msg }) => msg?.startsWith('key set of callers'))
  await keyless.until(() => lines().length > 0, 'a line about the key set')
  const problem = 'cannot be fetched (ECONNREFUSED)'
  const told = 'key set of callers not usable: requests with tokens that need it get 503'
  expect(lines()).toMatchObject([{ level: 'warn', msg: told, url, problem }])
  const token = await sign(issuer)
  const answer = await request(keyless.port, `GET /v2/keyless HTTP/1.1\r\n${fieldsWith(token)}`)
  expect([answer.status, problemOf(answer).code]).toEqual([503, 'caller_keys_unavailable'])
  expect(Number(fieldOf(answer, 'retry-after'))).toBeGreaterThan(0)
  expect(await keyless.logOf('/v2/keyless')).toMatchObject({ level: 'warn', reason: 'no key set' })
  expect(await send({ on: keyless.port, key: NEXT_KEY }), 'another caller').toBe(200)
  expect(await send({ on: keyless.port, key: await sign(issuer, { claims: { sub: 'nobody' } }) })).toBe(
    'caller_refused',
  )
  const warnings = async () => JSON.parse((await keyless.askAdmin('/status')).content).warnings
  expect(await warnings()).toMatchObject([
    { code: 'key_set_unavailable', text: expect.stringContaining(`The key set of callers at ${url} ${problem}.`) },
  ])
  expect(await keyless.metric('oap_warnings{code="key_set_unavailable"}')).toBe(1)
  const shown = JSON.stringify([await warnings(), keyless.logs])
  expect(shown, 'a query may hold a key').not.toContain('hunter2')

  await using _server = await KeySetServer.start(issuer.jwks, port)
  await eventually(async () => (await warnings()).length === 0, 'the key set, without a request that needs it', 10_000)
  expect(await send({ on: keyless.port, key: token })).toBe(200)
})

test('tokens that wait for a key set take no place from callers that are known', async () => {
  await using server = await KeySetServer.start(issuer.jwks)
  const gate = new Gate()
  server.answer = (response) => void gate.pass().then(() => response.end(issuer.jwks))
  await using small = await startWith(server.url, { 'listen.maxInFlight': '2' })
  const key = await sign(issuer)
  const waiting = Array.from({ length: 4 }, () => send({ on: small.port, key }))
  await eventually(async () => (await inFlight(small)) === 4 || undefined, 'four requests that wait')
  expect(await send({ on: small.port, key: NEXT_KEY })).toBe(200)
  gate.open()
  // Once their caller is known, the limit holds for them too.
  for (const outcome of await Promise.all(waiting)) expect([200, 'overloaded']).toContain(outcome)
})

/**
 * The attack: while the key set server hangs, connections with made-up tokens fill the proxy. Its limit is reached by requests
 * that wait, not by idle connections, and each that is broken off comes again.
 */
test('made-up tokens that wait for a key set keep nobody out', async () => {
  const CONNECTIONS = 40
  await using server = await KeySetServer.start(issuer.jwks)
  server.answer = () => undefined // never answers
  await using small = await startWith(server.url, { 'listen.maxConnections': `${CONNECTIONS}` })
  const flood: RawClient[] = []
  const attack = async () => {
    const token = await sign(issuer, { claims: { jti: `made-up-${flood.length}` } })
    flood.push(await RawClient.sending(small.port, `GET /v2/x HTTP/1.1\r\n${fieldsWith(token)}`))
  }
  for (let i = 0; i < CONNECTIONS; i++) await attack()
  await eventually(async () => (await inFlight(small)) === CONNECTIONS || undefined, 'as many requests as connections')
  for (let i = 0; i < 10; i++) {
    expect(await send({ on: small.port, key: NEXT_KEY })).toBe(200)
    await attack()
    await attack()
  }
  expect(await inFlight(small)).toBeLessThanOrEqual(CONNECTIONS)
  expect(problemOf((await flood[0]?.response()) as RawResponse).code).toBe('overloaded')
  for (const client of flood) await client[Symbol.asyncDispose]()
})

test('a request whose client leaves during the verification ends, and never reaches the service', async () => {
  await using server = await KeySetServer.start(issuer.jwks)
  const gate = new Gate()
  server.answer = (response) => void gate.pass().then(() => response.end(issuer.jwks))
  await using waiting = await startWith(server.url)
  const key = await sign(issuer)
  const client = await RawClient.sending(waiting.port, `GET /v2/gone HTTP/1.1\r\n${fieldsWith(key)}`)
  await server.changes.until(() => server.requests > 0, 'a fetch of the key set')
  await client[Symbol.asyncDispose]()
  expect(await waiting.logOf('/v2/gone')).toMatchObject({ status: 499, code: 'client_closed' })
  gate.open()
  expect(await send({ on: waiting.port, key })).toBe(200)
  expect(service.requests.map(({ target }) => target)).not.toContain('/v2/gone')
})

test('requests whose clients left during the verification do not count against those in flight', async () => {
  await using server = await KeySetServer.start(issuer.jwks)
  server.answer = () => undefined // never answers
  const gate = new Gate()
  await using own = await startService({
    script: ({ target }) => (target === '/v2/first' ? {} : gate.pass().then(() => ({}))),
  })
  await using small = await startWith(server.url, { 'listen.maxInFlight': '2' }, own)
  expect(await send({ on: small.port, key: NEXT_KEY, route: 'GET /v2/first' })).toBe(200) // it has a token from now on
  for (let i = 0; i < 4; i++) {
    const key = await sign(issuer, { claims: { jti: `left-${i}` } })
    await using _client = await RawClient.sending(small.port, `GET /v2/gone HTTP/1.1\r\n${fieldsWith(key)}`)
    await eventually(async () => (await inFlight(small)) === 1 || undefined, 'a request in flight')
  }
  await eventually(async () => (await inFlight(small)) === 0 || undefined, 'the ends of these requests')
  const held = [send({ on: small.port, key: NEXT_KEY }), send({ on: small.port, key: NEXT_KEY })]
  await gate.untilWaiting(2)
  expect(await send({ on: small.port, key: NEXT_KEY })).toBe('overloaded')
  expect(small.logs.at(-1)).toMatchObject({ code: 'overloaded', reason: 'listen.maxInFlight' })
  gate.open()
  expect(await Promise.all(held)).toEqual([200, 200])
})

test.each([
  ['admitted', {}, 200],
  ['refused', { claims: { sub: 'nobody' } }, 403],
])(
  'what comes behind a request whose caller is being verified is not answered: it is %s',
  async (_, options, status) => {
    await using server = await KeySetServer.start(issuer.jwks)
    const [verified, answered] = [new Gate(), new Gate()]
    server.answer = (response) => void verified.pass().then(() => response.end(issuer.jwks))
    await using own = await startService({
      script: async ({ target }) => {
        if (target === '/v2/a') await answered.pass()
        return {}
      },
    })
    await using waiting = await startWith(server.url, {}, own)
    const key = await sign(issuer, options)
    const line = (target: string) => `GET ${target} HTTP/1.1\r\n`
    // A blank that gets lost would make one field of two.
    const begun = `${line('/v2/b')}X-A: 1`
    await using client = await RawClient.sending(waiting.port, `${line('/v2/a')}${fieldsWith(key)}${begun}`)
    await server.changes.until(() => server.requests > 0, 'a fetch of the key set')
    verified.open()
    if (status === 200) await answered.untilWaiting(1)
    client.send('\r\n')
    expect(await send({ on: waiting.port, key: NEXT_KEY })).toBe(200) // so the proxy has read it
    answered.open()
    const response = await client.response()
    expect([response.status, fieldOf(response, 'connection')]).toEqual([status, 'close'])
    client.send(`X-B: 2\r\n${fieldsWith(key)}`)
    expect((await client.untilClosed()).bytes.toString()).toBe('')
    expect(own.requests.map(({ target }) => target)).not.toContain('/v2/b')
  },
)

test('a request whose caller is still verified at the deadline of a stop is logged as draining, not as left by its client', async () => {
  await using server = await KeySetServer.start(issuer.jwks)
  server.answer = () => undefined
  await using stopping = await startWith(server.url, { 'shutdown.timeout': '100ms' })
  const fields = fieldsWith(await sign(issuer))
  await using _client = await RawClient.sending(stopping.port, `GET /v2/never HTTP/1.1\r\n${fields}`)
  await server.changes.until(() => server.requests > 0, 'a fetch of the key set')
  await stopping.app.drain()
  expect(await stopping.logOf('/v2/never')).toMatchObject({ status: 0, code: 'draining' })
})

test('a request whose caller is verified while the proxy stops gets 503 draining', async () => {
  await using server = await KeySetServer.start(issuer.jwks)
  const gate = new Gate()
  server.answer = (response) => void gate.pass().then(() => response.end(issuer.jwks))
  await using stopping = await startWith(server.url)
  const fields = fieldsWith(await sign(issuer))
  await using client = await RawClient.sending(stopping.port, `GET /v2/late HTTP/1.1\r\n${fields}`)
  await eventually(async () => (await inFlight(stopping)) === 1 || undefined, 'a request in flight')
  await server.changes.until(() => server.requests > 0, 'a fetch of the key set')
  const drained = stopping.app.drain()
  setTimeout(() => gate.open(), 50) // the proxy first takes what has arrived
  const response = await client.response()
  expect([response.status, problemOf(response).code]).toEqual([503, 'draining'])
  expect(Number(fieldOf(response, 'retry-after'))).toBeGreaterThan(0)
  expect(fieldOf(response, 'connection')).toBe('close')
  await drained
  expect(await stopping.logOf('/v2/late')).toMatchObject({ status: 503, code: 'draining', caller: 'batch' })
})

test('callers share the budget for mints: a flood of one, over ever new connections, delays no other', async () => {
  const FLOOD = 40
  await using busy = await startService({ mint: (mint) => (mint.org.startsWith('x') ? { status: 404 } : mint.issue()) })
  await using shared = await startProxy(busy, { 'tokens.mintRate': '50' }, twoCallers(2 * FLOOD))
  let unknown = 0
  const flood = Array<() => Promise<unknown>>(FLOOD).fill(async () => {
    using client = new KeepAliveClient(shared.port)
    await client.get('/v2/x', `x-${unknown++}`, `X-Proxy-Key: ${REPORTS_KEY}`)
  })
  const { mints } = busy.tokens
  const mintsBefore: number[] = []
  await during(flood, async () => {
    await eventually(() => mints.length > 100 || undefined, 'a flood that uses the rate up')
    for (let i = 0; i < 10; i++) {
      using client = new KeepAliveClient(shared.port)
      const askedAt = mints.length
      expect((await client.get('/v2/x', `acme-${i}`, `X-Proxy-Key: ${NEXT_KEY}`)).status).toBe(200)
      mintsBefore.push(mints.findIndex(({ org }) => org === `acme-${i}`) - askedAt)
    }
  })
  // Each connection of the flood asks for one Org. With shares by connection, each would count as a newcomer.
  expect(mintsBefore.toSorted((a, b) => a - b)[5], `before each newcomer: ${mintsBefore}`).toBeLessThan(FLOOD / 2)
})
