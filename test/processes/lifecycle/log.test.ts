/** The settings of the log, in the whole program. */

import { expect, test } from 'vitest'
import { get } from '../../support/case-table.ts'
import { scaled } from '../../support/pace.ts'
import { request } from '../../support/raw-client.ts'
import { serviceForFile } from '../../support/service-for-file.ts'
import { type SpawnedProxy, spawnProxy } from '../../support/spawn-proxy.ts'

const served = serviceForFile({
  script: ({ target }) => (target === '/v2/missing' ? { status: 404, content: 'no' } : { content: 'yes' }),
})

/**
 * Sends a good request, one that the service refuses and one that the proxy refuses, and stops the proxy, so that all lines
 * are written.
 */
async function runWith(settings: Record<string, string>, ready = /"msg":"ready"/): Promise<SpawnedProxy> {
  await using proxy = spawnProxy({ env: { ...served.env, ...settings } })
  const line = await proxy.waitForLine(ready)
  const port = Number(/address"?[:=]"?[\w.[\]]+:(\d+)/.exec(line)?.[1])
  expect((await request(port, get('/v2/good', 'acme'))).status).toBe(200)
  expect((await request(port, get('/v2/missing', 'acme'))).status).toBe(404)
  expect((await request(port, get('/v2/refused', 'a b'))).status).toBe(400)
  proxy.signal('SIGTERM')
  expect((await proxy.exited).code).toBe(0)
  return proxy
}

const requestsIn = (proxy: SpawnedProxy) =>
  proxy.logs.filter(({ msg }) => msg === 'request').map(({ path, status, code }) => [path, status, code])

const GOOD = ['/v2/good', 200, undefined]
const MISSING = ['/v2/missing', 404, undefined]
const REFUSED = ['/v2/refused', 400, 'org_id_invalid']

test.each([
  ['all', [GOOD, MISSING, REFUSED]],
  ['errors', [MISSING, REFUSED]],
  ['off', []],
])('log.requests: %s', async (requests, lines) => {
  const proxy = await runWith({ OAP_LOG_REQUESTS: requests })
  expect(requestsIn(proxy)).toEqual(lines)
  expect(proxy.logs.map(({ msg }) => msg)).toEqual(expect.arrayContaining(['start', 'ready', 'drain', 'stopped']))
})

test('a line is written within 50 ms, also when no other follows', async () => {
  await using proxy = spawnProxy({ env: served.env })
  const { port } = await proxy.ready()
  const delaysMs: number[] = []
  for (let i = 0; i < 5; i++) {
    const startedAt = performance.now()
    await request(port, get(`/v2/line-${i}`, 'acme'))
    await proxy.waitForLine(new RegExp(`"path":"/v2/line-${i}"`))
    delaysMs.push(performance.now() - startedAt)
  }
  // The best of five, because a busy machine delays single ones.
  expect(Math.min(...delaysMs)).toBeLessThan(scaled(100))
})

test('log.level: warn leaves out lower levels, requests included', async () => {
  await using proxy = spawnProxy({
    env: { ...served.env, OAP_LOG_LEVEL: 'warn', OAP_APP_SECRET_FILE: '', OAP_APP_SECRET: 'x' },
  })
  await proxy.waitForLine(/"level":"warn"/)
  proxy.signal('SIGTERM')
  await proxy.exited
  expect(proxy.logs.length).toBeGreaterThan(0)
  expect(proxy.logs.filter(({ level }) => level !== 'warn')).toEqual([])
})

test('log.format: pretty writes one readable line for each event, without colours unless on a terminal', async () => {
  const proxy = await runWith({ OAP_LOG_FORMAT: 'pretty' }, / ready /)
  expect(proxy.logs).toEqual([])
  const line = proxy.stdout.find((text) => text.includes('/v2/missing'))
  expect(line).toMatch(
    /^\d\d:\d\d:\d\d\.\d{3} INFO {2}request requestId="\S+" orgId="acme" method="GET" path="\/v2\/missing" status=404 durationMs=[\d.]+ originMs=[\d.]+ token="hit" bytesIn=0 bytesOut=2$/,
  )
  expect(proxy.output).not.toContain('\x1b')
})
