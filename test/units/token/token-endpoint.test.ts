import { generateKeyPairSync } from 'node:crypto'
import { inspect } from 'node:util'
import { describe, expect, test } from 'vitest'
import { TokenError } from '../../../src/errors.ts'
import type { OrgId } from '../../../src/org-id.ts'
import { outboundProxyFor } from '../../../src/origin/outbound-proxy.ts'
import { Secret } from '../../../src/secret.ts'
import { AppCredentials } from '../../../src/token/app-credentials.ts'
import { AppKey } from '../../../src/token/app-key.ts'
import { Canaries } from '../../support/canaries.ts'
import { startConnectProxy } from '../../support/connect-proxy.ts'
import type { Reply } from '../../support/origin-connection.ts'
import { resetNow } from '../../support/reset-now.ts'
import { type Service, startService } from '../../support/service.ts'
import type { MintScript } from '../../support/token-endpoint.ts'
import { ACME, EndpointUnderTest, GLOBEX } from './endpoint-under-test.ts'

async function failureOf(mint: Promise<unknown>): Promise<TokenError> {
  const error = await mint.then(
    () => undefined,
    (reason: unknown) => reason,
  )
  if (error instanceof TokenError) return error
  throw new Error(`no TokenError, but ${inspect(error)}`)
}

function replyWith(reply: Reply): MintScript {
  return () => reply
}

describe('the call', () => {
  test('the age of the token counts from the answer', async () => {
    let answeredAt = 0
    await using service = await startService({
      mint: async (mint) => {
        await new Promise((resolve) => setTimeout(resolve, 20))
        answeredAt = performance.now()
        return mint.issue()
      },
    })
    await using client = new EndpointUnderTest(service)
    expect((await client.endpoint.mint(ACME)).mintedAt).toBeGreaterThanOrEqual(Math.floor(answeredAt))
  })
})

describe('the reply', () => {
  test.each([201, 202, 206])('%d with a token is a success', async (status) => {
    await using service = await startService({ mint: (mint) => ({ ...mint.issue(), status }) })
    await using client = new EndpointUnderTest(service)
    await client.endpoint.mint(ACME, { reason: 'refresh' })
    expect(client.mints).toMatchObject([{ org: 'acme', reason: 'refresh', error: undefined }])
  })

  test.each([301, 302, 307, 308])('%d: the App key goes nowhere else', async (status) => {
    await using elsewhere = await startService()
    await using service = await startService({
      mint: replyWith({ status, fields: ['Location', `${elsewhere.baseUrl}/v2/orgs/acme/access?secret=1`] }),
    })
    await using client = new EndpointUnderTest(service)
    const { code, hint } = await failureOf(client.endpoint.mint(ACME))
    const says = `a redirect to ${new URL(elsewhere.baseUrl).host}, which is not followed.`
    expect([code, hint]).toEqual([
      'token_response_invalid',
      `The token endpoint answered ${status} to ${urlOf(service)}: ${says}`,
    ])
    expect(elsewhere.origin.connections).toEqual([])
  })
})

function urlOf({ baseUrl }: Service): string {
  return `POST ${baseUrl}/v2/orgs/{orgId}/access`
}

describe('an address that may be wrong', () => {
  test.each([400, 404, 405, 411, 415])(
    '%d is about the address until a call succeeds, then about the Org',
    async (status) => {
      await using service = await startService({ mint: () => ({ status }) })
      await using client = new EndpointUnderTest(service)
      const before = await failureOf(client.endpoint.mint(ACME))
      expect([before.code, before.hint, before.tokenEndpointStatus]).toEqual([
        'token_response_invalid',
        expect.stringContaining(` to ${urlOf(service)}: it `),
        status,
      ])
      expect(client.credentials.wereAccepted).toBe(false)
      service.tokens.script = (mint) => mint.issue()
      await client.endpoint.mint(GLOBEX)
      service.tokens.script = () => ({ status })
      const { code, hint } = await failureOf(client.endpoint.mint(ACME))
      expect([code, hint]).toEqual(['org_access_refused', `The token endpoint answered ${status}.`])
    },
  )

  test('401 names the address too, until a call succeeds', async () => {
    await using service = await startService({ mint: () => ({ status: 401 }) })
    await using client = new EndpointUnderTest(service)
    const says = `The token endpoint answered 401 to ${urlOf(service)}: it rejects the App credentials`
    const address = 'or this is not its address: check baseUrl and tokens.endpoint'
    const code = 'app_credentials_rejected'
    expect(await failureOf(client.endpoint.mint(ACME))).toMatchObject({ code, hint: `${says}, ${address}.` })
    service.tokens.script = (mint) => mint.issue()
    const replaces = await client.endpoint.mint(GLOBEX)
    service.tokens.script = () => ({ status: 401 })
    expect(await failureOf(client.endpoint.mint(GLOBEX, { replaces }))).toMatchObject({ code, hint: `${says}.` })
  })

  test('that every Org is refused is told only if every Org was', async () => {
    await using service = await startService({ mint: () => ({ status: 403 }) })
    await using client = new EndpointUnderTest(service)
    const hints = async (...orgs: OrgId[]) => {
      const said: string[] = []
      for (const org of orgs) said.push((await failureOf(client.endpoint.mint(org))).hint ?? '')
      return said.map((hint) => hint.includes('as to every Org so far'))
    }
    expect(await hints(ACME, ACME, GLOBEX)).toEqual([false, false, true])
    service.tokens.script = (mint) => mint.issue()
    await client.endpoint.mint(ACME)
    service.tokens.script = () => ({ status: 403 })
    expect(await hints(ACME, GLOBEX)).toEqual([false, false])
  })
})

