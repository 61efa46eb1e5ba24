/** The settings of `examples/services`, as they stand there, with stand-ins in the place of the hosts that they name. */

import { createPublicKey } from 'node:crypto'
import { writeFile } from 'node:fs/promises'
import { jwtVerify } from 'jose'
import { describe, expect, test } from 'vitest'
import { parse } from 'yaml'
import { check } from '../../../src/cli/check.ts'
import { explain } from '../../../src/cli/explain.ts'
import { probe } from '../../../src/cli/probe.ts'
import { loadConfig } from '../../../src/config/load.ts'
import { during, eventually } from '../../support/changes.ts'
import { makeFolder } from '../../support/folder.ts'
import { KeepAliveClient } from '../../support/keep-alive-client.ts'
import { lacks } from '../../support/programs.ts'
import { projectFilesBelow, readProjectFile } from '../../support/project-files.ts'
import {
  GATEWAY_KEY,
  STAND_INS,
  type StandIn,
  type StandInName,
  secretOf,
  startStandIn,
} from '../../support/stand-ins.ts'
import { environmentOf, type ProxySettings, type ProxyUnderTest, startProxy } from '../../support/start-proxy.ts'
import { RedisServer } from '../../units/fleet/redis-server.ts'
import { ProbeClock } from '../../units/probe/run-probe.ts'
import { KEY_CALLERS, startMinter, startSidecar } from '../minter/minters.ts'

const NAMES = Object.keys(STAND_INS) as StandInName[]
const pathOf = (name: StandInName) => `examples/services/${name}.yaml`

/** The stand-in in the place of the hosts that the settings name. */
function placesOf(name: StandInName, { service, endpoint, appId }: StandIn): ProxySettings {
  const { tokens } = parse(readProjectFile(pathOf(name)))
  return {
    appId,
    baseUrl: service.baseUrl,
    'tokens.endpoint': tokens.endpoint.replace(/https:\/\/[^/]+/, endpoint.url),
    ...('assertionFile' in tokens && { 'tokens.assertionFile': '$FOLDER/secret' }),
  }
}

/** The settings, and the file that they name beside the secret. */
function filesOf(name: StandInName, more = '') {
  return { 'proxy.yaml': readProjectFile(pathOf(name)) + more, 'gateway.key': GATEWAY_KEY }
}

async function startBoth(name: StandInName, settings: ProxySettings = {}) {
  const standIn = await startStandIn(name)
  const all = { ...placesOf(name, standIn), ...settings }
  const proxy = await startProxy(standIn.service, all, filesOf(name))
  const stop = async () => {
    await proxy[Symbol.asyncDispose]()
    await standIn[Symbol.asyncDispose]()
  }
  return { standIn, proxy, [Symbol.asyncDispose]: stop }
}

/** The same settings for a command. */
async function settingsFor(name: StandInName, standIn: StandIn) {
  const folder = await makeFolder()
  for (const [file, content] of Object.entries(filesOf(name))) await folder.write(file, content)
  const places = placesOf(name, standIn)
  const secretFile = await folder.write('secret', standIn.secrets[0] ?? '')
  const key = 'tokens.assertionFile' in places ? 'tokens.assertionFile' : 'appSecretFile'
  const env = environmentOf({ ...places, [key]: secretFile })
  return { file: folder.at('proxy.yaml'), env, [Symbol.asyncDispose]: () => folder[Symbol.asyncDispose]() }
}

test('each example has a stand-in, and none holds a secret', () => {
  expect(projectFilesBelow('examples/services', '.yaml').sort()).toEqual(NAMES.map(pathOf).sort())
})

