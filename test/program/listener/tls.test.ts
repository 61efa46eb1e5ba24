/** TLS on the listener: its certificate and its rotation, the certificates of clients, and attacks on both. */

import { execFile } from 'node:child_process'
import { once } from 'node:events'
import { rename, writeFile } from 'node:fs/promises'
import { Agent, request as httpsRequest } from 'node:https'
import { connect as connectTcp } from 'node:net'
import { Duplex } from 'node:stream'
import { setTimeout as sleep } from 'node:timers/promises'
import { type ConnectionOptions, connect, type TLSSocket } from 'node:tls'
import { promisify } from 'node:util'
import { beforeEach, describe, expect, test } from 'vitest'
import { get } from '../../support/case-table.ts'
import { CertificateAuthority, type Issued, type IssueOptions } from '../../support/certificate-authority.ts'
import { Gate } from '../../support/changes.ts'
import { folderForFile } from '../../support/folder.ts'
import { RawClient } from '../../support/raw-client.ts'
import { Relay } from '../../support/relay.ts'
import { type Service, startService } from '../../support/service.ts'
import { type ProxySettings, type ProxyUnderTest, startProxy } from '../../support/start-proxy.ts'

const HOUR_MS = 3_600_000
const DAY_MS = 24 * HOUR_MS
const { path } = await folderForFile()
const servers = new CertificateAuthority(path, 'servers')
const clients = new CertificateAuthority(path, 'clients')
const strangers = new CertificateAuthority(path, 'strangers')
const intermediate = new CertificateAuthority(path, 'intermediate', clients)
const own = servers.issue({ names: 'DNS:localhost,IP:127.0.0.1' })
const endingCa = new CertificateAuthority(path, 'ending', servers, 60_000)
const ownUnderEnding = endingCa.issue({ names: 'DNS:localhost,IP:127.0.0.1' })
const ending = clients.issue({ names: 'DNS:proxy', lifeMs: 60_000 })

const BATCH = 'spiffe://example.org/ns/jobs/sa/batch'
const KEY = 'reports-key-0123456789'
const PLAIN_CALLERS = [
  'listen: {tls: {certFile: cert.pem, keyFile: key.pem}}',
  'callers: [{name: reports, keyFiles: [reports.key], orgs: [acme]}]',
].join('\n')
const FILES = {
  'cert.pem': own.cert,
  'key.pem': own.key,
  'clients.pem': clients.cert,
  'reports.key': KEY,
  'proxy.yaml': [
    'listen: {tls: {certFile: cert.pem, keyFile: key.pem, clientCaFile: clients.pem}}',
    'callers:',
    `  - {name: batch, certificate: "${BATCH}", orgs: [acme]}`,
    '  - {name: web, certificate: "dns:web.jobs.svc", orgs: [acme]}',
    '  - {name: reports, keyFiles: [reports.key], orgs: [acme]}',
    '',
  ].join('\n'),
}

let service: Service
let proxy: ProxyUnderTest
/** Of this test: some start a second one. */
const started: ProxyUnderTest[] = []
async function start(settings: ProxySettings = {}, files: Readonly<Record<string, string>> = FILES): Promise<void> {
  proxy = await startProxy(service, settings, files)
  started.push(proxy)
}
beforeEach(async () => {
  service = await startService({ script: ({ target }) => ({ content: target }) })
  return async () => {
    for (const each of started.splice(0)) await each[Symbol.asyncDispose]()
    await service[Symbol.asyncDispose]()
  }
})

interface Answer {
  readonly status: number | undefined
  readonly connection: string | undefined
  readonly code: string | undefined
}

