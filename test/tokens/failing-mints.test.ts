/** The answer to a client if no token can be had: one status, one code, and nothing of the reply of the token endpoint. */

import { gzipSync } from 'node:zlib'
import { describe, expect, test } from 'vitest'
import { get } from '../support/case-table.ts'
import { CA_FILE, type CertificateName, certificate } from '../support/certificates.ts'
import type { Reply } from '../support/origin-connection.ts'
import { scaled, scaledSetting } from '../support/pace.ts'
import { fieldOf, problemOf, RawClient, type RawResponse, request } from '../support/raw-client.ts'
import { type Service, startService } from '../support/service.ts'
import { type ProxySettings, startProxy } from '../support/start-proxy.ts'
import type { Mint, MintScript } from '../support/token-endpoint.ts'

const json = ['Content-Type', 'application/json']
const invalid = 'token_response_invalid'

const STATUS: Readonly<Record<string, number>> = {
  org_access_refused: 403,
  app_credentials_rejected: 502,
  token_response_invalid: 502,
  token_endpoint_unavailable: 503,
  token_endpoint_rate_limited: 503,
  token_endpoint_timeout: 504,
}
const PROXY_ERROR: Readonly<Record<string, string>> = {
  org_access_refused: 'http_request_denied',
  app_credentials_rejected: 'proxy_configuration_error',
  token_response_invalid: 'http_protocol_error',
  token_endpoint_unavailable: 'destination_unavailable',
  token_endpoint_rate_limited: 'destination_unavailable',
  token_endpoint_timeout: 'http_response_timeout',
}

/** The first answer for a cold org with this token endpoint. Nothing may have reached the origin. */
async function answerBefore(service: Service, settings: ProxySettings = {}): Promise<RawResponse> {
  await using proxy = await startProxy(service, settings)
  const response = await request(proxy.port, get('/v2/x', 'acme'))
  expect(service.requests, 'what reached the origin').toEqual([])
  expect(proxy.output, 'what the token endpoint said is not for the log').not.toContain('CANARY')
  return response
}

function expectProblem(response: RawResponse, code: string): void {
  const status = STATUS[code]
  const problem = problemOf(response)
  expect(problem).toMatchObject({ code, status })
  expect(problem).toHaveProperty('requestId', fieldOf(response, 'x-request-id'))
  expect(response.status).toBe(status)
  expect(fieldOf(response, 'content-type')).toBe('application/problem+json')
  expect(fieldOf(response, 'proxy-status')).toBe(`org-access-proxy; error=${PROXY_ERROR[code]}; details="${code}"`)
  expect(fieldOf(response, 'retry-after') !== undefined, 'Retry-After').toBe(status === 503)
  expect(response.content.toString()).not.toContain('CANARY')
}

const says = (content: string | Uint8Array, more: Reply = {}): Reply => ({ fields: json, content, ...more })

