/** What operators of minters and sidecars see, and what they may change without a restart. */

import { once } from 'node:events'
import { writeFile } from 'node:fs/promises'
import { connect as connectTls, type TLSSocket } from 'node:tls'
import { beforeEach, describe, expect, test } from 'vitest'
import { check } from '../../../src/cli/check.ts'
import { probe } from '../../../src/cli/probe.ts'
import { eventually, Gate } from '../../support/changes.ts'
import { lacks } from '../../support/programs.ts'
import { RawClient } from '../../support/raw-client.ts'
import { type Service, startService } from '../../support/service.ts'
import type { ProxyUnderTest } from '../../support/start-proxy.ts'
import { RedisServer } from '../../units/fleet/redis-server.ts'
import { ask, BILLING_KEY, KEY_CALLERS, makeTrust, outcome, REPORTS_KEY, startMinter, startSidecar } from './minters.ts'

const trust = await makeTrust()
let service: Service
beforeEach(async () => {
  service = await startService()
  return async () => await service[Symbol.asyncDispose]()
})

interface Status {
  readonly service: { readonly baseUrl: string; readonly minter?: string; readonly appId?: string }
  readonly warnings: readonly { readonly code: string; readonly text: string }[]
  readonly callers: readonly { readonly name: string; readonly requests: number }[]
}
const statusOf = async (proxy: ProxyUnderTest): Promise<Status> => JSON.parse((await proxy.askAdmin('/status')).content)

describe('the state', () => {
  test('a sidecar names its minter, and warns while it is lost', async () => {
    const minter = await startMinter(service)
    const sidecar = await startSidecar(service, minter, { 'tokens.mintTimeout': '1s' })
    expect(await outcome(sidecar, 'acme')).toBe(200)
    const url = `http://localhost:${minter.minterPort}`
    expect((await statusOf(sidecar)).service).toEqual({ baseUrl: `${service.baseUrl}/`, minter: url })
    expect(await sidecar.metric('oap_minter_available')).toBe(1)
    await minter.app.close()
    expect(await outcome(sidecar, 'globex-1')).toBe('token_endpoint_unavailable')
    const { warnings } = await statusOf(sidecar)
    expect(warnings).toContainEqual(
      expect.objectContaining({ code: 'minter_lost', text: expect.stringContaining('ECONNREFUSED') }),
    )
    expect(await sidecar.metric('oap_minter_available')).toBe(0)
    expect(await sidecar.metric('oap_minter_requests_total{outcome="ok"}')).toBe(1)
    expect((await sidecar.askAdmin('/readyz')).status).toBe(200)
    expect(sidecar.logs.filter(({ msg }) => msg?.startsWith('minter lost'))).toHaveLength(1)
  })

  test('the warning ends when the minter is back, without a request', async () => {
    const minter = await startMinter(service)
    const address = `127.0.0.1:${minter.minterPort}`
    const sidecar = await startSidecar(service, minter, {
      'minter.url': `http://${address}`,
      'minter.keyFile': minter.at('billing.key'),
      'tokens.mintTimeout': '1s',
    })
    await minter.app.close()
    expect(await outcome(sidecar, 'acme')).toBe('token_endpoint_unavailable')
    await startMinter(service, { 'minter.address': address })
    await sidecar.until(() => sidecar.logs.some(({ msg }) => msg === 'minter available'), 'the minter is back')
    expect((await statusOf(sidecar)).warnings).toEqual([])
  })

  test('a minter counts the requests of its callers', async () => {
    const minter = await startMinter(service)
    await ask(minter.minterPort)
    await ask(minter.minterPort, { key: REPORTS_KEY, org: 'initech' })
    expect((await statusOf(minter)).callers).toEqual([
      expect.objectContaining({ name: 'billing', requests: 1 }),
      expect.objectContaining({ name: 'reports', requests: 1 }),
    ])
  })

  test('the certificates of both are told when they end soon', async () => {
    const ending = trust.servers.issue({ names: 'DNS:localhost', lifeMs: 60_000 })
    const minter = await startMinter(service, {}, { ...trust.files, 'cert.pem': ending.cert, 'key.pem': ending.key })
    const warned = async () => (await statusOf(minter)).warnings.find(({ code }) => code === 'tls_certificate')
    expect((await eventually(warned, 'the warning')).text).toContain('minter.tls.certFile')
  })
})

