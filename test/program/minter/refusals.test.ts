/** What a sidecar tells of a minter that refuses it, fails, or cannot get a token itself. */

import { writeFile } from 'node:fs/promises'
import { beforeEach, describe, expect, onTestFinished, test } from 'vitest'
import { eventually, Gate } from '../../support/changes.ts'
import { SpanKind, startCollector } from '../../support/collector.ts'
import type { Reply } from '../../support/origin-connection.ts'
import { problemOf, request } from '../../support/raw-client.ts'
import { type Service, startService } from '../../support/service.ts'
import type { ProxyUnderTest } from '../../support/start-proxy.ts'
import { ask, BILLING_KEY, outcome, REPORTS_KEY, startMinter, startSidecar } from './minters.ts'

let service: Service
beforeEach(async () => {
  service = await startService()
  return async () => await service[Symbol.asyncDispose]()
})

const statusOf = async (proxy: ProxyUnderTest) => JSON.parse((await proxy.askAdmin('/status')).content)
const warningsOf = async (proxy: ProxyUnderTest): Promise<Record<string, string>> =>
  Object.fromEntries((await statusOf(proxy)).warnings.map(({ code, text }: Record<string, string>) => [code, text]))
const answerFor = async (proxy: ProxyUnderTest, org: string) =>
  problemOf(await request(proxy.port, `GET /v2/things HTTP/1.1\r\nHost: localhost\r\nX-Org-Id: ${org}\r\n\r\n`))

describe('a minter that refuses the sidecar itself', () => {
  test('is told in a warning until the key is right, and no app is blamed', async () => {
    const minter = await startMinter(service)
    const sidecar = await startSidecar(service, minter, {}, 'a-key-of-nobody')
    const remedy = /minter\.keyFile, minter\.jwtFile or minter\.certFile here, and callers at the minter/
    const { status, code, detail } = await answerFor(sidecar, 'acme')
    expect([status, code, detail]).toEqual([403, 'caller_refused', expect.stringMatching(remedy)])
    expect(detail).not.toContain('X-Proxy-Key')
    expect((await warningsOf(sidecar))['minter_refused']).toMatch(remedy)
    expect((await warningsOf(sidecar))['minter_lost']).toBeUndefined()
    expect(await sidecar.metric('oap_minter_available')).toBe(0)
    const { recent, errors } = await statusOf(sidecar)
    expect(recent.errors).toEqual({ proxy: 1, service: 0, app: 0 })
    expect(errors).toMatchObject([{ code: 'caller_refused', kind: 'proxy', detail: expect.stringMatching(remedy) }])
    const told = sidecar.logs.filter(({ msg }) => msg === 'minter refuses this sidecar')
    expect(told).toMatchObject([{ level: 'warn', code: 'caller_refused', remedy: expect.stringMatching(remedy) }])
    expect(sidecar.logs.find(({ msg }) => msg === 'request')?.level).toBe('warn')
    expect((await sidecar.askAdmin('/readyz')).status).toBe(200)

    await writeFile(sidecar.at('minter.key'), BILLING_KEY)
    await sidecar.app.reload()
    await sidecar.until(() => sidecar.logs.some(({ msg }) => msg === 'minter available'), 'the minter accepts it')
    expect(await warningsOf(sidecar)).toEqual({})
    expect(await outcome(sidecar, 'acme')).toBe(200)
  })

  test('a caller with routes is told to have none', async () => {
    const callers =
      'callers: [{name: billing, keyFiles: [billing.key], tokens: true, orgs: [acme], routes: ["GET /v2/things"]}]'
    const sidecar = await startSidecar(service, await startMinter(service, {}, { 'proxy.yaml': callers }))
    const { code, detail } = await answerFor(sidecar, 'acme')
    expect([code, detail]).toEqual(['route_refused', expect.stringContaining('callers there')])
    expect((await warningsOf(sidecar))['minter_refused']).toContain('403 route_refused')
  })
})