describe('401, though the App was accepted before', () => {
  test.each([
    { status: 401 },
    { status: 400, content: '{"error":"invalid_client"}' },
    { status: 400, content: `{"error":"invalid_client","more":"${'x'.repeat(70_000)}` },
  ])('%j: an Org without a token may not be linked', async (reply) => {
    await using service = await startService()
    await using client = new EndpointUnderTest(service)
    const replaces = await client.endpoint.mint(GLOBEX)
    service.tokens.script = replyWith(reply)
    const ofNew = await failureOf(client.endpoint.mint(ACME))
    const isReadable = reply.content === undefined || reply.content.length < 65_536
    const trouble = isReadable ? 'credentials' : 'refusal'
    expect(ofNew).toMatchObject({ code: 'org_access_refused', trouble, tokenEndpointStatus: reply.status })
    if (!isReadable) return
    expect(ofNew.hint).toContain('the Org is not linked, or the App secret is no longer accepted')
    const ofKnown = await failureOf(client.endpoint.mint(GLOBEX, { replaces }))
    expect(ofKnown).toMatchObject({ code: 'app_credentials_rejected', trouble: 'credentials' })
    expect(client.mints.map(({ error }) => error?.code)).toEqual([undefined, ofNew.code, ofKnown.code])
  })
})

test('after a 401 to half a secret, and to the whole one that the service does not know yet, the one before is tried', async () => {
  await using service = await startService()
  await using client = new EndpointUnderTest(service, {
    rereadSecret: async () => {
      client.credentials.offer(new AppKey('app', new Secret('the whole new secret')))
    },
  })
  await client.endpoint.mint(ACME)
  client.credentials.offer(new AppKey('app', new Secret('the wh')))
  await client.endpoint.mint(ACME)
  const rejected = 'app_credentials_rejected'
  expect(client.mints.map(({ error }) => error?.code)).toEqual([undefined, rejected, rejected, undefined])
  // The service rejects both: each is tried once.
  service.tokens.script = () => ({ status: 401 })
  await failureOf(client.endpoint.mint(ACME))
  expect(client.mints).toHaveLength(6)
})

describe('no connection', () => {
  test('a proxy on the way that refuses is named, with its status', async () => {
    await using service = await startService()
    await using proxy = await startConnectProxy()
    proxy.behaviour = 'refuse with 407'
    const proxies = { httpProxy: new Secret(proxy.url()), httpsProxy: undefined, noProxy: undefined }
    const tunnel = await outboundProxyFor(new URL(service.baseUrl), proxies, 5_000)
    await using client = new EndpointUnderTest(service, { outboundProxy: tunnel })
    const error = await failureOf(client.endpoint.mint(ACME))
    expect(error.code).toBe('token_endpoint_unavailable')
    expect(error.hint).toMatch(/proxy on the way, 127\.0\.0\.1:\d+, answered 407/)
  })

  test('a broken answer is named as the cause', async () => {
    const cut = 'The call of the token endpoint failed (the answer was cut off).'
    const scripts: [MintScript, unknown][] = [
      [cutWith('HTTP/1.1 200 OK\r\nContent-Length: 60\r\n\r\n{"orgAccessToken"'), cut],
      [cutWith('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\n{"org'), cut],
      [sayOnly('SSH-2.0-OpenSSH_9.2\r\n'), expect.stringMatching(/^The call of the token endpoint failed \(.+\)\.$/)],
    ]
    for (const [script, hint] of scripts) {
      await using service = await startService({ mint: script })
      await using client = new EndpointUnderTest(service)
      expect(await failureOf(client.endpoint.mint(ACME))).toMatchObject({ code: 'token_response_invalid', hint })
    }
  })
})

function sayOnly(text: string): MintScript {
  return ({ request }) => {
    request.connection.write(text)
    return undefined
  }
}