describe.each(NAMES)('%s', (name) => {
  const [org, other, stranger] = STAND_INS[name].orgs

  test.concurrent('the settings are accepted as they stand', async () => {
    await using standIn = await startStandIn(name)
    await using settings = await settingsFor(name, standIn)
    const { OAP_APP_SECRET_FILE, OAP_TOKENS_ASSERTION_FILE } = settings.env
    const env = { OAP_APP_SECRET_FILE, OAP_TOKENS_ASSERTION_FILE }
    expect((await loadConfig({ file: settings.file, env })).warnings).toEqual([])
  })

  test.concurrent('cold, warm, another Org, a token that ended, one that is not linked', async () => {
    await using both = await startBoth(name, { 'admin.address': 'localhost:0' })
    const { standIn, proxy } = both
    using app = new KeepAliveClient(proxy.port)
    const orgOf = async (id: string) => JSON.parse((await app.get('/v1.0/things?$top=1', id)).content).org
    expect([await orgOf(org), await orgOf(org), await orgOf(other)]).toEqual([org, org, other])
    expect(standIn.mints).toBe(2)
    standIn.revoke()
    expect([await orgOf(org), standIn.mints]).toEqual([org, 3])
    const refused = await app.get('/v1.0/things', stranger)
    expect([refused.status, JSON.parse(refused.content).code]).toEqual([403, 'org_access_refused'])
    const detail = String(proxy.logs.find(({ msg }) => msg === 'mint failed')?.['detail'])
    const told = JSON.parse(String(STAND_INS[name].unknownOrg.content))
    expect(detail).toContain(`It says: ${told.error ?? told.message}`)
    expect(refused.content).not.toContain('It says')
    expect((await proxy.askAdmin('/status')).content).toContain(`It says: ${told.error ?? told.message}`)
    expect(proxy.output).not.toContain('kkkkkkkk')
  })

  test.concurrent('the secret replaced under load: no request fails', async () => {
    await using both = await startBoth(name, { 'tokens.lifetime': '300ms' })
    await replaceUnderLoad(both, secretOf(name, 'next'), [org, other])
  })

  test('a sidecar of a minter gets the tokens, and has no secret', async () => {
    await using standIn = await startStandIn(name)
    const callers = KEY_CALLERS.replace(/orgs: \[acme.*?\]/, 'orgs: ["*"]')
    const minter = await startMinter(standIn.service, placesOf(name, standIn), filesOf(name, callers))
    const { origin, tokens } = parse(readProjectFile(pathOf(name)))
    const own = { ...filesOf(name), 'proxy.yaml': JSON.stringify({ origin: origin ?? {} }) }
    const header = tokens.header === undefined ? {} : { 'tokens.header': tokens.header }
    const sidecar = await startSidecar(standIn.service, minter, header, undefined, own)
    using app = new KeepAliveClient(sidecar.port)
    for (const id of [org, other, org]) {
      expect(JSON.parse((await app.get('/v1.0/things', id)).content)).toEqual({ org: id })
    }
    expect(standIn.mints).toBe(2)
  })

  test.concurrent('a wrong secret: check --mint names the URL, and what the endpoint says', async () => {
    await using standIn = await startStandIn(name)
    await using settings = await settingsFor(name, standIn)
    standIn.secrets = [secretOf(name, 'next')]
    let printed = ''
    const print = (text: string) => (printed += text)
    expect(await check({ file: settings.file, mint: org }, settings.env, print)).toBe(1)
    expect(printed).toContain(`no token for ${org}: app_credentials_rejected`)
    expect(printed).toContain(`POST ${standIn.endpoint.url}/`)
    const told = JSON.parse(String(STAND_INS[name].badApp.content))
    expect(printed).toContain(`It says: ${told.error ?? told.message}`)
    expect(printed).not.toContain((settings.env['OAP_APP_SECRET'] ?? 'PRIVATE KEY').slice(0, 20))
  })

  test.concurrent('check --mint, explain and probe', async () => {
    await using standIn = await startStandIn(name)
    await using settings = await settingsFor(name, standIn)
    const { file, env } = settings
    let printed = ''
    const print = (text: string) => (printed += text)
    expect(await check({ file, mint: org }, env, print)).toBe(0)
    expect(printed).toMatch(new RegExp(`got a token for ${org}\\n +POST ${standIn.endpoint.url}/`))
    expect(await explain({ file, org, operand: 'GET /v1.0/things' }, env, print)).toBe(0)
    const { path } = STAND_INS[name]
    const endpoint = settings.env['OAP_TOKENS_ENDPOINT']
      ?.replace(/^POST (https?:\/\/[^/]+)?/, '')
      .replace('{orgId}', parse(readProjectFile(pathOf(name))).orgs?.ids?.[other] ?? other)
    expect(endpoint).toMatch(path)
    const isBelow = 'isOnSameHost' in STAND_INS[name]
    expect(await explain({ file, org, operand: `POST ${endpoint}` }, env, print)).toBe(isBelow ? 1 : 0)
    printed = ''
    const terminal = { print, tell: () => undefined, confirm: undefined, signal: new AbortController().signal }
    expect(
      await probe({ file, org, path: '/v1.0/things', yes: true, yaml: true }, env, terminal, new ProbeClock()),
    ).toBe(0)
    // The proof and the content are the operator's.
    expect(printed.match(/^ +\w+(?=:)/gm)?.map((line) => line.trim())).toEqual(['endpoint', 'field'])
  })
})

