/** A JWT that somebody else signs and renews is all that the App has: `tokens.assertionFile`. */

import { rename, rm, writeFile } from 'node:fs/promises'
import { createLocalJWKSet, jwtVerify } from 'jose'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { Canaries } from '../../support/canaries.ts'
import { outcomeOf, request } from '../../support/raw-client.ts'
import { type Service, startService } from '../../support/service.ts'
import { type ProxyUnderTest, startProxy } from '../../support/start-proxy.ts'
import { CLAIMS, type Issuer, makeIssuer, sign } from '../../units/callers/issuer.ts'

const AUDIENCE = 'api://TokenExchange'
const YAML = `
tokens:
  endpoint: POST /{orgId}/oauth2/token
  auth: assertion
  form: { grant_type: client_credentials }
`

let issuer: Issuer
let service: Service
let proxy: ProxyUnderTest
/** What the endpoint was asked with. */
let shown: string[]

const jwt = (expiresIn = 600, jti = 'a') => sign(issuer, { claims: { aud: AUDIENCE, jti }, expiresIn })

beforeEach(async () => {
  issuer = await makeIssuer()
  shown = []
  service = await startService({ acceptsAnyToken: true })
  const keys = createLocalJWKSet(JSON.parse(issuer.jwks))
  service.script = async (asked) => {
    const [, org] = /^\/(\w+)\/oauth2\/token$/.exec(asked.target) ?? []
    if (org === undefined) return {}
    await asked.ended
    const sent = new URLSearchParams(asked.content.toString())
    const assertion = sent.get('client_assertion') ?? ''
    shown.push(assertion)
    expect(Object.fromEntries(sent)).toMatchObject({ client_id: service.appId, grant_type: 'client_credentials' })
    const isGood = await jwtVerify(assertion, keys, { audience: AUDIENCE, subject: CLAIMS.sub }).then(
      () => true,
      () => false,
    )
    const told = JSON.stringify({ error: 'invalid_client', error_description: `this is not good: ${assertion}` })
    return isGood ? { content: JSON.stringify({ orgAccessToken: 'token' }) } : { status: 401, content: told }
  }
})

afterEach(async () => {
  await proxy[Symbol.asyncDispose]()
  await service[Symbol.asyncDispose]()
})

async function start(first: string): Promise<void> {
  const settings = { 'tokens.assertionFile': '$FOLDER/federated.jwt', 'admin.address': 'localhost:0' }
  proxy = await startProxy(service, settings, { 'proxy.yaml': YAML, 'federated.jwt': first })
}

async function renew(content: string): Promise<void> {
  await writeFile(proxy.at('.new'), content, { mode: 0o600 })
  await rename(proxy.at('.new'), proxy.at('federated.jwt'))
}

const send = async (org: string) =>
  outcomeOf(await request(proxy.port, `GET /v2/x HTTP/1.1\r\nHost: localhost\r\nX-Org-Id: ${org}\r\n\r\n`))

const warnings = async () => (await proxy.askAdmin('/status')).content
const ENDED = 'tokens.assertionFile holds a JWT that has ended: whoever signs it has to renew it.'

test('it proves the App, and a renewed one is used without a restart', async () => {
  const [first, next] = [await jwt(), await jwt(600, 'b')]
  await start(`${first}\n`)
  expect(await send('a')).toBe(200)
  await renew(next)
  await proxy.until(() => proxy.output.includes('new secret loaded'), 'the renewed one')
  expect(await send('b')).toBe(200)
  expect(shown).toEqual([first, next])
  expect(proxy.output).toContain('new secret accepted')
})

test('one that ends is told before the endpoint says so, until it is renewed', async () => {
  await start(await jwt(2))
  expect(await warnings()).not.toContain(ENDED)
  await proxy.until(() => proxy.output.includes('holds a JWT that has ended'), 'the log line')
  expect([shown, (await warnings()).includes(ENDED)]).toEqual([[], true])
  // The endpoint decides.
  expect(await send('a')).toBe('app_credentials_rejected')
  await renew(await jwt())
  await proxy.until(() => proxy.output.includes('new secret loaded'), 'the renewed one')
  expect([await send('b'), (await warnings()).includes(ENDED)]).toEqual([200, false])
})

test.each([
  ['cannot be read', () => rm(proxy.at('federated.jwt')), 'tokens.assertionFile does not exist'],
  ['holds none', () => renew('half of a JWT'), 'tokens.assertionFile contains blanks'],
])('a file that %s is told, and the last one goes on', async (_, harm, told) => {
  const first = await jwt()
  await start(first)
  await harm()
  await proxy.until(() => proxy.output.includes('secret file not usable'), 'the log line')
  expect(await warnings()).toContain(told)
  expect([await send('a'), shown]).toEqual([200, [first]])
})

test('no output has it, though the endpoint repeats it', async () => {
  const other = await makeIssuer()
  const bad = await sign(other, { claims: { aud: AUDIENCE } })
  await start(bad)
  expect(await send('a')).toBe('app_credentials_rejected')
  const canaries = new Canaries()
  for (const [index, part] of bad.split('.').entries()) if (index > 0) canaries.add(`part ${index}`, part)
  const pages = await Promise.all(['/', '/status', '/metrics'].map((path) => proxy.askAdmin(path)))
  expect(canaries.search([proxy.output, ...pages.map(({ content }) => content)].join('\n'))).toEqual([])
  expect(proxy.output).toContain('mint failed')
})