/** Writes this much, and resets the connection. */
function cutWith(text: string): MintScript {
  return ({ request }) => {
    const { socket } = request.connection
    socket.write(text, () => resetNow(socket))
    return undefined
  }
}

describe('the deadline applies to the whole call', () => {
  test('it is the same for both secrets, and a call at its end closes its connection', async () => {
    const timeoutMs = 2_000
    const answers: (() => void)[] = []
    await using service = await startService()
    await using client = new EndpointUnderTest(service, { timeoutMs })
    await client.endpoint.mint(ACME)
    client.credentials.offer(new AppKey('app', new Secret('another')))
    service.origin.script = () => {
      // The first call takes more than half of the time, and the second never ends.
      if (answers.push(() => undefined) > 1) return undefined
      return new Promise((resolve) => setTimeout(resolve, timeoutMs * 0.6, { status: 401 }))
    }
    const startedAt = performance.now()
    expect(await failureOf(client.endpoint.mint(ACME))).toMatchObject({ code: 'token_endpoint_timeout' })
    expect(performance.now() - startedAt).toBeLessThan(timeoutMs * 1.5)
    expect(answers).toHaveLength(2)
    await service.origin.waitFor((origin) => origin.openConnections.length === 0, 'the call broken off')
  })

  test('an error whose content is cut is that error', async () => {
    const text = 'HTTP/1.1 403 Forbidden\r\nContent-Length: 90\r\n\r\n{"error":'
    await using service = await startService({ mint: cutWith(text) })
    await using client = new EndpointUnderTest(service)
    expect(await failureOf(client.endpoint.mint(ACME))).toMatchObject({ code: 'org_access_refused' })
  })
})

test('content without end is broken off at its limit', async () => {
  let sentBytes = 0
  await using service = await startService({
    mint: ({ request }) => {
      const { socket } = request.connection
      socket.write('HTTP/1.1 200 OK\r\nContent-Length: 104857600\r\n\r\n')
      const chunk = Buffer.alloc(16 * 1024, ' ')
      const pump = () => {
        while (!socket.destroyed && socket.write(chunk)) sentBytes += chunk.length
      }
      socket.on('drain', pump)
      pump()
      return undefined
    },
  })
  await using client = new EndpointUnderTest(service)
  expect(await failureOf(client.endpoint.mint(ACME))).toMatchObject({ code: 'token_response_invalid' })
  await service.origin.waitFor((origin) => origin.openConnections.length === 0, 'the call broken off')
  expect(sentBytes).toBeLessThan(16 * 1024 * 1024)
})

test('a refusal of the org proves the App credentials', async () => {
  await using service = await startService()
  await using client = new EndpointUnderTest(service)
  service.tokens.script = () => ({ status: 403 })
  await failureOf(client.endpoint.mint(ACME))
  expect(client.credentials).toMatchObject({ wereAccepted: true, key: { isRejected: false } })
})