describe('commands', () => {
  const sidecarEnv = async (minter: ProxyUnderTest) => {
    await writeFile(minter.at('own.key'), BILLING_KEY)
    return {
      OAP_BASE_URL: service.baseUrl,
      OAP_MINTER_URL: `http://localhost:${minter.minterPort}`,
      OAP_MINTER_KEY_FILE: minter.at('own.key'),
    }
  }

  test.each([
    [
      'acme',
      0,
      /^Tokens come from: the minter at http:\S+\n\nmint: got a token for acme\n {2}POST \S+\/v1\/orgs\/acme\/token \(/m,
    ],
    [
      'initech',
      1,
      /mint: no token for initech: org_not_allowed\n {2}POST .*\n {2}The minter at \S+ answered 403 org_not_allowed\./,
    ],
  ])('check --mint %s asks the minter', async (org, code, pattern) => {
    const env = await sidecarEnv(await startMinter(service))
    let printed = ''
    expect(await check({ mint: org }, env, (text) => (printed += text))).toBe(code)
    expect(printed).toMatch(pattern)
  })

  test('check says that the minter cannot be reached', async () => {
    const minter = await startMinter(service)
    const env = await sidecarEnv(minter)
    await minter.app.close()
    let printed = ''
    expect(await check({ mint: 'acme' }, env, (text) => (printed += text))).toBe(1)
    expect(printed).toContain('cannot be reached (ECONNREFUSED)')
  })

  test('probe is refused at a sidecar', async () => {
    const env = await sidecarEnv(await startMinter(service))
    const terminal = { print: () => undefined, tell: () => undefined }
    await expect(probe({ org: 'acme', yes: true }, env, terminal as never)).rejects.toThrow('minter.url')
  })
})

describe('without a restart', () => {
  test('a caller that is taken away gets nothing any more, and a new one is let in', async () => {
    const minter = await startMinter(service)
    expect(await ask(minter.minterPort, { org: 'shared' })).toMatchObject({ status: 200 })
    await writeFile(minter.at('proxy.yaml'), KEY_CALLERS.replace('[billing.key]', '[next.key]'))
    await writeFile(minter.at('next.key'), 'the-next-key-0123456789')
    await minter.app.reload()
    expect(await ask(minter.minterPort, { org: 'shared' })).toMatchObject({ code: 'caller_refused' })
    expect(await ask(minter.minterPort, { org: 'shared', key: 'the-next-key-0123456789' })).toMatchObject({
      status: 200,
    })
  })

  test('sockets of sidecars open and close', async () => {
    const callers = (name: string) =>
      `callers: [{name: billing, minterSocket: $FOLDER/${name}, tokens: true, orgs: [acme]}]`
    const minter = await startMinter(service, {}, { 'proxy.yaml': callers('one.sock') })
    const raw = 'POST /v1/orgs/acme/token HTTP/1.1\r\nHost: minter\r\nContent-Length: 0\r\n\r\n'
    await using before = await RawClient.sending(minter.at('one.sock'), raw)
    expect((await before.response('POST')).status).toBe(200)
    await writeFile(minter.at('proxy.yaml'), callers(minter.at('two.sock')).replace('$FOLDER/', ''))
    await minter.app.reload()
    await using after = await RawClient.sending(minter.at('two.sock'), raw)
    expect((await after.response('POST')).status).toBe(200)
    await expect(RawClient.connect(minter.at('one.sock'))).rejects.toThrow()
    await before.untilClosed()
  })

  test('all callers taken away, or TLS turned off: refused', async () => {
    const minter = await startMinter(service, {}, trust.files)
    const file = trust.files['proxy.yaml']
    for (const text of [file.replace(/callers:.*/s, ''), file.replace(/^minter: .*$/m, '')]) {
      await writeFile(minter.at('proxy.yaml'), text)
      await minter.app.reload()
    }
    expect(
      minter.logs.filter(({ msg }) => msg === 'configuration refused: the old one stays in use').length,
    ).toBeGreaterThan(1)
    expect(minter.logs.some(({ msg }) => msg === 'configuration applied')).toBe(false)
  })

  test('the certificate of the minter, and that of a sidecar, are taken over', async () => {
    const minter = await startMinter(service, {}, trust.files)
    const serialSeen = async () => {
      const socket: TLSSocket = connectTls({ port: minter.minterPort, host: 'localhost', ca: trust.servers.cert })
      await once(socket, 'secureConnect')
      const { serialNumber } = socket.getPeerCertificate()
      socket.destroy()
      return serialNumber
    }
    const before = await serialSeen()
    const next = trust.servers.issue({ names: 'DNS:localhost,IP:127.0.0.1' })
    await writeFile(minter.at('cert.pem'), next.cert)
    await writeFile(minter.at('key.pem'), next.key)
    const web = trust.clients.issue({ names: 'URI:spiffe://example.org/web' })
    await writeFile(minter.at('own.pem'), web.cert)
    await writeFile(minter.at('own-key.pem'), web.key)
    const sidecar = await startSidecar(service, 0, {
      'minter.url': `https://localhost:${minter.minterPort}`,
      'minter.caFile': minter.at('servers.pem'),
      'minter.certFile': minter.at('own.pem'),
      'minter.certKeyFile': minter.at('own-key.pem'),
      'tokens.refusalTtl': '50ms',
      'origin.maxConnectionAge': '50ms',
    })
    expect(await outcome(sidecar, 'umbrella')).toBe('org_not_allowed')
    const mail = trust.clients.issue({ names: 'DNS:mail.svc' })
    await writeFile(minter.at('own.pem'), mail.cert)
    await writeFile(minter.at('own-key.pem'), mail.key)
    await Promise.all([minter.app.reload(), sidecar.app.reload()])
    expect(await serialSeen()).not.toBe(before)
    await eventually(async () => (await outcome(sidecar, 'umbrella')) === 200 || undefined, 'the new certificate')
  })
})

test('a stop finishes the requests of sidecars that are in flight', async () => {
  const gate = new Gate()
  service.tokens.script = async (mint) => {
    await gate.pass()
    return mint.issue()
  }
  const minter = await startMinter(service)
  const asked = ask(minter.minterPort)
  await gate.untilWaiting(1)
  minter.app.setNotReady()
  const drained = minter.app.drain()
  gate.open()
  expect(await asked).toMatchObject({ status: 200 })
  expect(await drained).toBe(0)
})

test.skipIf(lacks('redis-server'))('two minters with a store mint once for all of their sidecars', async () => {
  await using store = await RedisServer.start()
  const settings = { 'fleet.store': store.url, 'fleet.timeout': '2s' }
  const [one, other] = [await startMinter(service, settings), await startMinter(service, settings)]
  const sidecars = [await startSidecar(service, one), await startSidecar(service, other, {}, REPORTS_KEY)]
  for (const sidecar of sidecars) expect(await outcome(sidecar, 'shared')).toBe(200)
  expect(service.tokens.mints).toHaveLength(1)
  service.tokens.revoke()
  for (const sidecar of sidecars) expect(await outcome(sidecar, 'shared')).toBe(200)
  expect(service.tokens.mints).toHaveLength(2)
})
