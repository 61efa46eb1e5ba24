import { expect, test } from 'vitest'
import { byHop, type Conditions, goodNetwork } from './bad-network.ts'
import { startFaultProxy } from './fault-proxy.ts'
import { startOrigin } from './origin.ts'
import { RawClient } from './raw-client.ts'
import { withSeed } from './seed.ts'

const content = 'x'.repeat(1000)
const raw = `POST / HTTP/1.1\r\nContent-Length: ${content.length}\r\n\r\n${content}`
const headBytes = raw.length - content.length

/** The outcome of one request through a proxy with these conditions, at the origin and at the client. */
async function through(conditions: Conditions) {
  return await withSeed(async (random) => {
    await using origin = await startOrigin(async (seen) => {
      await seen.ended
      return { content: seen.content }
    })
    await using proxy = await startFaultProxy(origin.port, random, () => conditions)
    await using client = await RawClient.connect(proxy.port, { deadlineMs: 300 })
    client.send(raw)
    const response = await client.response('POST').catch((error: Error) => error.name)
    await origin.waitFor(() => origin.requests[0] !== undefined && origin.requests[0].state !== 'open')
    const [seen] = origin.requests
    return { response, state: seen?.state, contentBytes: seen?.contentBytes, peerEnd: origin.connections[0]?.peerEnd }
  })
}

test.each([
  ['nothing', {}],
  ['slices', { sliceBytes: 7 }],
  ['latency', { latencyMs: 20 }],
  ['little bandwidth', { bytesPerSecond: 20_000 }],
])('bytes pass unchanged through %s', async (_, conditions) => {
  const { response, state } = await through(conditions)
  expect(response).toMatchObject({ status: 200, isComplete: true, content: Buffer.from(content) })
  expect(state).toBe('complete')
})

test('latency and bandwidth take their time', async () => {
  const startedAt = performance.now()
  await through({ latencyMs: 30, bytesPerSecond: 20_000 })
  // Both ways: 2 × 30 ms, and about 1,000 bytes at 20 bytes per ms.
  expect(performance.now() - startedAt).toBeGreaterThan(150)
})

test('a reset on the way up reaches both ends', async () => {
  const seen = await through({ fault: { direction: 'up', afterBytes: headBytes + 10, kind: 'reset' } })
  expect(seen).toMatchObject({ response: 'StreamEnded', state: 'aborted' })
  expect(seen.contentBytes).toBeLessThanOrEqual(10)
})

test('a cut on the way down leaves half a response and a FIN', async () => {
  const { response } = await through({ fault: { direction: 'down', afterBytes: 100, kind: 'cut' } })
  expect(response).toMatchObject({ status: 200, isComplete: false })
})

test('a half-close on the way up is a FIN behind exactly so many bytes', async () => {
  const seen = await through({ fault: { direction: 'up', afterBytes: headBytes + 10, kind: 'half-close' } })
  expect(seen).toMatchObject({ state: 'aborted', contentBytes: 10, peerEnd: 'fin' })
})

test('a stall passes nothing on and breaks nothing', async () => {
  const seen = await through({ fault: { direction: 'down', afterBytes: 0, kind: 'stall' } })
  expect(seen).toMatchObject({ response: 'DeadlineExceeded', state: 'complete', peerEnd: undefined })
})

test('a stalled connection ends unnoticed until the network is well', () =>
  withSeed(async (random) => {
    await using origin = await startOrigin()
    const stall: Conditions = { fault: { direction: 'up', afterBytes: headBytes, kind: 'stall' } }
    await using proxy = await startFaultProxy(origin.port, random, () => stall)
    {
      await using client = await RawClient.connect(proxy.port)
      client.send(raw)
      await origin.waitFor(() => origin.requests.length === 1)
      expect(proxy.conditionsOf(client.socket.localPort)).toBe(stall)
    }
    expect(origin.openConnections).toHaveLength(1)
    proxy.heal()
    await origin.waitFor(() => origin.openConnections.length === 0)
    expect(origin.requests[0]?.contentBytes).toBe(0)
    await using client = await RawClient.connect(proxy.port)
    client.send(raw)
    expect(await client.response('POST')).toMatchObject({ status: 200 })
    expect(proxy.strikes).toBe(1)
  }))

test('a schedule can tell calls of the token endpoint from requests', () =>
  withSeed(async (random) => {
    await using origin = await startOrigin()
    const broken: Conditions = { fault: { direction: 'up', afterBytes: 0, kind: 'reset' } }
    await using proxy = await startFaultProxy(
      origin.port,
      random,
      byHop({ mints: () => broken, requests: goodNetwork }),
    )
    await using mint = await RawClient.connect(proxy.port)
    mint.send('POST /v2/orgs/acme/access HTTP/1.1\r\n\r\n')
    await expect(mint.response('POST')).rejects.toThrow('reset')
    await using client = await RawClient.connect(proxy.port)
    client.send(raw)
    expect(await client.response('POST')).toMatchObject({ status: 200 })
    expect(origin.requests.map(({ target }) => target)).toEqual(['/'])
  }))