describe.concurrent('the answer of the token endpoint is', () => {
  test.each<[string, Reply, string]>([
    ['401', { status: 401, content: 'CANARY' }, 'app_credentials_rejected'],
    ['400', { status: 400 }, 'org_access_refused'],
    ['403', { status: 403, content: 'CANARY' }, 'org_access_refused'],
    ['404', { status: 404 }, 'org_access_refused'],
    ['410', { status: 410 }, 'org_access_refused'],
    ['451', { status: 451 }, 'org_access_refused'],
    ['429 with nothing', { status: 429 }, 'token_endpoint_rate_limited'],
    ['429 with nonsense', { status: 429, fields: ['Retry-After', 'soon'] }, 'token_endpoint_rate_limited'],
    ['408', { status: 408 }, 'token_endpoint_unavailable'],
    ['500', { status: 500, content: 'CANARY' }, 'token_endpoint_unavailable'],
    ['501', { status: 501 }, 'token_endpoint_unavailable'],
    ['502', { status: 502 }, 'token_endpoint_unavailable'],
    ['503', { status: 503 }, 'token_endpoint_unavailable'],
    ['599', { status: 599 }, 'token_endpoint_unavailable'],
    ['a page for people', { fields: ['Content-Type', 'text/html'], content: '<html>CANARY</html>' }, invalid],
    ['empty', says(''), invalid],
    ['an object without the field', says('{}'), invalid],
    ['null', says('{"orgAccessToken":null}'), invalid],
    ['a number', says('{"orgAccessToken":7}'), invalid],
    ['an array of it', says('["CANARY"]'), invalid],
    ['an array in it', says('{"orgAccessToken":["CANARY"]}'), invalid],
    ['an empty string', says('{"orgAccessToken":""}'), invalid],
    ['half of it', says('{"orgAccessToken":"CANA'), invalid],
    ['two of them', says('{"orgAccessToken":"CANARY","orgAccessToken":"CANARY2"}'), invalid],
    ['inherited', says('{"__proto__":{"orgAccessToken":"CANARY"}}'), invalid],
    ['a bare string', says('"CANARY"'), invalid],
    ['CR LF', says('{"orgAccessToken":"CANARY\\r\\nx: y"}'), invalid],
    ['NUL', says('{"orgAccessToken":"CANARY\\u0000"}'), invalid],
    ['a blank', says('{"orgAccessToken":"CANARY CANARY"}'), invalid],
    ['not ASCII', says('{"orgAccessToken":"CANARYé"}'), invalid],
    ['a token over 16 KiB', says(JSON.stringify({ orgAccessToken: 'x'.repeat(16_385) })), invalid],
    ['over 64 KiB', says(`{"orgAccessToken":"CANARY"}${' '.repeat(65_536)}`), invalid],
    ['204', { status: 204 }, invalid],
    ['201 without a token', { status: 201, content: '{}' }, invalid],
    ['301', { status: 301, fields: ['Location', 'http://evil.invalid/'] }, invalid],
    ['307', { status: 307, fields: ['Location', '/v2/orgs/other/access'] }, invalid],
  ])('%s', async (_, reply, code) => {
    await using service = await startService({ mint: () => reply })
    // Long enough for the slowest machine, and short enough that passing failures are not retried for five seconds.
    expectProblem(await answerBefore(service, { 'tokens.mintTimeout': scaledSetting(2_000) }), code)
  })
})

test.concurrent.each([400, 403, 404, 422])('a refusal contains the status of the endpoint: %d', async (status) => {
  await using service = await startService({ mint: () => ({ status }) })
  expect(problemOf(await answerBefore(service))).toMatchObject({ tokenEndpointStatus: status })
})

describe.concurrent('no answer:', () => {
  test('refused', async () => {
    const service = await startService()
    await service.origin.stop()
    expectProblem(
      await answerBefore(service, { 'tokens.mintTimeout': scaledSetting(2_000) }),
      'token_endpoint_unavailable',
    )
  })

  test('no such name', async () => {
    await using service = await startService()
    const settings = { baseUrl: 'https://no-such-host.invalid', 'tokens.mintTimeout': scaledSetting(2_000) }
    expectProblem(await answerBefore(service, settings), 'token_endpoint_unavailable')
  })

  test.each<CertificateName>(['expired', 'other-host', 'self-signed'])('the certificate is %s', async (name) => {
    await using service = await startService({ tls: certificate(name) })
    const settings = { 'origin.caFile': CA_FILE, 'tokens.mintTimeout': scaledSetting(2_000) }
    expectProblem(await answerBefore(service, settings), 'token_endpoint_unavailable')
    expect(service.tokens.mints).toEqual([])
  })

  test('reset', async () => {
    await using service = await startService({
      mint: ({ request: received }) => {
        received.connection.reset()
        return undefined
      },
    })
    expectProblem(
      await answerBefore(service, { 'tokens.mintTimeout': scaledSetting(2_000) }),
      'token_endpoint_unavailable',
    )
  })
})

function detailOf(response: RawResponse): string {
  const { detail } = problemOf(response) as { detail?: unknown }
  return String(detail)
}

