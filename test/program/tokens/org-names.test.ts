/** Apps know the Orgs by names, and the token endpoint by ids: `orgs.ids`. */

import { rename, writeFile } from 'node:fs/promises'
import { describe, expect, onTestFinished, test } from 'vitest'
import { check } from '../../../src/cli/check.ts'
import { explain } from '../../../src/cli/explain.ts'
import { lacks } from '../../support/programs.ts'
import { outcomeOf, request } from '../../support/raw-client.ts'
import { type Service, startService } from '../../support/service.ts'
import { type ProxySettings, type ProxyUnderTest, startBoth, startProxy } from '../../support/start-proxy.ts'
import { RedisServer } from '../../units/fleet/redis-server.ts'
import { runProbe } from '../../units/probe/run-probe.ts'
import { startMinter, startSidecar } from '../minter/minters.ts'

const FILE = 'orgs: { ids: { acme: "4711", globex: "4712" } }\n'

async function start(text = FILE, settings: ProxySettings = {}) {
  const both = await startBoth({}, { 'admin.address': 'localhost:0', ...settings }, { 'proxy.yaml': text })
  const { proxy } = both
  const reloadWith = async (changed: string) => {
    await writeFile(proxy.at('.new'), changed, { mode: 0o600 })
    await rename(proxy.at('.new'), proxy.at('proxy.yaml'))
    await proxy.app.reload()
  }
  return { ...both, reloadWith }
}

const send = async (proxy: ProxyUnderTest, org: string) =>
  outcomeOf(await request(proxy.port, `GET /v2/x HTTP/1.1\r\nHost: localhost\r\nX-Org-Id: ${org}\r\n\r\n`))
/** The id that the endpoint gave the last token for. */
const lastOrg = (service: Service) => {
  const last = service.requests.at(-1)
  return last && service.orgOf(last)
}
const mintsOf = (service: Service) => service.tokens.mints.map(({ org }) => org)

test('the endpoint gets the id of the name, once an Org', async () => {
  const { service, proxy } = await start()
  expect([await send(proxy, 'acme'), lastOrg(service)]).toEqual([200, '4711'])
  expect([await send(proxy, 'globex'), lastOrg(service)]).toEqual([200, '4712'])
  expect([await send(proxy, 'acme'), mintsOf(service)]).toEqual([200, ['4711', '4712']])
})

test.each(['4711', 'Acme', 'initech', '__proto__', 'constructor'])('%s is no name: refused', async (org) => {
  const { service, proxy } = await start()
  expect(await send(proxy, org)).toBe('org_not_allowed')
  expect(service.origin.requests).toEqual([])
})

test('log, status and the refusal of the endpoint know the name', async () => {
  const { service, proxy } = await start(`${FILE}callers: [{name: a, socket: $FOLDER/a.sock, orgs: [acme]}]\n`)
  const ask = (org: string) =>
    request(proxy.at('a.sock'), `GET /v2/x HTTP/1.1\r\nHost: localhost\r\nX-Org-Id: ${org}\r\n\r\n`)
  service.tokens.script = () => ({ status: 403 })
  expect(outcomeOf(await ask('acme'))).toBe('org_access_refused')
  expect(outcomeOf(await ask('globex'))).toBe('org_not_allowed')
  await proxy.logOf('/v2/x')
  const named = proxy.logs.filter(({ msg }) => msg === 'request' || msg === 'mint failed').map(({ orgId }) => orgId)
  expect([...new Set(named)]).toEqual(['acme', 'globex'])
})

