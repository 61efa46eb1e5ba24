/** Sidecars without the secret get tokens of their own Orgs from a minter. */

import { writeFile } from 'node:fs/promises'
import { beforeEach, describe, expect, test } from 'vitest'
import { eventually } from '../../support/changes.ts'
import { scaledSetting } from '../../support/pace.ts'
import { outcomeOf, problemOf, request } from '../../support/raw-client.ts'
import { type Service, startService } from '../../support/service.ts'
import { ask, BILLING_KEY, makeTrust, outcome, REPORTS_KEY, startMinter, startSidecar } from './minters.ts'

const trust = await makeTrust()
let service: Service
beforeEach(async () => {
  service = await startService()
  return async () => await service[Symbol.asyncDispose]()
})

const mints = (org?: string) => (org === undefined ? service.tokens.mints : service.tokens.mintsOf(org)).length

describe('a sidecar', () => {
  test('with a key of nobody gets 403 caller_refused, and asks again only after tokens.refusalTtl', async () => {
    const minter = await startMinter(service)
    const sidecar = await startSidecar(service, minter, {}, 'a-key-of-nobody')
    for (let i = 0; i < 5; i++) expect(await outcome(sidecar, 'acme')).toBe('caller_refused')
    expect(minter.logs.filter(({ code }) => code === 'caller_refused')).toHaveLength(1)
    expect(mints()).toBe(0)
  })

  test('passes the answer of the token endpoint on', async () => {
    const minter = await startMinter(service)
    const sidecar = await startSidecar(service, minter)
    service.tokens.script = () => ({ status: 404, reason: 'Not Found', content: '' })
    await outcome(sidecar, 'acme')
    service.tokens.script = (mint) => mint.issue()
    expect(await outcome(sidecar, 'shared')).toBe(200)
    service.tokens.script = () => ({ status: 404, reason: 'Not Found', content: '' })
    const refused = await request(sidecar.port, 'GET /v2/x HTTP/1.1\r\nHost: localhost\r\nX-Org-Id: globex-1\r\n\r\n')
    expect(problemOf(refused)).toMatchObject({ code: 'org_access_refused', tokenEndpointStatus: 404 })
    service.tokens.script = () => ({ status: 429, reason: 'Slow', fields: ['Retry-After', '7'], content: '' })
    const limited = await request(sidecar.port, 'GET /v2/x HTTP/1.1\r\nHost: localhost\r\nX-Org-Id: globex-2\r\n\r\n')
    expect(problemOf(limited)).toMatchObject({ status: 503, code: 'token_endpoint_rate_limited' })
    expect(limited.fields.join('|').toLowerCase()).toContain('retry-after|7')
  })

  test('tells that the token endpoint is slow, and does not take the minter for lost', async () => {
    service.tokens.script = () => new Promise(() => undefined)
    const settings = { 'tokens.mintTimeout': scaledSetting(300) }
    const sidecar = await startSidecar(service, await startMinter(service, settings), settings)
    expect(await outcome(sidecar, 'acme')).toBe('token_endpoint_timeout')
    expect(sidecar.logs.filter(({ msg }) => msg?.startsWith('minter lost'))).toEqual([])
    expect(await sidecar.metric('oap_minter_available')).toBe(1)
  })

  test('a token that another sidecar had replaced is replaced without a mint', async () => {
    const minter = await startMinter(service)
    const one = await startSidecar(service, minter)
    const other = await startSidecar(service, minter, {}, REPORTS_KEY)
    expect([await outcome(one, 'shared'), await outcome(other, 'shared'), mints()]).toEqual([200, 200, 1])
    service.tokens.revoke()
    expect([await outcome(one, 'shared'), await outcome(other, 'shared'), mints()]).toEqual([200, 200, 2])
  })

  test('keeps to the end that the token states', async () => {
    service.tokens.script = (mint) => {
      const { content = '', ...rest } = mint.issue()
      return { ...rest, content: JSON.stringify({ ...JSON.parse(content.toString()), expires_in: 1.5 }) }
    }
    const minter = await startMinter(service)
    const sidecar = await startSidecar(service, minter)
    const startedAt = performance.now()
    while (performance.now() - startedAt < 2_500) expect(await outcome(sidecar, 'acme')).toBe(200)
    expect(mints()).toBeGreaterThanOrEqual(2)
    expect(mints()).toBeLessThanOrEqual(4)
  })
})