describe('a minter that gets no token', () => {
  test('for an Org of another caller: the remedy is at the minter, and is no warning', async () => {
    const sidecar = await startSidecar(service, await startMinter(service))
    const problem = await answerFor(sidecar, 'initech')
    expect(problem).toMatchObject({ code: 'org_not_allowed', detail: expect.stringContaining('At the minter') })
    expect(problem).not.toHaveProperty('tokenEndpointStatus')
    expect(await warningsOf(sidecar)).toEqual({})
    const { mints, refusedMints, failedMints } = (await statusOf(sidecar)).totals
    expect([mints, refusedMints, failedMints]).toEqual([1, 1, 0])
  })

  test('for its own App secret: its sidecar stays ready, and names the secret of the minter', async () => {
    service.tokens.script = () => ({ status: 401, reason: 'Unauthorized', content: '' })
    const sidecar = await startSidecar(service, await startMinter(service))
    const problem = await answerFor(sidecar, 'acme')
    expect(problem).toMatchObject({
      code: 'app_credentials_rejected',
      detail: expect.stringContaining('App secret at the minter'),
    })
    await answerFor(sidecar, 'globex-1')
    expect(await warningsOf(sidecar)).toEqual({
      app_credentials_rejected: expect.stringContaining('App secret at the minter'),
    })
    expect((await sidecar.askAdmin('/readyz')).status).toBe(200)
    const { mints, failedMints } = (await statusOf(sidecar)).totals
    expect([failedMints, mints > 0]).toEqual([mints, true])
  })

  test('because it is overloaded: the sidecar tries again, and does not count it as lost', async () => {
    const gate = new Gate()
    service.tokens.script = async (mint) => {
      await gate.pass()
      return mint.issue()
    }
    const minter = await startMinter(service, { 'listen.maxInFlight': '4' })
    const first = ask(minter.minterPort)
    await gate.untilWaiting(1)
    const sidecar = await startSidecar(service, minter)
    const second = outcome(sidecar, 'globex-1')
    await minter.until(() => minter.logs.some(({ code }) => code === 'overloaded'), 'the refusal')
    gate.open()
    expect([(await first).status, await second]).toEqual([200, 200])
    expect(sidecar.logs.some(({ msg }) => msg?.startsWith('minter lost'))).toBe(false)
  })
})

test('the lines of a minter name the Org, and tell truly how its token was had', async () => {
  const gate = new Gate()
  let reply: Reply | undefined
  service.tokens.script = async (mint) => {
    await gate.pass()
    reply ??= mint.issue()
    return reply
  }
  const minter = await startMinter(service)
  const asked = [ask(minter.minterPort, { org: 'shared' }), ask(minter.minterPort, { org: 'shared', key: REPORTS_KEY })]
  await gate.untilWaiting(1)
  await eventually(async () => (await minter.metric('oap_requests_in_flight')) === 2 || undefined, 'both are in flight')
  gate.open()
  const [first] = await Promise.all(asked)
  await ask(minter.minterPort, { org: 'shared' })
  await ask(minter.minterPort, { org: 'shared', rejected: first?.id })
  await ask(minter.minterPort, { org: 'initech' })
  expect(minter.logs.filter(({ msg }) => msg === 'request').map(({ orgId, token }) => [orgId, token])).toEqual([
    ['shared', 'miss'],
    ['shared', 'joined'],
    ['shared', 'hit'],
    ['shared', 'miss'],
    ['initech', 'none'],
  ])
})

test('the span of a mint is the call of the minter, and a close without a drain sends it', async () => {
  const collector = await startCollector()
  onTestFinished(() => collector[Symbol.asyncDispose]())
  const minter = await startMinter(service)
  const traced = { 'traces.endpoint': collector.endpoint, 'tokens.endpoint': 'PUT /v2/orgs/{orgId}/access' }
  const sidecar = await startSidecar(service, minter, traced)
  expect(await outcome(sidecar, 'acme')).toBe(200)
  await sidecar.app.close()
  expect(collector.spans.find(({ name }) => name === 'mint')).toMatchObject({
    kind: SpanKind.client,
    attributes: {
      'http.request.method': 'POST',
      'server.address': 'localhost',
      'server.port': minter.minterPort,
      'url.full': `http://localhost:${minter.minterPort}/v1/orgs/acme/token`,
    },
  })
})
