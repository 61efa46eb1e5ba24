/** `/livez` and `/readyz` of the whole program, from its start to its end. */

import { afterAll, beforeEach, expect, test } from 'vitest'
import { get } from '../support/case-table.ts'
import { Changes, eventually } from '../support/changes.ts'
import { type ProxyProcess, startProxyProcess } from '../support/proxy-process.ts'
import { request } from '../support/raw-client.ts'
import { type Service, startService } from '../support/service.ts'
import { environmentFor, spawnProxy } from '../support/spawn-proxy.ts'

const WARM = ['acme', 'globex', 'unlinked', 'initech']

/** Orgs whose mints are answered. The others wait. */
const answered = new Set<string>()
const changes = new Changes()
let service: Service

beforeEach(async () => {
  await service?.[Symbol.asyncDispose]()
  answered.clear()
  service = await startService({
    mint: async (mint) => {
      changes.notify()
      await changes.until(() => answered.has(mint.org), `the answer for ${mint.org}`, 60_000)
      return mint.org === 'unlinked' ? { status: 404, reason: 'Not Found' } : mint.issue()
    },
  })
})
afterAll(() => service[Symbol.asyncDispose]())

function answer(...orgs: readonly string[]): void {
  for (const org of orgs) answered.add(org)
  changes.notify()
}

async function healthAt(admin: number | string, path: string): Promise<readonly [number, string]> {
  const { status, content } = await request(admin, get(path, 'acme'))
  return [status, content.toString()]
}

test('tokens.warm: ready as soon as each org was tried once, with whatever outcome, and not before', async () => {
  await using env = await environmentFor(service)
  const socket = `${env.OAP_APP_SECRET_FILE}.sock`
  const warm = { OAP_TOKENS_WARM: WARM.join(), OAP_TOKENS_MINT_TIMEOUT: '1m', OAP_ADMIN_ADDRESS: `unix:${socket}` }
  await using proxy = spawnProxy({ env: { ...env, ...warm } })
  const health = (path: string) => healthAt(socket, path)
  const firstAnswer = () => health('/livez').catch(() => undefined)
  expect(await eventually(firstAnswer, 'an answer', 15_000)).toEqual([200, 'ok\n'])
  expect(await health('/readyz')).toEqual([503, 'not ready: warm\n'])

  await changes.until(() => service.tokens.mints.length === WARM.length, 'a mint for each org', 15_000)
  answer('acme', 'globex', 'unlinked')
  // The refusal is logged after it was handled, and the other two were answered before.
  await proxy.waitForLine(/"msg":"mint failed".*"orgId":"unlinked"|"orgId":"unlinked".*"msg":"mint failed"/)
  expect(await health('/readyz')).toEqual([503, 'not ready: warm\n'])
  expect(proxy.output).not.toContain('"msg":"ready"')

  answer('initech')
  const { port } = await proxy.ready()
  expect(await health('/readyz')).toEqual([200, 'ok\n'])

  for (const org of WARM.filter((name) => name !== 'unlinked')) {
    expect((await request(port, get('/v2/x', org))).status).toBe(200)
  }
  expect(service.tokens.mints.map(({ org }) => org).sort()).toEqual([...WARM].sort())
})

test('SIGTERM: /readyz fails at once, while the process lives and serves requests', async () => {
  answer('acme')
  await using proxy: ProxyProcess = await startProxyProcess(service, { settings: { 'shutdown.delay': '1s' } })
  expect(await healthAt(proxy.adminPort, '/readyz')).toEqual([200, 'ok\n'])
  proxy.spawned.signal('SIGTERM')
  await proxy.spawned.waitForLine(/"msg":"drain"/)
  expect(await healthAt(proxy.adminPort, '/readyz')).toEqual([503, 'not ready: accepting\n'])
  expect(await healthAt(proxy.adminPort, '/livez')).toEqual([200, 'ok\n'])
  expect((await request(proxy.port, get('/v2/x', 'acme'))).status).toBe(200)
  expect(await proxy.spawned.exited).toEqual({ code: 0, signal: null })
})