describe('a minter', () => {
  test('gives the same token to all, with its id and its age', async () => {
    const { minterPort } = await startMinter(service)
    const first = await ask(minterPort, { org: 'shared' })
    const second = await ask(minterPort, { org: 'shared', key: REPORTS_KEY })
    expect(service.tokens.orgOf(first.token)).toBe('shared')
    expect([second.id, second.token]).toEqual([first.id, first.token])
    expect(second.ageMs).toBeGreaterThanOrEqual(first.ageMs)
    expect(first.token).not.toContain(first.id)
  })

  test('a claim against a former token gets the present one', async () => {
    const { minterPort } = await startMinter(service)
    const first = await ask(minterPort)
    const second = await ask(minterPort, { rejected: first.id })
    expect(second.id).not.toBe(first.id)
    expect(await ask(minterPort, { rejected: first.id })).toMatchObject({ id: second.id })
    expect(await ask(minterPort, { rejected: 'never-seen' })).toMatchObject({ id: second.id })
    expect(mints()).toBe(2)
  })

  test.each([
    ['GET /v1/orgs/acme/token', 'target_invalid'],
    ['POST /v1/orgs/acme/token?x', 'target_invalid'],
    ['POST /x/v1/orgs/acme/token', 'target_invalid'],
    ['POST /v1/orgs/acme/token/', 'target_invalid'],
    ['POST /v1/orgs/a%2e%2e%2fcme/token', 'org_id_invalid'],
    ['POST /v1/orgs/%/token', 'target_invalid'],
    ['POST /v2/orgs/acme/access', 'target_invalid'],
    ['TRACE /v1/orgs/acme/token', 'method_refused'],
  ])('%s: %s', async (line, code) => {
    const { minterPort } = await startMinter(service)
    const raw = `${line} HTTP/1.1\r\nHost: minter\r\nX-Proxy-Key: ${BILLING_KEY}\r\n\r\n`
    expect(outcomeOf(await request(minterPort, raw))).toBe(code)
    expect(mints()).toBe(0)
  })

  test.each([
    ['Origin: https://evil.example', 'browser_refused'],
    ['X-Forwarded-For: 10.0.0.1', 'forwarded_refused'],
    ['X_Proxy_Key: x', 'field_invalid'],
    ['X-Proxy-Key: second', 'caller_refused'],
    ['Content-Length: 5000', 'request_timeout'],
  ])('%s: %s', async (field, code) => {
    const { minterPort } = await startMinter(service, { 'listen.headersTimeout': '200ms' })
    const raw = `POST /v1/orgs/acme/token HTTP/1.1\r\nHost: minter\r\nX-Proxy-Key: ${BILLING_KEY}\r\n${field}\r\n\r\n`
    expect(outcomeOf(await request(minterPort, raw))).toBe(code)
    expect(mints()).toBe(0)
  })

  test('content that is no claim is refused', async () => {
    const { minterPort } = await startMinter(service)
    for (const content of ['{"rejected":1}', '{', JSON.stringify({ rejected: 'x', note: 'x'.repeat(2_000) })]) {
      const raw = `POST /v1/orgs/acme/token HTTP/1.1\r\nHost: minter\r\nX-Proxy-Key: ${BILLING_KEY}\r\nContent-Length: ${content.length}\r\n\r\n${content}`
      expect(outcomeOf(await request(minterPort, raw))).toBe('request_invalid')
    }
    expect(mints()).toBe(0)
  })

  test('is a proxy, too, unless listen.address is off, and both share the tokens', async () => {
    const minter = await startMinter(service, { 'listen.address': 'localhost:0' })
    const { token } = await ask(minter.minterPort)
    const raw = `GET /v2/x HTTP/1.1\r\nHost: localhost\r\nX-Org-Id: acme\r\nX-Proxy-Key: ${BILLING_KEY}\r\n\r\n`
    expect(outcomeOf(await request(minter.port, raw))).toBe(200)
    expect(service.requests.at(-1)?.values('authorization')).toEqual([`Bearer ${token}`])
  })

  test('counts and logs each request, without a token', async () => {
    const minter = await startMinter(service)
    const { token, id } = await ask(minter.minterPort)
    await ask(minter.minterPort)
    await ask(minter.minterPort, { org: 'initech' })
    expect(await minter.metric('oap_minter_requests_total{outcome="minted"}')).toBe(1)
    expect(await minter.metric('oap_minter_requests_total{outcome="held"}')).toBe(1)
    expect(await minter.metric('oap_minter_requests_total{outcome="org_not_allowed"}')).toBe(1)
    expect(await minter.logOf('/v1/orgs/initech/token')).toMatchObject({ caller: 'billing', status: 403 })
    expect(minter.output).not.toContain(token)
    expect(minter.output).not.toContain(id)
  })
})