/** One request; on the agent's connection if there is one. */
function send(options: ConnectionOptions & { agent?: Agent; key?: string } = {}, fields: Record<string, string> = {}) {
  return new Promise<Answer>((resolve, reject) => {
    const { agent = false, ...tls } = options
    const headers = { 'X-Org-Id': 'acme', ...fields }
    httpsRequest({ host: '127.0.0.1', port: proxy.port, path: '/v2/x', ca: servers.cert, agent, headers, ...tls })
      .on('response', (response) => {
        let text = ''
        response.on('data', (bytes) => {
          text += bytes
        })
        response.on('end', () => {
          const isProblem = response.headers['content-type'] === 'application/problem+json'
          const code = isProblem ? JSON.parse(text).code : undefined
          resolve({ status: response.statusCode, connection: response.headers.connection, code })
        })
      })
      .on('error', reject)
      .end()
  })
}

/** Issues one with these alternative names. */
const named =
  (names: string, authority = clients, lifeMs?: number) =>
  () =>
    authority.issue(lifeMs === undefined ? { names } : { names, lifeMs })
const certified = (options: IssueOptions, authority = clients) => authority.issue(options)
const fieldsOf = ({ cert, key }: Issued) => ({ cert, key })

/** The alternative name in DER, because openssl splits its text at commas. */
function oneUri(uri: string): string {
  const bytes = Buffer.from(uri, 'latin1')
  return `DER:${Buffer.from([0x30, bytes.length + 2, 0x86, bytes.length, ...bytes]).toString('hex')}`
}

/** Two URIs, and between them an X.400 address, whose text Node gives as `<unsupported>`. */
function twoUrisAroundX400(uri: string): string {
  const entry = (text: string) => [0x86, text.length, ...Buffer.from(text, 'latin1')]
  const entries = [...entry(uri), 0xa3, 2, 0x30, 0, ...entry('spiffe://x/y')]
  return `DER:${Buffer.from([0x30, entries.length, ...entries]).toString('hex')}`
}

describe('a client certificate', () => {
  beforeEach(() => start())

  test.each<[string, () => Issued, number, string]>([
    ['with the URI of a caller', named(`URI:${BATCH}`), 200, 'batch'],
    ['with a DNS name of a caller', named('DNS:WEB.jobs.svc'), 200, 'web'],
    ['of an intermediate, which the client sends', named(`URI:${BATCH}`, intermediate), 200, 'batch'],
    ['of another CA', named(`URI:${BATCH}`, strangers), 403, 'certificate not verified'],
    ['that has ended', named(`URI:${BATCH}`, clients, -1_000), 403, 'certificate not verified'],
    ['with another spelling of the URI', named(`URI:${BATCH.replace('batch', 'Batch')}`), 403, 'unknown'],
    ['with a longer URI', named(`URI:${BATCH}/x`), 403, 'unknown'],
    ['with several URIs', named(`URI:${BATCH},URI:spiffe://example.org/other`), 403, 'certificate with several URIs'],
    ['with a URI that holds another', named(oneUri(`spiffe://a, URI:${BATCH}`)), 403, 'unknown'],
    ['with a quote in its URI', named(oneUri(`x", URI:${BATCH}`)), 403, 'certificate without a URI or a DNS name'],
    ['with a wildcard', named('DNS:*.jobs.svc'), 403, 'certificate for a wildcard'],
    ['with a common name alone', named(''), 403, 'certificate without alternative names'],
    ['with an address alone', named('IP:127.0.0.1'), 403, 'certificate without a URI or a DNS name'],
    // Between two URIs, this part once ended the reading, and the first URI passed for the only one.
    [
      'with a part that Node cannot read',
      named(twoUrisAroundX400(BATCH)),
      403,
      'certificate with an unknown kind of name',
    ],
    ['of two callers', named(`URI:${BATCH},DNS:web.jobs.svc`), 403, 'certificate of several'],
  ])('%s', async (_, issue, status, said) => {
    expect((await send(fieldsOf(issue()))).status).toBe(status)
    const { caller, reason } = await proxy.logOf('/v2/x')
    if (status === 200) expect(caller).toBe(said)
    else expect(reason).toContain(said)
    if (status === 403) expect(service.requests).toEqual([])
  })

  test('a caller of another kind comes with a foreign certificate, or none', async () => {
    const foreign = certified({ names: `URI:${BATCH}` }, strangers)
    expect((await send({}, { 'X-Proxy-Key': KEY })).status).toBe(200)
    expect((await send(fieldsOf(foreign), { 'X-Proxy-Key': KEY })).status).toBe(200)
    expect((await send()).code).toBe('caller_refused')
  })

  test('of a CA that comes later is refused until then, and its connection ends', async () => {
    const agent = new Agent({ keepAlive: true, maxSockets: 1 })
    const options = { ...fieldsOf(certified({ names: `URI:${BATCH}` }, strangers)), agent }
    expect(await send(options)).toMatchObject({ status: 403, connection: 'close' })
    await writeFile(proxy.at('clients.pem'), clients.cert + strangers.cert)
    await proxy.app.reload()
    expect(await send(options)).toMatchObject({ status: 200, connection: 'keep-alive' })
    agent.destroy()
  })

  test('stays in use on its connection when another CA is added', async () => {
    const agent = new Agent({ keepAlive: true, maxSockets: 1 })
    const options = { ...fieldsOf(certified({ names: `URI:${BATCH}` })), agent }
    expect((await send(options)).status).toBe(200)
    const [[socket] = []] = Object.values(agent.freeSockets)
    await writeFile(proxy.at('clients.pem'), strangers.cert + clients.cert)
    await proxy.app.reload()
    expect((await send(options)).status).toBe(200)
    expect(Object.values(agent.freeSockets)[0]).toEqual([socket])
    agent.destroy()
  })

  test('that ends while its connection lives ends the connection', async () => {
    const agent = new Agent({ keepAlive: true, maxSockets: 1 })
    const issued = certified({ names: `URI:${BATCH}`, lifeMs: 3_000 })
    const options = { ...fieldsOf(issued), agent }
    expect(await send(options)).toMatchObject({ status: 200, connection: 'keep-alive' })
    await new Promise((resolve) => setTimeout(resolve, 3_500))
    const outcome = await send(options).catch(() => undefined)
    expect(outcome?.status).not.toBe(200)
    agent.destroy()
  })
})

