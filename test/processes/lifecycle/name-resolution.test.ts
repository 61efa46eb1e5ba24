/** The name of the service gets another address, or has a dead one, or another name hangs: requests, mints and WebSockets reach the service. */

import { writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { expect, test } from 'vitest'
import { get } from '../../support/case-table.ts'
import { eventually } from '../../support/changes.ts'
import { openDeadEnd } from '../../support/dead-end.ts'
import { folderForFile } from '../../support/folder.ts'
import { HANDSHAKE } from '../../support/handshake.ts'
import { listening } from '../../support/listening.ts'
import { type ProxyProcess, startProxyProcess } from '../../support/proxy-process.ts'
import { fieldOf, request } from '../../support/raw-client.ts'
import { type Service, type ServiceOptions, startService } from '../../support/service.ts'
import type { ProxySettings } from '../../support/start-proxy.ts'
import { echoServer } from '../../support/websocket-echo.ts'

const RECORD = (await folderForFile()).at('record')

/**
 * Runs in the process before the program. Every look-up of `service.test` reads the record, and none of `hung.test` ends. Each has
 * a thread, of which libuv gives look-ups two if nobody says otherwise.
 */
const PRELOADED = `
import dns from 'node:dns'
import { readFileSync } from 'node:fs'
import { isIPv6 } from 'node:net'
let freeThreads = 2
const waiting = []
const startNext = () => {
  while (freeThreads > 0 && waiting.length > 0) {
    freeThreads--
    waiting.shift()()
  }
}
const { lookup } = dns
dns.lookup = (name, options, callback) => {
  if (!name.endsWith('.test')) return lookup(name, options, callback)
  waiting.push(() => {
    if (name === 'hung.test') return
    freeThreads++
    answer(options, callback)
  })
  startNext()
}
const answer = (options, callback) => {
  const found = readFileSync('${RECORD}', 'utf8').split(',')
    .map((address) => ({ address, family: isIPv6(address) ? 6 : 4 }))
  if (options.all) process.nextTick(callback, null, found)
  else process.nextTick(callback, null, found[0].address, found[0].family)
}
`

function setRecord(...addresses: readonly string[]): void {
  writeFileSync(RECORD, addresses.join())
}

function startNamed({ appId, appSecret, origin }: Service, others: ProxySettings = {}): Promise<ProxyProcess> {
  const settings = { 'origin.allowInsecure': 'true', ...others }
  const nodeArgs = ['--import', `data:text/javascript,${encodeURIComponent(PRELOADED)}`]
  const baseUrl = `http://service.test:${origin.port}`
  return startProxyProcess({ baseUrl, appId, appSecret }, { settings, nodeArgs })
}

function startNamedService(content: string, options: ServiceOptions = {}): Promise<Service> {
  return startService({ script: echoServer({ content }).script, ...options })
}

/** True if this machine has the address. Other systems have only 127.0.0.1, and some have no IPv6. */
async function has(host: string): Promise<boolean> {
  const probe = await listening(createServer(), host).catch(() => undefined)
  await probe?.[Symbol.asyncDispose]()
  return probe !== undefined
}

test.skipIf(!(await has('127.0.0.2')))(
  'the record changes and the old address dies: new connections go to the new address',
  async () => {
    await using first = await startNamedService('from the first')
    const { appSecret } = first
    const { port } = first.origin
    const same = { host: '127.0.0.2', port, appSecret, acceptsAnyToken: true }
    await using second = await startNamedService('from the second', same)
    setRecord('127.0.0.1')
    await using proxy = await startNamed(first)
    expect((await request(proxy.port, get('/v2/x', 'acme'))).content.toString()).toBe('from the first')
    expect(second.origin.requests).toEqual([])

    setRecord('127.0.0.2')
    await first.origin.stop()
    for (const org of ['acme', 'cold']) {
      expect((await request(proxy.port, get('/v2/x', org))).content.toString()).toBe('from the second')
    }
    expect((await request(proxy.port, get('/v2/ws', 'acme', ...HANDSHAKE))).status).toBe(101)
    const targets = second.origin.requests.map(({ target }) => target)
    expect(targets).toEqual(['/v2/x', '/v2/orgs/cold/access', '/v2/x', '/v2/ws'])
  },
)

test.skipIf(process.platform !== 'linux' || !(await has('::1')))(
  'an IPv6 address without an answer: the IPv4 address is tried before the time limit',
  async () => {
    await using service = await startNamedService('over IPv4')
    await using _ = await openDeadEnd('::1', service.origin.port)
    setRecord('::1', '127.0.0.1')
    await using proxy = await startNamed(service)
    const { content } = await request(proxy.port, get('/v2/x', 'acme'))
    expect(content.toString()).toBe('over IPv4')
    const handshake = await request(proxy.port, get('/v2/ws', 'acme', ...HANDSHAKE))
    expect([handshake.status, fieldOf(handshake, 'upgrade')]).toEqual([101, 'websocket'])
  },
)

test('the look-up of another name hangs: no request notices', async () => {
  await using service = await startNamedService('from the service')
  setRecord('127.0.0.1')
  await using proxy = await startNamed(service, { 'fleet.store': 'redis://hung.test:6379' })
  const probes = async () => {
    const outcomes = ['timeout', 'error'].map((outcome) =>
      proxy.metric(`oap_fleet_requests_total{operation="probe",outcome="${outcome}"}`),
    )
    return (await Promise.all(outcomes)).reduce((sum, count) => sum + count)
  }
  await eventually(async () => (await probes()) >= 3, 'three attempts to reach the store', 30_000)
  for (const org of ['acme', 'globex']) {
    // Each is a new connection.
    expect((await request(proxy.port, get('/v2/ws', org, ...HANDSHAKE))).status).toBe(101)
  }
  const status = await fetch(`http://127.0.0.1:${proxy.adminPort}/status`)
  const { warnings } = (await status.json()) as { warnings: { code: string; text: string }[] }
  expect(warnings).toContainEqual(
    expect.objectContaining({ code: 'name_unresolved', text: expect.stringContaining('hung.test takes long') }),
  )
})