test('github-app: the routes of the App go with a JWT of their own, and without an Org', async () => {
  await using both = await startBoth('github-app')
  const { standIn, proxy } = both
  expect((await fetch(`http://127.0.0.1:${proxy.port}/app`)).status).toBe(401) // the stand-in knows tokens alone
  const [authorization = ''] = standIn.service.requests.at(-1)?.values('authorization') ?? []
  const key = createPublicKey(standIn.secrets[0] ?? '')
  const { payload } = await jwtVerify(authorization.replace('Bearer ', ''), key, { issuer: standIn.appId })
  expect(payload.exp).toBeGreaterThan(Date.now() / 1_000)
  expect(standIn.mints).toBe(0)
})

test.skipIf(lacks('redis-server'))(
  'keycloak: a fleet shares tokens under the private key, also after a rotation',
  async () => {
    await using standIn = await startStandIn('keycloak')
    await using store = await RedisServer.start()
    const [org, other] = STAND_INS.keycloak.orgs
    const settings = { ...placesOf('keycloak', standIn), 'fleet.store': store.url, 'fleet.timeout': '2s' }
    const start = () => startProxy(standIn.service, settings, { 'proxy.yaml': readProjectFile(pathOf('keycloak')) })
    await using one = await start()
    await using two = await start()
    // The same key, with the line ends of another system and a remark above it.
    const asElsewhere = (key: string) => `The key of the App\r\n${key.replaceAll('\n', '\r\n')}\r\n`
    const use = async (key: string) => {
      standIn.secrets = [key]
      await writeFile(one.secretFile, key)
      await writeFile(two.secretFile, asElsewhere(key))
      for (const { app, logs } of [one, two]) {
        await app.reload()
        expect(logs.filter(({ level }) => level === 'error')).toEqual([])
      }
    }
    const ask = async (proxy: ProxyUnderTest, id: string) => {
      using client = new KeepAliveClient(proxy.port)
      expect(JSON.parse((await client.get('/v1.0/things', id)).content)).toEqual({ org: id })
    }
    await use(standIn.secrets[0] ?? '')
    for (const proxy of [one, two]) await ask(proxy, org)
    expect(standIn.mints).toBe(1)
    await use(secretOf('keycloak', 'next'))
    for (const proxy of [one, two]) await ask(proxy, other)
    expect(standIn.mints).toBe(2)
    const kept = await Promise.all((await store.cli('--scan')).split('\n').map((key) => store.cli('get', key)))
    expect(kept.filter((value) => value.length > 100)).toHaveLength(2)
    for (const text of [...kept, one.output, two.output]) expect(text).not.toMatch(/kkkkkkkk|PRIVATE KEY/)
  },
)

/** Requests of two Orgs all the time, while the secret changes: in the file first, then at the service. */
async function replaceUnderLoad(
  { standIn, proxy }: { readonly standIn: StandIn; readonly proxy: ProxyUnderTest },
  fresh: string,
  orgs: readonly string[],
): Promise<void> {
  const answers: string[] = []
  const traffic = orgs.map((org) => async () => {
    using app = new KeepAliveClient(proxy.port)
    const { status, content } = await app.get('/v1.0/things', org)
    answers.push(status === 200 ? 'ok' : `${status} ${content}`)
    await new Promise((resolve) => setTimeout(resolve, 5))
  })
  const more = async (count: number) => {
    const until = answers.length + count
    await eventually(() => answers.length >= until || undefined, 'more answers', 60_000)
  }
  const isTold = (text: string) => proxy.logs.some(({ msg = '' }) => msg.startsWith(text)) || undefined
  await during(traffic, async () => {
    await more(20)
    await writeFile(proxy.secretFile, fresh)
    await eventually(() => isTold('new secret rejected'), 'the new secret tried', 60_000)
    standIn.secrets = [fresh]
    await eventually(() => isTold('new secret accepted'), 'the new secret in use', 60_000)
    await more(20)
  })
  expect(answers.filter((answer) => answer !== 'ok')).toEqual([])
}
