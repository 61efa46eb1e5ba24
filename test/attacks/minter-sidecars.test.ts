/**
 * The attack: a sidecar was taken over, and with it a key of a caller. It asks the minter for tokens of others, makes it mint
 * without end, and holds its connections, so that other sidecars get no tokens.
 */

import { writeFile } from 'node:fs/promises'
import { setTimeout as sleep } from 'node:timers/promises'
import { connect as connectTls, type TLSSocket } from 'node:tls'
import { beforeEach, describe, expect, test } from 'vitest'
import {
  ask,
  BILLING_KEY,
  makeTrust,
  outcome,
  REPORTS_KEY,
  startMinter,
  startSidecar,
} from '../program/minter/minters.ts'
import { during, eventually } from '../support/changes.ts'
import { outcomeOf, RawClient, request } from '../support/raw-client.ts'
import { type Service, startService } from '../support/service.ts'
import type { ProxyUnderTest } from '../support/start-proxy.ts'
import type { Mint } from '../support/token-endpoint.ts'

/** `thief` was taken over. Both may name the Orgs that begin with `shared`. */
const CALLERS = `
callers:
  - {name: thief, keyFiles: [billing.key], tokens: true, orgs: ["evil-*", "shared*"]}
  - {name: good, keyFiles: [reports.key], tokens: true, orgs: ["good*", "shared*"]}
`
const files = { 'proxy.yaml': CALLERS }
const trust = await makeTrust()

let service: Service
beforeEach(async () => {
  service = await startService()
  return async () => await service[Symbol.asyncDispose]()
})

const mints = (org?: string) => (org === undefined ? service.tokens.mints : service.tokens.mintsOf(org)).length
const asThief = (minter: ProxyUnderTest, org: string, rejected?: string) =>
  ask(minter.minterPort, { key: BILLING_KEY, org, rejected })

const endsFormer = (mint: Mint) => {
  service.tokens.revoke(mint.org)
  return mint.issue()
}

describe('tokens of others', () => {
  test('it asks for every Org: it gets its own, and none of the others is minted', async () => {
    const minter = await startMinter(service, {}, files)
    await ask(minter.minterPort, { key: REPORTS_KEY, org: 'good' })
    const asked = ['good', 'good-1', 'goo', 'EVIL-1', 'evil', 'evil-1/../good', '*', 'shar']
    for (const org of asked) expect((await asThief(minter, org)).status, org).toBeGreaterThanOrEqual(400)
    expect(mints()).toBe(1)
  })

  test('it replays the request of another over its own connection: its certificate speaks for itself alone', async () => {
    const minter = await startMinter(service, {}, trust.files)
    const bytes = 'POST /v1/orgs/globex/token HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}'
    const over = async (names: string) => {
      const { cert, key } = trust.clients.issue({ names })
      const socket: TLSSocket = connectTls({
        port: minter.minterPort,
        host: 'localhost',
        ca: trust.servers.cert,
        cert,
        key,
      })
      socket.write(bytes)
      const [answer] = (await new Promise<Buffer>((resolve) => socket.once('data', resolve))).toString().split('\r\n')
      socket.destroy()
      return answer
    }
    expect(await over('URI:spiffe://example.org/web')).toBe('HTTP/1.1 200 OK')
    expect(await over('DNS:mail.svc')).toBe('HTTP/1.1 403 Forbidden')
  })
})

describe('mints without end', () => {
  test.each([
    ['', (mint: Mint) => mint.issue()],
    [', where a new token ends the ones before', endsFormer],
  ])(
    'it claims rejections in a loop%s: few of them cause a mint, and the other sidecar loses no request',
    async (_, script) => {
      service.tokens.script = script
      const minter = await startMinter(service, {}, files)
      const sidecar = await startSidecar(service, minter, {}, REPORTS_KEY)
      let { id } = await asThief(minter, 'shared')
      const outcomes = new Set<unknown>()
      const claim = async () => {
        ;({ id } = await asThief(minter, 'shared', id))
      }
      const rounds = await during([claim], async () => {
        for (let i = 0; i < 300; i++) {
          outcomes.add(await outcome(sidecar, 'shared'))
          await sleep(5)
        }
      })
      expect(rounds).toBeGreaterThan(10)
      expect([...outcomes]).toEqual([200])
      expect(mints()).toBeLessThanOrEqual(4) // the first, one for each that claims, and one in ten seconds
    },
  )

  test('it claims while the token endpoint hangs: the other sidecar gets the token that is held, at once', async () => {
    const minter = await startMinter(service, { 'tokens.mintTimeout': '1s' }, files)
    const { id } = await asThief(minter, 'shared')
    service.tokens.script = () => undefined
    const claimed = asThief(minter, 'shared', id)
    await eventually(() => mints() === 2 || undefined, 'the claim')
    const other = ask(minter.minterPort, { key: REPORTS_KEY, org: 'shared' })
    expect(await Promise.race([other, claimed])).toMatchObject({ status: 200, id })
    expect(await claimed).toMatchObject({ status: 504 })
  })

  test('two of them claim in turns: each spends its own share', async () => {
    const callers = `${CALLERS}  - {name: other, keyFiles: [other.key], tokens: true, orgs: ["shared*"]}\n`
    const minter = await startMinter(service, {}, { 'proxy.yaml': callers, 'other.key': 'other-key-0123456789' })
    let { id } = await asThief(minter, 'shared')
    for (let i = 0; i < 100; i++) {
      const key = i % 2 === 0 ? BILLING_KEY : 'other-key-0123456789'
      ;({ id } = await ask(minter.minterPort, { key, org: 'shared', rejected: id }))
    }
    expect(mints()).toBeLessThanOrEqual(1 + 2 * 3)
  })

  test('it claims the tokens of many Orgs, as fast as it can: another sidecar gets a token soon', async () => {
    const minter = await startMinter(service, { 'tokens.mintRate': '20' }, files)
    const sidecar = await startSidecar(service, minter, {}, REPORTS_KEY)
    const ids = new Map<string, string>()
    const attacks = Array.from({ length: 60 }, (_, index) => async () => {
      const org = `evil-${index}`
      const { id } = await asThief(minter, org, ids.get(org))
      if (id !== undefined) ids.set(org, id)
    })
    const waits: number[] = []
    await during(attacks, async () => {
      await eventually(() => mints() >= 40 || undefined, 'the attack')
      for (let i = 0; i < 5; i++) {
        const startedAt = performance.now()
        expect(await outcome(sidecar, `good-${i}`)).toBe(200)
        waits.push(performance.now() - startedAt)
      }
    })
    expect(Math.max(...waits)).toBeLessThan(1_500)
  })
})