describe('who the sidecar is', () => {
  const startTls = () => startMinter(service, {}, trust.files)

  /** Files that are written into the folder of the sidecar come first: it cannot start without them. */
  async function sidecarWith(files: Readonly<Record<string, string>>) {
    const minter = await startTls()
    for (const [name, content] of Object.entries(files)) await writeFile(minter.at(name), content)
    return await startSidecar(service, minter, {
      'minter.url': `https://localhost:${minter.minterPort}`,
      'minter.caFile': minter.at('servers.pem'),
      ...('own.key' in files && { 'minter.keyFile': minter.at('own.key') }),
      ...('own.jwt' in files && { 'minter.jwtFile': minter.at('own.jwt') }),
      ...('own.pem' in files && {
        'minter.certFile': minter.at('own.pem'),
        'minter.certKeyFile': minter.at('own-key.pem'),
      }),
    })
  }

  test.each([
    ['a key', async () => ({ 'own.key': BILLING_KEY }), 'acme'],
    ['a JWT', async () => ({ 'own.jwt': await trust.jwt() }), 'initech'],
    ['another JWT', async () => ({ 'own.jwt': await trust.jwt('system:serviceaccount:jobs:night') }), 'hooli'],
    [
      'a certificate',
      async () => {
        const { cert, key } = trust.clients.issue({ names: 'URI:spiffe://example.org/web' })
        return { 'own.pem': cert, 'own-key.pem': key }
      },
      'globex',
    ],
    [
      'another certificate',
      async () => {
        const { cert, key } = trust.clients.issue({ names: 'DNS:mail.svc' })
        return { 'own.pem': cert, 'own-key.pem': key }
      },
      'umbrella',
    ],
  ])('%s speaks for its own Org alone', async (_, files, own) => {
    const sidecar = await sidecarWith(await files())
    for (const org of ['acme', 'globex', 'umbrella', 'initech', 'hooli'])
      expect([org, await outcome(sidecar, org)]).toEqual([org, org === own ? 200 : 'org_not_allowed'])
    expect(mints()).toBe(1)
  })

  test('a certificate of strangers, or a JWT of nobody, is refused', async () => {
    const { cert, key } = trust.strangers.issue({ names: 'URI:spiffe://example.org/web' })
    const stranger = await sidecarWith({ 'own.pem': cert, 'own-key.pem': key })
    expect(await outcome(stranger, 'globex')).toBe('caller_refused')
    const nobody = await sidecarWith({ 'own.jwt': await trust.jwt('system:serviceaccount:jobs:nobody') })
    expect(await outcome(nobody, 'initech')).toBe('caller_refused')
    expect(mints()).toBe(0)
  })

  test('its own socket', async () => {
    const callers = 'callers: [{name: billing, minterSocket: $FOLDER/billing.sock, tokens: true, orgs: [acme]}]'
    const minter = await startMinter(service, {}, { 'proxy.yaml': callers })
    const sidecar = await startSidecar(service, 0, { 'minter.url': `unix:${minter.at('billing.sock')}` })
    expect(await outcome(sidecar, 'acme')).toBe(200)
    expect(await outcome(sidecar, 'initech')).toBe('org_not_allowed')
  })

  test('a JWT that was replaced in its file is used within seconds, without a restart', async () => {
    const minter = await startTls()
    await writeFile(minter.at('own.jwt'), await trust.jwt('system:serviceaccount:jobs:night'))
    const sidecar = await startSidecar(service, minter, {
      'minter.url': `https://localhost:${minter.minterPort}`,
      'minter.caFile': minter.at('servers.pem'),
      'minter.jwtFile': minter.at('own.jwt'),
      'tokens.refusalTtl': '100ms',
    })
    expect(await outcome(sidecar, 'initech')).toBe('org_not_allowed')
    await writeFile(minter.at('own.jwt'), await trust.jwt())
    await eventually(async () => (await outcome(sidecar, 'initech')) === 200 || undefined, 'the new JWT')
  })
})
