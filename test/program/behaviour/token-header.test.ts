/** The token in another field than `Authorization: Bearer`: `tokens.header`. */

import { describe, expect, test } from 'vitest'
import { head } from '../../support/case-table.ts'
import { HANDSHAKE } from '../../support/handshake.ts'
import { outcomeOf, request } from '../../support/raw-client.ts'
import { startBoth } from '../../support/start-proxy.ts'
import { echoServer } from '../../support/websocket-echo.ts'
import { runProbe } from '../../units/probe/run-probe.ts'

const OWN = 'X-Shopify-Access-Token'

async function start(header: string, files = {}) {
  const echo = echoServer({ content: 'hello' })
  const both = await startBoth(
    { acceptsAnyToken: true, script: echo.script },
    { 'tokens.header': header, appRoutes: 'GET /v2/links' },
    files,
  )
  const send = (path: string, ...lines: string[]) =>
    request(both.proxy.port, head(`GET ${path} HTTP/1.1`, 'Host: localhost', 'X-Org-Id: acme', ...lines))
  /** The values at the service. */
  const seen = (name: string) => both.service.requests.at(-1)?.values(name)
  return { ...both, send, seen }
}

describe('the service gets the token in the field of the setting, and no Authorization', () => {
  test.each([
    [`${OWN}: {token}`, OWN, ''],
    ['Authorization: token {token}', 'authorization', 'token '],
    ['Authorization: Token token="{token}", v=1', 'authorization', 'Token token="'],
    ['api_key: {token}', 'api_key', ''],
  ])('%s', async (header, name, before) => {
    const { service, send, seen } = await start(header)
    expect((await send('/v2/x')).status).toBe(200)
    const [value = '', ...more] = seen(name) ?? []
    const token = value.slice(before.length).split('"')[0] ?? ''
    expect([value.startsWith(before), service.tokens.orgOf(token), more]).toEqual([true, 'acme', []])
    expect(seen('authorization')).toHaveLength(name === 'authorization' ? 1 : 0)
  })

  test('also with a WebSocket, and of a repeat', async () => {
    const { service, send, seen } = await start(`${OWN}: {token}`)
    expect((await send('/v2/ws', ...HANDSHAKE)).status).toBe(101)
    expect(service.tokens.orgOf(seen(OWN)?.[0] ?? '')).toBe('acme')
    let rejections = 0
    service.script = () => (rejections++ === 0 ? { status: 401, reason: 'Unauthorized' } : {})
    expect((await send('/v2/x')).status).toBe(200)
    const sent = service.requests.slice(-2).map((each) => service.tokens.orgOf(each.values(OWN).join()))
    expect([sent, rejections]).toEqual([['acme', 'acme'], 2])
  })
})

test("the client's own field never goes on, nor its Authorization, and Connection cannot remove ours", async () => {
  const { service, send, seen } = await start(`${OWN}: {token}`)
  await send('/v2/x', 'x-shopify-access-TOKEN: mine', 'Authorization: Bearer mine', `Connection: ${OWN}`)
  expect([seen(OWN)?.map((token) => service.tokens.orgOf(token)), seen('authorization')]).toEqual([['acme'], []])
})

test.each([
  [`${OWN}: {token}`, 'X_Shopify_Access_Token', 'X-Shopify_Access-Token', 'Authorization_'],
  ['api_key: {token}', 'api-key', 'API_Key_', 'Authorization-_'],
])('%s: a name that looks like it is refused', async (header, ...names) => {
  const { service, proxy, send } = await start(header)
  for (const name of names) expect(outcomeOf(await send('/v2/x', `${name}: mine`))).toBe('field_invalid')
  expect(service.requests).toEqual([])
  expect(proxy.output).not.toContain('mine')
})

test('a request of the bare App has its proof in Authorization', async () => {
  const { service, send, seen } = await start(`${OWN}: {token}`)
  await send('/v2/links', `${OWN}: mine`)
  expect([seen('authorization'), seen(OWN)]).toEqual([[`Basic ${service.tokens.apiKey}`], []])
})

test('the token is in no line of the log', async () => {
  const { service, proxy, send } = await start(`${OWN}: {token}`)
  await send('/v2/x')
  await proxy.logOf('/v2/x')
  expect(proxy.output).not.toContain(service.tokens.marker)
})

test('a probe shows the token there, too', async () => {
  const { service } = await start(`${OWN}: {token}`)
  service.script = (asked) => ({ status: service.tokens.orgOf(asked.values(OWN).join()) === undefined ? 401 : 200 })
  const { appId, appSecret } = service.tokens
  const probed = { baseUrl: service.baseUrl, appId, appSecret }
  const env = { OAP_TOKENS_HEADER: `${OWN}: {token}` }
  expect((await runProbe(probed, { path: '/v2/x', env })).exitCode).toBe(0)
  const shown = service.requests.flatMap((each) => each.values(OWN))
  expect(shown.some((token) => service.tokens.orgOf(token) === 'acme')).toBe(true)
  expect(service.requests.flatMap((each) => each.values('authorization'))).toEqual([])
})