describe.concurrent('the client and the log get the cause of a failed connection:', () => {
  async function detailBefore(service: Service, settings: ProxySettings): Promise<{ detail: string; logged: string }> {
    await using proxy = await startProxy(service, { 'tokens.mintTimeout': '3s', ...settings })
    const response = await request(proxy.port, get('/v2/x', 'acme'))
    const line = proxy.logs.find(({ msg }) => msg === 'mint failed')
    expect(line).toHaveProperty('url', `${settings.baseUrl ?? service.baseUrl}/v2/orgs/acme/access`)
    return { detail: detailOf(response), logged: JSON.stringify(line) }
  }

  test('refused', async () => {
    const service = await startService()
    await service.origin.stop()
    const { detail, logged } = await detailBefore(service, {})
    expect(detail).toMatch(/^The token endpoint cannot be reached \(ECONNREFUSED\)/)
    expect(logged).toContain('ECONNREFUSED')
  })

  test('no such name', async () => {
    await using service = await startService()
    const { detail, logged } = await detailBefore(service, { baseUrl: 'https://no-such-host.invalid' })
    expect(detail).toMatch(/^The host name of the token endpoint cannot be resolved \((ENOTFOUND|EAI_AGAIN)\)/)
    expect(logged).toContain('cannot be resolved')
  })

  test('a certificate that has expired', async () => {
    await using service = await startService({ tls: certificate('expired') })
    const { detail, logged } = await detailBefore(service, { 'origin.caFile': CA_FILE })
    expect(detail).toContain('it has expired, or the clock of this machine is wrong (CERT_HAS_EXPIRED).')
    expect(logged).toContain('CERT_HAS_EXPIRED')
  })

  test('the budget', async () => {
    await using service = await startService({ mint: () => undefined })
    await using proxy = await startProxy(service, { 'tokens.mintTimeout': '200ms', 'tokens.mintRate': '1' })
    const answers = await Promise.all(['a', 'b', 'c'].map((org) => request(proxy.port, get('/v2/x', org))))
    const details = answers.map((answer) => detailOf(answer))
    expect(details.filter((detail) => detail.includes('tokens.mintRate'))).not.toEqual([])
  })
})

test.concurrent.each<[string, MintScript]>([
  ['empty', () => ({})],
  [
    'cut in its content',
    ({ request: { connection } }) => {
      connection.write('HTTP/1.1 200 OK\r\nContent-Length: 60\r\n\r\n{"orgAcc')
      connection.end()
      return undefined
    },
  ],
])('a 200 that is %s is tried again, and answered with 502 when the time is over', async (_, mint) => {
  await using service = await startService({ mint })
  expectProblem(await answerBefore(service, { 'tokens.mintTimeout': scaledSetting(2_000) }), invalid)
  expect(service.tokens.mints.length).toBeGreaterThan(2)
})

/** All requests have to arrive before it ends. */
const DEADLINE_MS = Math.round(Math.min(scaled(400), 2_000))

describe.concurrent('the deadline applies to the whole mint:', () => {
  test.each<[string, MintScript]>([
    ['silence', () => undefined],
    ['a byte now and then', dripping('HTTP/1.1 200 OK\r\nContent-Length: 9000\r\n\r\n', 'x')],
    ['a head that never ends', dripping('HTTP/1.1 200 OK\r\n', 'a: b\r\n')],
    ['chunks without end', dripping('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n', '1\r\n \r\n')],
  ])('%s', async (_, mint) => {
    await using service = await startService({ mint })
    await using proxy = await startProxy(service, { 'tokens.mintTimeout': `${DEADLINE_MS}ms` })
    const startedAt = performance.now()
    const answers = await Promise.all(Array.from({ length: 20 }, () => request(proxy.port, get('/v2/x', 'acme'))))
    const tookMs = performance.now() - startedAt
    for (const answer of answers) expectProblem(answer, 'token_endpoint_timeout')
    expect(tookMs).toBeGreaterThan(DEADLINE_MS - 20)
    expect(tookMs).toBeLessThan(DEADLINE_MS + scaled(1_500))
    expect(service.tokens.mints).toHaveLength(1)
    // The call goes on for up to six times as long.
    const isFree = () => service.tokens.mints[0]?.request.connection.isClosed === true
    await service.origin.waitFor(isFree, 'the connection of the mint given up')
  })
})

