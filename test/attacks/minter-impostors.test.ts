/**
 * The attack: in the place of the minter stands a stranger, or a minter that is broken. It wants the key of the sidecar, gives
 * tokens that break its requests, or keeps them waiting.
 */

import { setTimeout as sleep } from 'node:timers/promises'
import { beforeEach, describe, expect, onTestFinished, test } from 'vitest'
import { BILLING_KEY, makeTrust, outcome, startMinter, startSidecar } from '../program/minter/minters.ts'
import { CertificateAuthority } from '../support/certificate-authority.ts'
import { eventually, Gate } from '../support/changes.ts'
import { folderForFile } from '../support/folder.ts'
import { freePort } from '../support/listening.ts'
import { startOrigin } from '../support/origin.ts'
import type { OriginScript } from '../support/origin-connection.ts'
import { scaled, scaledSetting } from '../support/pace.ts'
import { outcomeOf, request } from '../support/raw-client.ts'
import { type Service, startService } from '../support/service.ts'

const trust = await makeTrust()
const { path } = await folderForFile()
const impostors = new CertificateAuthority(path, 'impostors')

let service: Service
beforeEach(async () => {
  service = await startService()
  return async () => await service[Symbol.asyncDispose]()
})

/** In the place of a minter, on plain HTTP. */
async function startFalse(script: OriginScript) {
  const minter = await startOrigin(script)
  onTestFinished(() => minter[Symbol.asyncDispose]())
  return minter
}

const given = (changes: object = {}) => {
  const token = service.tokens.issueToken('acme')
  return { content: JSON.stringify({ id: 'x', token, ageMs: 0, statedLifeMs: null, ...changes }) }
}

async function fullOutcome(port: number) {
  const raw = 'GET /v2/x HTTP/1.1\r\nHost: localhost\r\nX-Org-Id: acme\r\n\r\n'
  const response = await request(port, raw, { deadlineMs: 10_000 })
  return { code: outcomeOf(response), content: response.content.toString() }
}

test('a stranger with a certificate of another CA gets no byte of the key', async () => {
  const own = impostors.issue({ names: 'DNS:localhost,IP:127.0.0.1' })
  const stranger = await startOrigin(() => given(), { tls: own })
  onTestFinished(() => stranger[Symbol.asyncDispose]())
  const minter = await startMinter(service, {}, trust.files)
  const sidecar = await startSidecar(service, 0, {
    'minter.url': stranger.url,
    'minter.caFile': minter.at('servers.pem'),
    'minter.keyFile': minter.at('billing.key'),
    'tokens.mintTimeout': scaledSetting(1_000),
  })
  const { code, content } = await fullOutcome(sidecar.port)
  expect(code).toBe('token_endpoint_unavailable')
  expect(content).toContain(`The minter at ${stranger.url} shows a certificate that is not trusted`)
  expect(stranger.requests).toEqual([])
  expect(sidecar.output).not.toContain(BILLING_KEY)
})

