/** T2: a token is not sent past the end that it states, however long a request has waited with it. */

import { setTimeout } from 'node:timers/promises'
import { beforeEach, expect, test } from 'vitest'
import { get } from '../../support/case-table.ts'
import { eventually, Gate } from '../../support/changes.ts'
import { RawClient } from '../../support/raw-client.ts'
import { type Service, startService } from '../../support/service.ts'
import { startProxy } from '../../support/start-proxy.ts'

const LIFE_MS = 2_000

let service: Service
let mintedAt: Map<string, number>
/** Of the token of each request that the service got. */
let agesMs: number[]
beforeEach(async () => {
  mintedAt = new Map()
  agesMs = []
  service = await startService({
    mint: ({ org }) => {
      const token = service.tokens.issueToken(org)
      mintedAt.set(token, performance.now())
      return { content: JSON.stringify({ orgAccessToken: token, expires_in: LIFE_MS / 1_000 }) }
    },
  })
  return () => service[Symbol.asyncDispose]()
})

function noteAge(authorization: string | undefined): void {
  agesMs.push(performance.now() - (mintedAt.get(authorization?.replace('Bearer ', '') ?? '') ?? 0))
}

function firstToEnd() {
  const [first = 0] = mintedAt.values()
  return eventually(() => performance.now() > first + LIFE_MS || undefined, 'the end of the token')
}

test('a request that waits for a connection', async () => {
  const gate = new Gate()
  service.script = async (received) => {
    noteAge(received.values('authorization')[0])
    if (received.target === '/v2/held') await gate.pass()
    return { content: received.target }
  }
  await using proxy = await startProxy(service, { 'origin.connections': '1' })
  await using held = await RawClient.sending(proxy.port, get('/v2/held', 'acme'))
  await gate.untilWaiting(1)
  await using queued = await RawClient.sending(proxy.port, get('/v2/queued', 'acme'))
  await firstToEnd()
  gate.open()
  expect((await held.response()).status).toBe(200)
  expect((await queued.response()).content.toString()).toBe('/v2/queued')
  expect(new Set(service.requests.map(({ connection }) => connection)).size, 'connections').toBe(1)
  expect(agesMs).toHaveLength(2)
  expect(Math.max(...agesMs)).toBeLessThan(LIFE_MS)
  expect(service.tokens.mints).toHaveLength(2)
})

test('one with Expect whose connection closes meanwhile is asked for its content when its head has gone out, not before', async () => {
  const [held, long, mint] = [new Gate(), new Gate(), new Gate()]
  service.script = async (received) => {
    if (received.target === '/v2/held') await held.pass()
    if (received.target === '/v2/long') await long.pass()
    await received.ended
    return { content: received.target }
  }
  await using proxy = await startProxy(service, { 'origin.connections': '1' })
  await using first = await RawClient.sending(proxy.port, get('/v2/held', 'acme'))
  await held.untilWaiting(1)
  const lines = ['Expect: 100-continue', 'Content-Length: 4']
  await using post = await RawClient.sending(proxy.port, get('/v2/post', 'acme', ...lines).replace('GET', 'POST'))
  await firstToEnd()
  await using other = await RawClient.sending(proxy.port, get('/v2/long', 'initech'))
  await eventually(() => (service.tokens.mintsOf('initech').length === 1 ? true : undefined), 'the token of initech')
  const { script } = service.tokens
  service.tokens.script = async (seen) => {
    if (seen.org === 'acme') await mint.pass()
    return script(seen)
  }
  held.open()
  await first.response()
  await mint.untilWaiting(1)
  service.requests[0]?.connection.end()
  await long.untilWaiting(1) // the only connection is that of another request now
  mint.open()
  await setTimeout(400)
  expect(post.received.toString()).toBe('')
  long.open()
  await other.response()
  await eventually(() => (post.received.includes('100 Continue') ? true : undefined), 'the 100')
  expect(service.requests.at(-1)?.target).toBe('/v2/post')
  post.send('done')
  expect((await post.response('POST')).status).toBe(200)
})
