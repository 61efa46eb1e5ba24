/**
 * Faults on all three hops at once, from one seed, around the program as a process. No request is carried out twice that
 * must not be, none hangs, no cut message looks complete, and the process has no fault.
 */

import { expect, test } from 'vitest'
import { get } from '../support/case-table.ts'
import { badNetwork, byHop, type FaultProxy, type FaultSchedule, startFaultProxy } from '../support/fault-proxy.ts'
import type { OriginScript } from '../support/origin-connection.ts'
import { scaledSetting } from '../support/pace.ts'
import { startProxyProcess } from '../support/proxy-process.ts'
import { fieldOf, RawClient, type RawResponse, request } from '../support/raw-client.ts'
import { type Random, withSeed } from '../support/seed.ts'
import { type Service, startService } from '../support/service.ts'
import { expectWholePool } from '../support/whole-pool.ts'

const REQUESTS = 600
const RACES = 300
/** Most of this time is spent waiting for stalls to end. */
const AT_ONCE = 24
const PLACES = 16
const WARM_ORGS = 5
const CLIENT_DEADLINE_MS = 4_000

const METHODS = ['GET', 'HEAD', 'OPTIONS', 'PUT', 'DELETE', 'POST', 'POST', 'PATCH'] as const
type Method = (typeof METHODS)[number]

const SETTINGS = {
  'origin.connections': `${PLACES}`,
  'origin.responseTimeout': scaledSetting(1_000),
  'origin.idleTimeout': scaledSetting(500),
  'listen.idleTimeout': scaledSetting(500),
  'listen.headersTimeout': scaledSetting(500),
  'tokens.mintTimeout': scaledSetting(1_000),
  'tokens.mintRate': '10000',
} as const

const clientFaults = badNetwork({ faultShare: 0.25, withinBytes: 1500 })
const mintFaults = badNetwork({ faultShare: 1, withinBytes: 1800 })
const requestFaults = badNetwork({ faultShare: 1, withinBytes: 8_000 })

const RACED_RESPONSE = 'HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n'
/** Loses the answer to a later request, after the service got the request. On a fresh connection the answer would arrive. */
const idleFaults: FaultSchedule = (_, random) => ({
  fault: {
    direction: 'down',
    isLate: true,
    afterBytes: RACED_RESPONSE.length * random.integer(1, 4),
    kind: random.pick(['reset', 'cut', 'half-close'] as const),
  },
})

function contentOf(id: string): string {
  return `${id}:`.repeat(20 + (Number(id) % 400))
}

/** Targets are `/v2/<kind>/<id>`. */
const answer: OriginScript = async (seen, connection) => {
  const [, , kind, id = ''] = seen.target.split('/')
  await seen.ended
  if (kind === 'stormy') return { content: contentOf(id), isChunked: Number(id) % 2 === 0 }
  if (seen.state === 'complete') connection.write(RACED_RESPONSE)
}

interface Sent {
  readonly target: string
  readonly method: Method
  readonly response: RawResponse | 'broken' | 'hung'
}

interface Run {
  readonly service: Service
  readonly network: FaultProxy
  readonly random: Random
}

/** Checks all that must hold for every request, whatever happened to it. */
async function send(run: Run, kind: 'stormy' | 'raced', count: number): Promise<Sent[]> {
  const sent: Sent[] = []
  let next = 0
  const client = async () => {
    while (next < count) sent.push(await sendOne(run, kind, next++))
  }
  await Promise.all(Array.from({ length: AT_ONCE }, client))
  for (const each of sent) check(run, each)
  return sent
}

async function sendOne({ network, random: all }: Run, kind: string, number: number): Promise<Sent> {
  const random = all.numbered(number)
  const method = random.pick(METHODS)
  const target = `/v2/${kind}/${number}`
  const org = random.chance(0.3) ? `cold-${kind}-${number}` : `warm-${random.integer(1, WARM_ORGS)}`
  const takesContent = method === 'POST' || method === 'PATCH' || method === 'PUT'
  const content = takesContent && kind === 'stormy' ? contentOf(`${number}`) : ''
  const lines = takesContent ? [`Content-Length: ${content.length}`] : []
  await using client = await RawClient.sending(
    network.port,
    get(target, org, ...lines).replace('GET', method) + content,
    { deadlineMs: CLIENT_DEADLINE_MS },
  )
  const response = await client.response(method).catch(({ name }: Error) => {
    if (name !== 'DeadlineExceeded') return 'broken' as const
    const { fault } = network.conditionsOf(client.socket.localPort) ?? {}
    expect(fault?.kind, `${method} ${target} hung`).toBe('stall') // on its own side, which only the client can notice
    return 'hung' as const
  })
  return { target, method, response }
}