describe('garbage', () => {
  const ANSWERS: [string, () => Awaited<ReturnType<OriginScript>>][] = [
    ['a page', () => ({ content: '<html>welcome</html>' })],
    ['nothing', () => ({ content: '' })],
    ['another 2xx', () => ({ ...given(), status: 202 })],
    ['no token', () => given({ token: undefined })],
    ['a token with a line break', () => given({ token: 'x\r\nX-Injected: 1' })],
    ['a token with a blank', () => given({ token: 'a b' })],
    ['an endless token', () => given({ token: 'x'.repeat(20_000) })],
    ['no id', () => given({ id: undefined })],
    ['an endless id', () => given({ id: 'x'.repeat(1_000) })],
    ['an age before the beginning', () => given({ ageMs: -1 })],
    ['an age of words', () => given({ ageMs: 'old' })],
    ['content without end', () => ({ content: 'x'.repeat(300_000) })],
    ['a redirect', () => ({ status: 302, fields: ['Location', 'http://127.0.0.1:9/'], content: '' })],
    ['401', () => ({ status: 401, content: '{"code":"caller_refused"}' })],
    ['an unknown problem', () => ({ status: 403, content: '{"code":"constructor"}' })],
    ['a problem with another status', () => ({ status: 400, content: '{"code":"org_access_refused"}' })],
    ['two lengths', () => ({ fields: ['Content-Length', '5', 'Content-Length', '6'], content: 'hello' })],
  ]

  // Side by side, because each waits for the pause behind its first answer.
  test(`each of ${ANSWERS.length} kinds: 503, and the next good answer is used`, async () => {
    await Promise.all(
      ANSWERS.map(async ([kind, answer]) => {
        const minter = await startFalse(() => answer())
        const sidecar = await startSidecar(service, minter.port, { 'tokens.mintTimeout': scaledSetting(1_000) })
        const { code, content } = await fullOutcome(sidecar.port)
        expect(code, kind).toBe('token_endpoint_unavailable')
        expect(content, kind).toContain(`The minter at http://localhost:${minter.port} `)
        expect(content, kind).not.toContain('Injected')
        minter.script = () => given()
        await eventually(async () => (await outcome(sidecar, 'acme')) === 200 || undefined, `the good answer (${kind})`)
      }),
    )
  })

  test('times that cannot be: a token with an end in the past, an age of years, a life of no time', async () => {
    const minter = await startFalse(() => given({ ageMs: 1e15, statedLifeMs: 5 }))
    const sidecar = await startSidecar(service, minter.port, { 'tokens.mintTimeout': '300ms' })
    await fullOutcome(sidecar.port)
    expect(minter.requests.length).toBeLessThan(20)
    minter.script = () => given()
    await eventually(async () => (await outcome(sidecar, 'acme')) === 200 || undefined, 'the good answer')
  })

  test('always the same token, which the service rejects: no storm of claims', async () => {
    const minter = await startFalse(() => given({ id: 'same', token: 'never-good', ageMs: 60_000 }))
    const sidecar = await startSidecar(service, minter.port)
    for (let i = 0; i < 100; i++) expect(await outcome(sidecar, 'acme')).toBe(401)
    expect(minter.requests.length).toBeLessThan(10)
  })
})

describe('silence', () => {
  test('hangs: 503 within tokens.mintTimeout, and Orgs with a token go on', async () => {
    const minter = await startFalse(() => given())
    const sidecar = await startSidecar(service, minter.port, { 'tokens.mintTimeout': scaledSetting(1_000) })
    expect(await outcome(sidecar, 'acme')).toBe(200)
    minter.script = () => undefined
    const raw = 'GET /v2/x HTTP/1.1\r\nHost: localhost\r\nX-Org-Id: other\r\n\r\n'
    const startedAt = performance.now()
    const asked = request(sidecar.port, raw, { deadlineMs: 10_000 })
    for (let i = 0; i < 20; i++) expect(await outcome(sidecar, 'acme')).toBe(200)
    const answer = await asked
    expect(outcomeOf(answer)).toBe('token_endpoint_unavailable')
    expect(answer.content.toString()).toContain('The minter at ')
    expect(performance.now() - startedAt).toBeLessThan(scaled(3_000))
    minter.script = () => ({ ...given(), content: given({ token: service.tokens.issueToken('other') }).content })
    const backAt = performance.now()
    await eventually(async () => (await outcome(sidecar, 'other')) === 200 || undefined, 'the minter is back')
    expect(performance.now() - backAt).toBeLessThan(5_000)
  })

  test('slow, byte by byte: the same', async () => {
    const minter = await startFalse(async (_, connection) => {
      const { content } = given()
      connection.write(`HTTP/1.1 200 OK\r\nContent-Length: ${content.length}\r\n\r\n`)
      for (const letter of content) {
        connection.write(letter)
        await sleep(50)
      }
    })
    const sidecar = await startSidecar(service, minter.port, { 'tokens.mintTimeout': scaledSetting(500) })
    expect((await fullOutcome(sidecar.port)).code).toBe('token_endpoint_unavailable')
  })

  test('dies in the middle of a rotation: the next one serves the request that waits', async () => {
    const gate = new Gate()
    service.tokens.script = async (mint) => {
      await gate.pass()
      return mint.issue()
    }
    const port = await freePort()
    const settings = { 'minter.address': `127.0.0.1:${port}` }
    const first = await startMinter(service, settings)
    const sidecar = await startSidecar(service, 0, {
      'minter.url': `http://127.0.0.1:${port}`,
      'minter.keyFile': first.at('billing.key'),
    })
    const asked = outcome(sidecar, 'acme')
    await gate.untilWaiting(1)
    await first.app.close()
    service.tokens.script = (mint) => mint.issue()
    await startMinter(service, settings)
    expect(await asked).toBe(200)
    gate.open()
  })
})