/** The sessions that a client was given, and the socket that it has. */
async function session(issued: Issued, version: 'TLSv1.2' | 'TLSv1.3', resumed?: Buffer) {
  const options = { host: '127.0.0.1', port: proxy.port, ca: servers.cert, servername: 'localhost' }
  const range = { minVersion: version, maxVersion: version } as const
  const socket = connect({ ...options, ...range, ...fieldsOf(issued), ...(resumed && { session: resumed }) })
  const given = new Promise<Buffer>((resolve) => socket.once('session', resolve))
  await new Promise((resolve, reject) => socket.once('secureConnect', resolve).once('error', reject))
  return { socket, given }
}

/** What its client may offer in its next handshake. Closes the connection. */
async function sessionOf({ socket, given }: Awaited<ReturnType<typeof session>>): Promise<Buffer> {
  expect(await statusOn(socket, { 'X-Proxy-Key': KEY })).toBeLessThan(500)
  const ticket = await Promise.race([given, sleep(300, undefined)]) // TLS 1.2 may give none
  const found = ticket ?? socket.getSession()
  socket.destroy()
  return found ?? Buffer.alloc(0)
}

async function statusOn(socket: TLSSocket, fields: Record<string, string> = {}): Promise<number> {
  socket.write(get('/v2/x', 'acme', ...Object.entries(fields).map(([name, value]) => `${name}: ${value}`)))
  const bytes = await new Promise<Buffer>((resolve) => socket.once('data', resolve))
  return Number(bytes.toString().slice(9, 12))
}