describe('a reload', () => {
  test('drops the tokens of an Org whose id has changed, and of no other', async () => {
    const { service, proxy, reloadWith } = await start()
    for (const org of ['acme', 'globex']) await send(proxy, org)
    await reloadWith(FILE.replace('4711', '4713').replace('}', ', initech: "4714" }'))
    for (const org of ['acme', 'globex', 'initech']) expect([org, await send(proxy, org)]).toEqual([org, 200])
    expect(mintsOf(service)).toEqual(['4711', '4712', '4713', '4714'])
  })

  test('and of one that was away meanwhile', async () => {
    const { service, proxy, reloadWith } = await start()
    await send(proxy, 'acme')
    await reloadWith(FILE.replace('acme: "4711", ', ''))
    expect(await send(proxy, 'acme')).toBe('org_not_allowed')
    await reloadWith(FILE.replace('4711', '4713'))
    expect([await send(proxy, 'acme'), lastOrg(service)]).toEqual([200, '4713'])
  })

  test('brings the first names: a token for the name itself is dropped', async () => {
    const { service, proxy, reloadWith } = await start('log: { level: info }\n')
    expect([await send(proxy, 'acme'), lastOrg(service)]).toEqual([200, 'acme'])
    await reloadWith(FILE)
    expect([await send(proxy, 'acme'), lastOrg(service)]).toEqual([200, '4711'])
  })

  test('a mint that is under way when the id changes serves those who wait, and is forgotten', async () => {
    const { service, proxy, reloadWith } = await start()
    let answer: () => void = () => undefined
    const asked = new Promise<void>((resolve) => {
      service.tokens.script = async ({ issue }) => {
        resolve()
        await new Promise<void>((go) => (answer = go))
        return issue()
      }
    })
    const first = send(proxy, 'acme')
    await asked
    service.tokens.script = ({ issue }) => issue()
    await reloadWith(FILE.replace('4711', '4713'))
    answer()
    expect([await first, lastOrg(service)]).toEqual([200, '4711'])
    expect([await send(proxy, 'acme'), lastOrg(service)]).toEqual([200, '4713'])
  })

  test('that takes the names away is refused', async () => {
    const { proxy, reloadWith } = await start()
    await reloadWith('log: { level: info }\n')
    expect(proxy.output).toContain('orgs.ids (not set): is taken away')
    expect(await send(proxy, '4711')).toBe('org_not_allowed')
  })
})

test('check prints how many, explain both, and --mint and probe take the name', async () => {
  const { service, proxy } = await start()
  const { appId, appSecret } = service.tokens
  const file = proxy.at('proxy.yaml')
  const env = { OAP_BASE_URL: service.baseUrl, OAP_APP_ID: appId, OAP_APP_SECRET: appSecret }
  let printed = ''
  const print = (text: string) => (printed += text)
  expect(await check({ file, mint: 'acme' }, env, print)).toBe(0)
  expect(printed).toMatch(/^orgs\.ids +2 names +\S+:1:14$/m)
  expect(printed).toContain(`got a token for acme\n  POST ${service.baseUrl}/v2/orgs/4711/access`)
  expect(await check({ file, mint: '4711' }, env, print)).toBe(1)
  expect(printed).toContain('not tried: 4711 is not in orgs.ids')
  expect(await explain({ file, org: 'acme', operand: 'GET /v2/x' }, env, print)).toBe(0)
  expect(printed).toContain('with       the token of acme, which is 4711 at the token endpoint')
  expect(await explain({ file, org: '4711', operand: 'GET /v2/x' }, env, print)).toBe(1)
  expect(printed).toContain('setting    orgs.ids')
  const probed = await runProbe({ baseUrl: service.baseUrl, appId, appSecret }, { env: { OAP_CONFIG: file } })
  expect([probed.exitCode, mintsOf(service).includes('acme')]).toEqual([0, false])
  expect(mintsOf(service).filter((id) => id === '4711').length).toBeGreaterThan(1)
})

test('a minter has the ids, and its sidecars know the names alone', async () => {
  await using service = await startService()
  const callers = 'callers: [{name: billing, keyFiles: [billing.key], tokens: true, orgs: [acme, "4711"]}]\n'
  const minter = await startMinter(service, {}, { 'proxy.yaml': callers + FILE })
  const sidecar = await startSidecar(service, minter)
  expect([await send(sidecar, 'acme'), lastOrg(service)]).toEqual([200, '4711'])
  expect([await send(sidecar, '4711'), mintsOf(service)]).toEqual(['org_not_allowed', ['4711']])
  await sidecar.app.reload()
  expect(sidecar.output, 'it has no secret to read again').not.toContain('secret file')
})

test.skipIf(lacks('redis-server'))('a fleet shares the tokens of a name only where it has the same id', async () => {
  await using service = await startService()
  await using store = await RedisServer.start()
  const startReplica = async (text: string) => {
    const settings = { 'fleet.store': store.url, 'fleet.timeout': '2s' }
    const replica = await startProxy(service, settings, { 'proxy.yaml': text })
    onTestFinished(() => replica[Symbol.asyncDispose]())
    return replica
  }
  for (const text of [FILE, FILE, FILE.replace('4711', '4713'), 'log: { level: info }\n'])
    expect(await send(await startReplica(text), 'acme')).toBe(200)
  expect(mintsOf(service)).toEqual(['4711', '4713', 'acme'])
})