describe('its connections', () => {
  const half = (content: string) =>
    `POST /v1/orgs/evil-1/token HTTP/1.1\r\nHost: minter\r\nX-Proxy-Key: ${BILLING_KEY}\r\nContent-Length: 50\r\n\r\n${content}`
  const settings = { 'listen.maxConnections': '8' }

  test.each([
    ['idle ones', () => ''],
    ['half a head', () => 'POST /v1/orgs/evil-1/token HTTP/1.1\r\nHost:'],
    ['half the content', () => half('{"rejected":')],
  ])('it holds %s, as many as there may be: another sidecar gets in', async (_, bytes) => {
    const minter = await startMinter(service, settings, files)
    const held = await Promise.all(Array.from({ length: 12 }, () => RawClient.sending(minter.minterPort, bytes())))
    expect(await ask(minter.minterPort, { key: REPORTS_KEY, org: 'good' })).toMatchObject({ status: 200 })
    await Promise.all(held.map((client) => client[Symbol.asyncDispose]()))
  })

  test('it sends a head, or content, byte by byte: 408 after listen.headersTimeout', async () => {
    const minter = await startMinter(service, { 'listen.headersTimeout': '400ms' }, files)
    for (const [whole, dripped] of [
      ['', 'POST /v1/orgs/evil-1/token HTTP/1.1\r\nHost: minter\r\nX: '],
      [half(''), '{"rejected":"'],
    ] as const) {
      await using client = await RawClient.sending(minter.minterPort, whole)
      let at = 0
      const drip = setInterval(() => client.send(dripped[at++] ?? 'x'), 50)
      expect(outcomeOf(await client.response('POST'))).toBe('request_timeout')
      clearInterval(drip)
    }
    expect(mints()).toBe(0)
  })

  test('it has requests in flight: no more than a quarter of listen.maxInFlight', async () => {
    service.tokens.script = (mint) => (mint.org.startsWith('evil') ? undefined : mint.issue())
    const minter = await startMinter(service, { 'listen.maxInFlight': '20', 'tokens.mintTimeout': '2s' }, files)
    const asked = Array.from({ length: 30 }, (_, index) => asThief(minter, `evil-${index}`))
    const refused = (await Promise.all(asked)).filter(({ code }) => code === 'overloaded')
    expect(refused.length).toBe(25)
    const more = Array.from({ length: 30 }, (_, index) => asThief(minter, `evil-${100 + index}`))
    await eventually(() => mints() >= 6 || undefined, 'the attack')
    expect(await ask(minter.minterPort, { key: REPORTS_KEY, org: 'good' })).toMatchObject({ status: 200 })
    await Promise.all(more)
  })
})

test('a certificate was stolen, and its CA is taken away: it gets nothing, on an open connection neither', async () => {
  const minter = await startMinter(service, {}, trust.files)
  const { cert, key } = trust.clients.issue({ names: 'URI:spiffe://example.org/web' })
  const connect = () => connectTls({ port: minter.minterPort, host: 'localhost', ca: trust.servers.cert, cert, key })
  const bytes = 'POST /v1/orgs/globex/token HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n'
  const answerOn = (socket: TLSSocket) =>
    new Promise<string>((resolve) => {
      if (socket.destroyed) resolve('closed')
      socket.write(bytes)
      socket.once('data', (data) => resolve(String(data).split('\r\n')[0] ?? ''))
      socket.once('close', () => resolve('closed'))
      if (socket.closed) resolve('closed')
    })
  const open = connect()
  open.on('error', () => undefined)
  expect(await answerOn(open)).toBe('HTTP/1.1 200 OK')
  await writeFile(minter.at('clients.pem'), trust.strangers.cert)
  await minter.app.reload()
  expect(await answerOn(open)).toBe('closed')
  const next = connect()
  next.on('error', () => undefined)
  expect(await answerOn(next)).toMatch(/^HTTP\/1.1 403|closed/)
  next.destroy()
})

test('what no caller may hear: an answer names no Org, key or token of others', async () => {
  const minter = await startMinter(service, {}, files)
  const { token } = await ask(minter.minterPort, { key: REPORTS_KEY, org: 'good' })
  const raw = `POST /v1/orgs/good/token HTTP/1.1\r\nHost: minter\r\nX-Proxy-Key: ${BILLING_KEY}\r\nContent-Length: 0\r\n\r\n`
  const content = (await request(minter.minterPort, raw)).content.toString()
  for (const text of [token, REPORTS_KEY, BILLING_KEY, 'thief']) expect(content).not.toContain(text)
})