describe.each(['TLSv1.2', 'TLSv1.3'] as const)('a client that offers its last session again (%s)', (version) => {
  // A session brings the certificate of its first handshake: it is no sign of what the client has now.
  test('is asked for its certificate again, so that a renewed one counts at once', async () => {
    await start()
    const issued = certified({ names: `URI:${BATCH}` })
    const first = await session(issued, version)
    const ticket = await sessionOf(first)
    const second = await session(certified({ names: 'DNS:web.jobs.svc' }), version, ticket)
    expect([second.socket.isSessionReused(), await statusOn(second.socket)]).toEqual([false, 200])
    await proxy.until(() => proxy.logs.some(({ caller }) => caller === 'web'), 'the caller of the renewed certificate')

    // Revocation: the CA goes.
    const closed = new Promise((resolve) => second.socket.once('close', resolve).resume())
    await writeFile(proxy.at('clients.pem'), strangers.cert)
    await proxy.app.reload()
    await closed
    const third = await session(issued, version, ticket)
    expect([third.socket.isSessionReused(), await statusOn(third.socket)]).toEqual([false, 403])
    third.socket.destroy()
  })

  test('is resumed where no certificates are asked for', async () => {
    await start({}, { ...FILES, 'proxy.yaml': PLAIN_CALLERS })
    const first = await session(own, version)
    const ticket = await sessionOf(first)
    const second = await session(own, version, ticket)
    expect([second.socket.isSessionReused(), await statusOn(second.socket, { 'X-Proxy-Key': KEY })]).toEqual([
      true,
      200,
    ])
    second.socket.destroy()
  })
})

// A client may not begin a second handshake, which costs the proxy more than the client.
test('a renegotiation is refused', async () => {
  await start()
  const { socket } = await session(certified({ names: `URI:${BATCH}` }), 'TLSv1.2')
  const failed = new Promise((resolve) => socket.once('error', resolve))
  const renegotiated = new Promise((resolve) => socket.renegotiate({}, resolve))
  expect(await Promise.race([failed, renegotiated])).toMatchObject({ code: 'ERR_SSL_NO_RENEGOTIATION' })
  socket.destroy()
  expect((await send({}, { 'X-Proxy-Key': KEY })).status).toBe(200)
})

describe('a handshake that goes on', () => {
  const paused = async (options: ConnectionOptions) => {
    const carrier = connectTcp(proxy.port, '127.0.0.1')
    await once(carrier, 'connect')
    const gate = new Gate()
    const held = new Duplex({
      read: () => undefined,
      write: (bytes, _, done) => void carrier.write(bytes, done),
    })
    let isHeld = true
    carrier.on('data', (bytes) => void (isHeld ? gate.pass().then(() => held.push(bytes)) : held.push(bytes)))
    carrier.on('close', () => held.destroy())
    const socket = connect({ socket: held, ca: servers.cert, servername: 'localhost', ...options })
    socket.on('error', () => {})
    await gate.untilWaiting(1)
    const goOn = () => {
      isHeld = false
      gate.open()
    }
    return { socket, carrier, goOn }
  }

  test.each([
    ['none', () => ({}), 200],
    ['one of a CA that is gone', () => fieldsOf(certified({ names: `URI:${BATCH}` })), undefined],
  ])('while a reload takes a CA away: a client with %s', async (_, options, status) => {
    await start()
    const { socket, carrier, goOn } = await paused(options())
    await writeFile(proxy.at('clients.pem'), strangers.cert)
    await proxy.app.reload()
    const closed = once(carrier, 'close').then(() => undefined)
    goOn()
    expect(await Promise.race([statusOn(socket, { 'X-Proxy-Key': KEY }), closed])).toBe(status)
    socket.destroy()
    carrier.destroy()
  })

  test('while the proxy stops: its request is answered', async () => {
    await start()
    const { socket, carrier, goOn } = await paused({})
    const closed = once(carrier, 'close').then(() => 'closed')
    const drained = proxy.app.drain()
    await expect(RawClient.plain(proxy.port)).rejects.toThrow()
    goOn()
    expect(await Promise.race([statusOn(socket, { 'X-Proxy-Key': KEY }), closed])).toBe(200)
    expect(await drained).toBe(0)
  })
})