describe('what the endpoint says about a refusal', () => {
  const noteOf = async (reply: Reply, options?: ConstructorParameters<typeof EndpointUnderTest>[1]) => {
    await using service = await startService({ mint: replyWith(reply) })
    await using client = new EndpointUnderTest(service, options)
    const { note, hint } = await failureOf(client.endpoint.mint(ACME))
    return { note, hint }
  }
  const json = (value: unknown): Reply => ({ status: 403, content: JSON.stringify(value) })

  test('is for operators: never in the hint, which the client gets', async () => {
    const { note, hint } = await noteOf(json({ error: 'access_denied', error_description: 'not\r\n a member' }))
    expect(note).toBe('It says: access_denied: not a member.')
    expect(hint).not.toContain('member')
    expect((await noteOf(json({ message: 'Integration must not be suspended' }))).note).toContain('suspended')
    expect((await noteOf(json({ error: { message: 'quota' } }))).note).toContain('quota')
  })

  test.each<[string, Reply]>([
    ['No such Org.', { content: '{"title":"Not found","detail":"No such Org."}' }],
    ['bad_auth: suspended.', { content: '{"reason":"bad_auth","errors":[{"message":"suspended"},7]}' }],
    ['one: two.', { content: '{"errors":["one","two"]}' }],
    ['Unknown tenant.', { content: 'Unknown tenant\n', fields: ['Content-Type', 'text/plain; charset=utf-8'] }],
  ])('%s', async (words, reply) => {
    expect((await noteOf({ status: 403, ...reply })).note).toBe(`It says: ${words}`)
  })

  test('a success without a token has its reason in the hint, and the words of the endpoint in the note', async () => {
    const { hint, note } = await noteOf({ content: '{"ok":false,"error":"invalid_auth"}' })
    expect(hint).toMatch(
      /^The token endpoint answered 200 without a usable orgAccessToken to .+: its content tells an error\.$/,
    )
    expect(note).toBe('It says: invalid_auth.')
    expect(await noteOf({ content: 'secret', fields: ['Content-Type', 'text/plain'] })).toMatchObject({
      note: undefined,
    })
  })

  test('has at most 200 characters, and no long words that may be a token', async () => {
    expect((await noteOf(json({ message: 'é'.repeat(500) }))).note).toBe(`It says: ${'é'.repeat(200)}.`)
    const uuid = '6f3c7f5e-7a2b-4a7e-9a51-0e9d2b7d8c11'
    expect((await noteOf(json({ message: `trace ${uuid} ${'a'.repeat(30)}` }))).note).toBe(
      `It says: trace … ${'a'.repeat(30)}.`,
    )
  })

  test.each([[{}], [[]], ['text'], [null], [{ message: 7 }], [{ error: {} }]])('%j says nothing', async (value) => {
    expect((await noteOf(json(value))).note).toBeUndefined()
  })

  const privateKey = () => String(generateKeyPairSync('ed25519').privateKey.export({ format: 'pem', type: 'pkcs8' }))
  test.each([
    [95, 'behind that'],
    [-3_600, 'ahead of that'],
    [20, undefined],
  ])('a clock %d s ahead is told with a 401 to a JWT', async (aheadSeconds, told) => {
    await using service = await startService()
    service.origin.script = () => {
      const date = new Date(Date.now() + aheadSeconds * 1_000)
      return { status: 401, fields: ['Date', date.toUTCString()] }
    }
    const credentials = new AppCredentials(new AppKey('app', new Secret(privateKey()), { auth: 'jwt' }))
    await using client = new EndpointUnderTest(service, { credentials })
    const { note = '' } = await failureOf(client.endpoint.mint(ACME))
    const [, seconds, side] = /^The clock of this machine is (\d+) s (.+) of the endpoint\.$/.exec(note) ?? []
    expect(side).toBe(told)
    // The field has whole seconds.
    if (told !== undefined) expect(Math.abs(Number(seconds) - Math.abs(aheadSeconds))).toBeLessThanOrEqual(1)
  })

  test('a secret that servers change when they decode Basic as a form', async () => {
    const noteWith = async (secret: string) => {
      const credentials = new AppCredentials(new AppKey('app', new Secret(secret)))
      return (await noteOf({ status: 401 }, { credentials })).note
    }
    for (const secret of ['a+b', 'a%b', 'a:b']) expect(await noteWith(secret)).toContain('tokens.auth: form')
    expect(await noteWith('ab')).toBeUndefined()
  })
})

/** The spellings in which a server gives a secret back. */
function echoesOf(secret: string): string[] {
  const bytes = Buffer.from(secret)
  return [
    secret,
    secret.toUpperCase(),
    encodeURIComponent(secret),
    new URLSearchParams({ x: secret }).toString(),
    bytes.toString('hex'),
    ...['', 'x', 'xy'].map((before) => Buffer.from(before + secret).toString('base64')),
    bytes.toString('base64url'),
    JSON.stringify({ client_secret: secret }).replaceAll('/', '\\/'),
    JSON.stringify(JSON.stringify(secret)),
    [...secret].map((character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`).join(''),
    encodeURIComponent(encodeURIComponent(secret)),
    [...secret].map((character) => `&#${character.codePointAt(0)};`).join(''),
    encodeURIComponent(bytes.toString('base64')),
    secret.slice(0, -3),
  ].map((text) => `bad credentials: ${text}`)
}

test('no failure contains the secret, the App key or the reply of the endpoint', async () => {
  const replies = (service: Service): Reply[] => [
    { status: 401, reason: service.tokens.appSecret.replace(/[^\x20-\x7e]/g, ''), content: service.tokens.appSecret },
    { status: 500, content: `Basic ${service.tokens.apiKey}` },
    { content: `{"orgAccessToken":"${service.tokens.marker} with a space"}` },
    { status: 302, fields: ['Location', `http://x/?${service.tokens.marker}`] },
    { status: 302, fields: ['Location', `http://${Buffer.from(service.tokens.appSecret).toString('hex')}.example`] },
    ...echoesOf(service.tokens.appSecret).map((message) => ({ status: 403, content: JSON.stringify({ message }) })),
    { status: 400, content: JSON.stringify({ error: { message: service.tokens.apiKey } }) },
  ]
  await using service = await startService()
  await using client = new EndpointUnderTest(service)
  const canaries = new Canaries().add('secret', service.tokens.appSecret).add('token', service.tokens.marker)
  for (const reply of replies(service)) {
    service.tokens.script = replyWith(reply)
    const error = await failureOf(client.endpoint.mint(ACME))
    expect(canaries.search(inspect(error, { depth: 9, showHidden: true }))).toEqual([])
    expect(canaries.search(JSON.stringify(error))).toEqual([])
    expect(error.note ?? '').not.toContain('bad credentials')
  }
})
