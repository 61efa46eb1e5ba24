/** An attempt that has a connection, and waits for a token there. */

import { setTimeout } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { type OriginPool, onCue, startOriginPool } from '../../support/origin-pool.ts'
import { Recorder } from '../../support/recorder.ts'

const TOKEN = 'authorization: Bearer t\r\n'

function later() {
  let bring = (_: string) => {}
  let fail = (_: Error) => {}
  const promise = new Promise<string>((resolve, reject) => {
    bring = resolve
    fail = reject
  })
  return { promise, bring, fail }
}

/** Sends a request that has to wait for its token. */
function sendAwaiting(pool: OriginPool, token: Promise<string>) {
  const recorder = new Recorder({ target: '/awaiting', method: 'POST' })
  recorder.token = token
  pool.pool.dispatch(recorder.attempt)
  return recorder
}

test.each(['a new connection', 'one that was used'])(
  'the service closes %s meanwhile: the request is sent elsewhere once it has its token',
  async (kind) => {
    await using pool = await startOriginPool()
    if (kind !== 'a new connection') await pool.send('/before').ended()
    const token = later()
    const sent = sendAwaiting(pool, token.promise)
    await sent.waitFor(({ told }) => told.length > 0, 'a connection')
    await pool.server.waitFor(({ connections }) => connections.length === 1)
    pool.server.connections[0]?.end()
    await pool.server.waitFor(({ connections }) => connections[0]?.peerEnd !== undefined)
    token.bring(TOKEN)
    await sent.ended()
    expect(sent.told).toEqual(['connected', 'connected', 'head', 'end'])
    expect(pool.server.connections).toHaveLength(2)
  },
)

test.each([
  ['a response', 'HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison'],
  ['an end', ''],
])('%s that waits there when the token comes is seen before the request is written', async (_, bytes) => {
  await using pool = await startOriginPool(({ target }) => ({ content: target }))
  const token = later()
  const sent = sendAwaiting(pool, token.promise)
  await sent.waitFor(({ told }) => told.length > 0, 'a connection')
  await pool.server.waitFor(({ connections }) => connections.length === 1)
  const [connection] = pool.server.connections
  // The kernel has it now, and we cannot read it before the next turn of the event loop.
  if (bytes === '') connection?.end()
  else connection?.write(bytes)
  token.bring(TOKEN)
  expect((await sent.ended()).content.toString()).toBe('/awaiting')
  expect(connection?.requests).toEqual([])
})

test('a connection that closes behind such a request was idle, like one that is reused', async () => {
  await using pool = await startOriginPool((_, connection) => connection.end())
  const token = later()
  const sent = sendAwaiting(pool, token.promise)
  await sent.waitFor(({ told }) => told.length > 0, 'a connection')
  token.bring(TOKEN)
  expect(await sent.failed()).toMatchObject({ code: 'connection_terminated' })
  expect(sent.attempt).toMatchObject({ isSent: true, isReused: true, hasResponse: false })
})

test.each(['given up', 'without a token'])(
  'such a request that is %s then fails once, and is not sent',
  async (end) => {
    await using pool = await startOriginPool()
    const token = later()
    const sent = sendAwaiting(pool, token.promise)
    await sent.waitFor(({ told }) => told.length > 0, 'a connection')
    await pool.server.waitFor(({ connections }) => connections.length === 1)
    pool.server.connections[0]?.end()
    await pool.server.waitFor(({ connections }) => connections[0]?.peerEnd !== undefined)
    if (end === 'given up') {
      sent.attempt.abort(new Error(end))
      token.bring(TOKEN)
    } else token.fail(new Error(end))
    expect((await sent.failed()).message).toBe(end)
    await pool.send('/next').ended()
    expect(sent.told).toEqual(['connected', 'failed'])
    expect(pool.server.requests.map(({ target }) => target)).toEqual(['/next'])
  },
)

test.each(['no token comes', 'its client leaves'])(
  '%s: the connection, which has sent nothing, serves the next',
  async (end) => {
    await using pool = await startOriginPool()
    await pool.send('/1').ended()
    const token = later()
    const sent = sendAwaiting(pool, token.promise)
    await sent.waitFor(({ told }) => told.length > 0, 'a connection')
    if (end === 'no token comes') token.fail(new Error(end))
    else sent.attempt.abort(new Error(end))
    expect((await sent.failed()).message).toBe(end)
    expect(pool.pool.stats).toEqual({ connected: 1, free: 1, pending: 0 })
    await pool.send('/2').ended()
    token.bring(TOKEN)
    await pool.send('/3').ended()
    expect(pool.server.connections).toHaveLength(1)
    expect(pool.server.requests.map(({ target }) => target)).toEqual(['/1', '/2', '/3'])
  },
)

// A service that closes behind each response, and does not say so.
test('a request whose connection closes before it is sent keeps its turn', async () => {
  const cue = onCue()
  await using pool = await startOriginPool(
    async (request, connection) => {
      await cue.script(request, connection)
      connection.write('HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n')
      connection.end()
    },
    { connections: 1 },
  )
  const targets = ['/1', '/2', '/3', '/4']
  const sent = targets.map((target) => pool.send(target, { method: 'POST' }))
  for (const [i, target] of targets.entries()) {
    await pool.seen(i + 1)
    cue.answer(pool.server.requests[i]?.target ?? target)
  }
  for (const each of sent) await each.ended()
  expect(pool.server.requests.map(({ target }) => target)).toEqual(targets)
})

test('the waits of a request for connections have one limit together', async () => {
  const cue = onCue()
  await using pool = await startOriginPool(cue.script, { connections: 1, responseTimeoutMs: 1_000 })
  const busy = pool.send('/busy')
  await pool.seen(1)
  const token = later()
  const sent = sendAwaiting(pool, token.promise)
  await setTimeout(700)
  const startedAt = performance.now()
  cue.answer('/busy')
  await busy.ended()
  await sent.waitFor(({ told }) => told.length > 0, 'a connection')
  const next = pool.send('/next')
  pool.server.connections[0]?.end() // `next` gets the place
  await pool.seen(2)
  token.bring(TOKEN)
  expect(await sent.failed()).toMatchObject({ code: 'overloaded' })
  expect(performance.now() - startedAt).toBeLessThan(900)
  next.attempt.abort(new Error('over'))
})