describe('the port', () => {
  const settings = { 'listen.headersTimeout': '300ms', 'listen.maxConnections': '20' }
  beforeEach(() => start(settings))
  const reports = { 'X-Proxy-Key': KEY }
  const raw = (options: ConnectionOptions) =>
    new Promise<TLSSocket>((resolve, reject) => {
      const socket = connect({ host: '127.0.0.1', port: proxy.port, ca: servers.cert, ...options })
      socket.once('secureConnect', () => resolve(socket)).once('error', reject)
    })

  test('speaks nothing but TLS, counts each handshake that failed, and logs the first for each reason', async () => {
    await start({ ...settings, 'admin.address': 'localhost:0' })
    for (let i = 0; i < 2; i++) {
      await using client = await RawClient.plain(proxy.port)
      client.send(get('/v2/x', 'acme'))
      expect((await client.untilClosed()).bytes.toString()).not.toContain('HTTP/1.1 2')
    }
    const old = { maxVersion: 'TLSv1.1', minVersion: 'TLSv1', ciphers: 'ALL:@SECLEVEL=0' } as const
    await expect(raw(old)).rejects.toThrow()
    // Node's own client closes the connection without a word if it does not trust the certificate.
    const distrusting = [
      's_client',
      '-connect',
      `127.0.0.1:${proxy.port}`,
      '-verify_return_error',
      '-no-CAfile',
      '-no-CApath',
    ]
    await expect(promisify(execFile)('openssl', distrusting)).rejects.toThrow()
    await using half = await RawClient.plain(proxy.port)
    half.send(Buffer.from('1603010200', 'hex'))
    await half.untilClosed()
    await RawClient.plain(proxy.port).then((silent) => silent[Symbol.asyncDispose]()) // a check whether the port is open
    expect((await send({}, reports)).status).toBe(200)
    const failed = () => proxy.logs.filter(({ msg }) => msg === 'TLS handshake of a client failed')
    await proxy.until(() => failed().length > 3, 'a line for each reason')
    const expected = ['plain_http', 'no_shared_protocol', 'certificate_not_trusted', 'too_slow']
    expect(failed().map(({ reason }) => reason)).toEqual(expected)
    const counts = ['plain_http', ...expected.slice(1), 'client_left'].map((reason) =>
      proxy.metric(`oap_tls_handshakes_failed_total{reason="${reason}"}`),
    )
    expect(await Promise.all(counts)).toEqual([2, 1, 1, 1, 0])
  })

  test('takes 60 clients at once from afar, where 100 connections are allowed', async () => {
    await start({ 'listen.maxConnections': '100' })
    await using path = await Relay.to(proxy.port)
    path.latencyMs = 60
    const answers = await Promise.all(Array.from({ length: 60 }, () => send({ port: path.port }, reports)))
    expect(answers.map(({ status }) => status)).toEqual(Array(60).fill(200))
  })

  test('speaks HTTP/1.1, never h2', async () => {
    await expect(raw({ ALPNProtocols: ['h2'] })).rejects.toThrow(/no.application.protocol|alert/i)
    const socket = await raw({ ALPNProtocols: ['h2', 'http/1.1'] })
    expect(socket.alpnProtocol).toBe('http/1.1')
    socket.destroy()
  })

  test('ends a handshake that takes longer than headersTimeout', async () => {
    await using half = await RawClient.plain(proxy.port)
    half.send(Buffer.from('1603010200', 'hex'))
    expect((await half.untilClosed()).bytes.length).toBeLessThan(100)
  })

  test('a flood of half handshakes takes no place of an open connection, and lets a new one in', async () => {
    const agent = new Agent({ keepAlive: true, maxSockets: 1 })
    expect((await send({ agent }, reports)).status).toBe(200)
    const flood = await Promise.all(Array.from({ length: 100 }, () => RawClient.plain(proxy.port)))
    for (const half of flood) if (half.end === undefined) half.send(Buffer.from('1603010200', 'hex'))
    expect((await send({}, reports)).status).toBe(200)
    expect(await send({ agent }, reports)).toMatchObject({ status: 200, connection: 'keep-alive' })
    for (const half of flood) await half[Symbol.asyncDispose]()
    agent.destroy()
  })
})

