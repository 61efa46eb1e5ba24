/** The token of a request ends while it waits for a connection. The simulation looks that none is sent past its end. */

import { setTimeout } from 'node:timers/promises'
import { beforeEach, expect, test } from 'vitest'
import { get } from '../../support/case-table.ts'
import { eventually, Gate } from '../../support/changes.ts'
import { RawClient } from '../../support/raw-client.ts'
import { type Service, startService } from '../../support/service.ts'
import { startProxy } from '../../support/start-proxy.ts'

const LIFE_MS = 2_000

let service: Service
let firstEndsAt: number
beforeEach(async () => {
  firstEndsAt = Number.POSITIVE_INFINITY
  service = await startService({
    mint: ({ org }) => {
      firstEndsAt = Math.min(firstEndsAt, performance.now() + LIFE_MS)
      const orgAccessToken = service.tokens.issueToken(org)
      return { content: JSON.stringify({ orgAccessToken, expires_in: LIFE_MS / 1_000 }) }
    },
  })
  return () => service[Symbol.asyncDispose]()
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
  await eventually(() => performance.now() > firstEndsAt || undefined, 'the end of the first token')
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