function dripping(head: string, piece: string): MintScript {
  return ({ request: { connection } }) => {
    connection.write(head)
    const timer = setInterval(() => connection.write(piece), 20)
    connection.socket.once('close', () => clearInterval(timer))
    return undefined
  }
}

/** Fails this many times, then issues tokens. */
function issuesAfter(failures: readonly Reply[]): MintScript {
  let calls = 0
  return (mint: Mint) => failures[calls++] ?? mint.issue()
}

describe.concurrent('passing failures are retried, within the deadline:', () => {
  test.each([[[500]], [[503, 502]], [[408]], [[500, 500, 500]]])('%j, then a token', async (statuses) => {
    await using service = await startService({ mint: issuesAfter(statuses.map((status) => ({ status }))) })
    await using proxy = await startProxy(service)
    await using client = await RawClient.sending(proxy.port, get('/v2/x', 'acme'))
    expect((await client.response()).status).toBe(200)
    expect(service.tokens.mints).toHaveLength(statuses.length + 1)
    expect(service.requests).toHaveLength(1)
  })

  test('other failures are not retried', async () => {
    for (const status of [403, 429]) {
      await using service = await startService({ mint: issuesAfter([{ status }]) })
      await using proxy = await startProxy(service)
      expect((await request(proxy.port, get('/v2/x', 'acme'))).status).not.toBe(200)
      expect(service.tokens.mints).toHaveLength(1)
    }
  })

  test('a 200 without a usable token is one of them', async () => {
    await using service = await startService({ mint: issuesAfter([says('{}'), says('<html>')]) })
    await using proxy = await startProxy(service)
    expect((await request(proxy.port, get('/v2/x', 'acme'))).status).toBe(200)
    expect(service.tokens.mints).toHaveLength(3)
  })
})

test.concurrent.each([
  ['behind a byte order mark', says('\ufeff{"orgAccessToken":"tok"}')],
  ['compressed', says(gzipSync('{"orgAccessToken":"tok"}'), { fields: ['Content-Encoding', 'gzip'] })],
])('a token %s is used', async (_, reply) => {
  await using service = await startService({ mint: () => reply })
  await using proxy = await startProxy(service)
  await request(proxy.port, get('/v2/x', 'acme'))
  expect(service.requests[0]?.values('authorization')).toEqual(['Bearer tok'])
})

test.concurrent('a compressed answer that grows beyond 64 KiB is unusable', async () => {
  const bomb = gzipSync(`{"orgAccessToken":"CANARY"}${' '.repeat(1_000_000)}`)
  await using service = await startService({ mint: () => says(bomb, { fields: ['Content-Encoding', 'gzip'] }) })
  expectProblem(await answerBefore(service, { 'tokens.mintTimeout': '300ms' }), invalid)
})

test.concurrent.each<[string, Reply]>([
  ['403 with Retry-After', { status: 403, fields: ['Retry-After', '60'] }],
  ['403 with nothing remaining', { status: 403, fields: ['X-RateLimit-Remaining', '0'] }],
  ['503 with Retry-After', { status: 503, fields: ['Retry-After', '60'] }],
  ['503 with nothing remaining', { status: 503, fields: ['RateLimit-Remaining', '0'] }],
])('%s is a limit, and no refusal of the org', async (_, reply) => {
  await using service = await startService({ mint: () => reply })
  expectProblem(await answerBefore(service), 'token_endpoint_rate_limited')
  expect(service.tokens.mints).toHaveLength(1)
})

test('the content of a request is sent once, however often its mint was retried', async () => {
  await using service = await startService({ mint: issuesAfter([{ status: 500 }, { status: 500 }]) })
  await using proxy = await startProxy(service)
  await using client = await RawClient.sending(
    proxy.port,
    'POST /v2/x HTTP/1.1\r\nHost: localhost\r\nX-Org-Id: acme\r\nContent-Length: 5\r\n\r\nhello',
  )
  expect((await client.response('POST')).status).toBe(200)
  expect(service.requests.map((received) => received.content.toString())).toEqual(['hello'])
})