describe('a rotated certificate', () => {
  const swap = async (name: string, content: string) => {
    await writeFile(proxy.at(`${name}.new`), content)
    await rename(proxy.at(`${name}.new`), proxy.at(name))
  }
  const presented = async () => {
    const socket = connect({ host: '127.0.0.1', port: proxy.port, ca: servers.cert })
    await new Promise((resolve, reject) => socket.once('secureConnect', resolve).once('error', reject))
    const { serialNumber } = socket.getPeerX509Certificate() ?? {}
    socket.destroy()
    return serialNumber
  }

  const warns = async () => (await proxy.metric('oap_warnings{code="tls_certificate"}')) === 1

  test('has a warning while it ends soon, and while the next one does not fit', async () => {
    const soon = servers.issue({ names: 'DNS:localhost,IP:127.0.0.1', lifeMs: 60_000 })
    const ending = { ...FILES, 'cert.pem': soon.cert, 'key.pem': soon.key }
    await start({ 'admin.address': 'localhost:0' }, ending)
    expect(await warns()).toBe(true)
    await swap('key.pem', own.key)
    await swap('cert.pem', own.cert)
    await proxy.app.reload()
    expect(await warns()).toBe(false)
    const before = await presented()
    await swap('key.pem', soon.key)
    await proxy.app.reload()
    expect([await warns(), await presented()]).toEqual([true, before])
    await swap('key.pem', own.key)
    await proxy.app.reload()
    expect(await warns()).toBe(false)
  })

  test.each([
    ['of ninety days, in its last week', 6.9 * DAY_MS, 83.1 * DAY_MS, true],
    ['of ninety days, before that', 7.1 * DAY_MS, 82.9 * DAY_MS, false],
    ['of six days, in its last sixth', 0.9 * DAY_MS, 5.1 * DAY_MS, true],
    ['of six days, before that', 1.1 * DAY_MS, 4.9 * DAY_MS, false],
    ['of a day, in its last sixth', 3.9 * HOUR_MS, 20.1 * HOUR_MS, true],
    ['of a day, before that', 4.1 * HOUR_MS, 19.9 * HOUR_MS, false],
  ])('a certificate %s', async (_, lifeMs, ageMs, isTold) => {
    const { cert, key } = servers.issue({ names: 'DNS:localhost,IP:127.0.0.1', lifeMs, ageMs })
    await start({ 'admin.address': 'localhost:0' }, { ...FILES, 'cert.pem': cert, 'key.pem': key })
    expect(await warns()).toBe(isTold)
  })

  const told = async () => {
    const { warnings } = JSON.parse((await proxy.askAdmin('/status')).content)
    return warnings.find(({ code }: { code: string }) => code === 'tls_certificate')?.text
  }
  const ONLY_UNIX = { 'admin.address': 'unix:$FOLDER/admin.sock' }

  test.each<[string, string, ProxySettings, Readonly<Record<string, string>>]>([
    ['a client CA', 'listen.tls.clientCaFile', {}, { 'clients.pem': `${clients.cert}${endingCa.cert}` }],
    ['an intermediate', 'listen.tls.certFile', {}, { 'cert.pem': ownUnderEnding.cert, 'key.pem': ownUnderEnding.key }],
    [
      'the client certificate for the service',
      'origin.certFile',
      { 'origin.certFile': '$FOLDER/client.pem', 'origin.keyFile': '$FOLDER/client.key' },
      { 'client.pem': ending.cert, 'client.key': ending.key },
    ],
  ])('%s that ends soon is told, with its setting', async (_, setting, settings, files) => {
    await start({ ...ONLY_UNIX, ...settings }, { ...FILES, ...files })
    expect(await told()).toMatch(
      new RegExp(`^The certificate "CN=[\\w-]+" of ${setting} ends at \\d{4}-.*Z\\. Put new ones`),
    )
  })

  test('a CA file of clients that is refused is told as such', async () => {
    await start(ONLY_UNIX)
    await swap('clients.pem', 'no certificate')
    await proxy.app.reload()
    expect(await told()).toMatch(
      /^A changed certificate or key is not in use, .*: listen\.tls\.clientCaFile .*contains no/,
    )
    expect(await told()).not.toContain('of the listener')
  })
})