function check({ service }: Run, { target, method, response }: Sent): void {
  const seen = service.requests.filter((request) => request.target === target)
  const arrivals = seen.length
  for (const { state, contentBytes, content } of seen) {
    if (state === 'complete' && contentBytes > 0) expect(String(content)).toBe(contentOf(target.split('/')[3] ?? ''))
  }
  const isRepeatable = method !== 'POST' && method !== 'PATCH'
  expect(arrivals, `${method} ${target} at the origin`).toBeLessThanOrEqual(isRepeatable ? 2 : 1)
  if (typeof response === 'string' || !response.isComplete) return
  if (response.status !== 200) {
    expect(fieldOf(response, 'proxy-status'), `${method} ${target}: ${response.status}`).toMatch(/; error=/)
    return
  }
  expect(arrivals, `${method} ${target} answered with 200`).toBeGreaterThanOrEqual(1)
  const content = method === 'HEAD' || target.includes('raced') ? '' : contentOf(target.split('/')[3] ?? '')
  expect(response.content.toString(), `${method} ${target}`).toBe(content)
}

function statusOf({ response }: Sent): number | undefined {
  return typeof response === 'string' || !response.isComplete ? undefined : response.status
}

/** The code, if the proxy itself answered. */
function whatFailed({ response }: Sent): string {
  const status = typeof response === 'string' ? undefined : fieldOf(response, 'proxy-status')
  return /; details="(\w+)"/.exec(status ?? '')?.[1] ?? String(status)
}

test(`${REQUESTS} requests, ${RACES} races`, () =>
  withSeed(async (random) => {
    await using service = await startService({ script: answer })
    await using toService = await startFaultProxy(service.origin.port, random.numbered(1))
    const { appId, appSecret } = service.tokens
    const baseUrl = `http://127.0.0.1:${toService.port}`
    await using proxy = await startProxyProcess({ baseUrl, appId, appSecret }, { settings: SETTINGS })
    await using toProxy = await startFaultProxy(proxy.port, random.numbered(2))
    const run: Run = { service, network: toProxy, random: random.numbered(4) }

    for (let i = 1; i <= WARM_ORGS; i++)
      expect((await request(proxy.port, get(`/v2/stormy/${i}/first`, `warm-${i}`))).status).toBe(200)
    toProxy.schedule = clientFaults
    toService.schedule = byHop({ mints: mintFaults, requests: requestFaults })
    const served = (await send(run, 'stormy', REQUESTS)).filter((each) => statusOf(each) === 200).length
    expect(served, 'requests that came through all the same').toBeGreaterThan(REQUESTS / 4)
    expect(toService.strikes, 'faults before the service').toBeGreaterThan(REQUESTS / 30)
    expect(toProxy.strikes, 'faults before the proxy').toBeGreaterThan(REQUESTS / 20)

    toService.drop((firstLine) => !firstLine.startsWith('POST /v2/orgs/'))
    toService.schedule = byHop({ mints: mintFaults, requests: idleFaults })
    const strikesBefore = toService.strikes
    for (const each of await send(run, 'raced', RACES)) {
      if (each.method === 'POST' || each.method === 'PATCH') continue
      if ((statusOf(each) ?? 0) < 502) continue
      const lines = proxy.spawned.stdout.filter((line) => line.includes(`"path":"${each.target}"`))
      expect(whatFailed(each), `${each.method} in a race that it must win: ${lines}`).toMatch(/^token_/)
    }
    expect(toService.strikes - strikesBefore, 'races').toBeGreaterThan(RACES / 20)

    toService.heal()
    toProxy.heal()
    await expectWholePool(proxy.port, service, PLACES, 'warm-1')
    const { stderr, stdout } = proxy.spawned
    expect(stderr).toEqual([])
    expect(stdout.filter((line) => /unexpected failure|proxy_internal_error|"level":"fatal"/.test(line))).toEqual([])
    proxy.spawned.signal('SIGTERM')
    expect(await proxy.spawned.exited).toEqual({ code: 0, signal: null })
  }))
