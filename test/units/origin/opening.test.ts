/** Connections to the origin that cannot be opened, and the end of all connections. */

import { randomBytes } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { createServer, isIP, type LookupFunction } from 'node:net'
import { setTimeout } from 'node:timers/promises'
import { createSecureContext, type TLSSocket } from 'node:tls'
import { describe, expect, test } from 'vitest'
import { call } from '../../../src/origin/call.ts'
import { ConnectionPool } from '../../../src/origin/connection-pool.ts'
import { CA_FILE, certificate } from '../../support/certificates.ts'
import { openDeadEnd } from '../../support/dead-end.ts'
import { listening } from '../../support/listening.ts'
import { startOrigin } from '../../support/origin.ts'
import type { OriginScript } from '../../support/origin-connection.ts'
import { FRESH, onCue, startOriginPool } from '../../support/origin-pool.ts'
import { Recorder } from '../../support/recorder.ts'

test('a listener that closes during the TLS handshake fails the attempt at once', async () => {
  await using server = await listening(createServer((socket) => socket.end()))
  const baseUrl = new URL(`https://127.0.0.1:${server.port}`)
  await using pool = await startOriginPool(undefined, { baseUrl })
  expect(await pool.send('/').failed()).toMatchObject({ code: 'tls_protocol_error' })
})

describe.skipIf(process.platform !== 'linux')('a name with several addresses', () => {
  /** Says that the name has these addresses. */
  const finds =
    (...addresses: readonly string[]): LookupFunction =>
    (_, __, done) =>
      done(
        null,
        addresses.map((address) => ({ address, family: isIP(address) })),
      )
  const far = (port: number) => new URL(`http://far.test:${port}`)

  // Left to itself, Node gives up an address after 250 ms.
  test.each([
    ['refuses', ['127.0.0.2', '127.0.0.3']],
    ['is as far away', ['127.0.0.2', '127.0.0.2']],
  ])('an attempt that takes long succeeds if the next address %s', async (_, addresses) => {
    await using slow = await openDeadEnd('127.0.0.2')
    await using pool = await startOriginPool(undefined, { baseUrl: far(slow.port), lookup: finds(...addresses) })
    const sent = pool.send('/')
    await setTimeout(400)
    slow.wake()
    expect((await sent.ended()).content.toString()).toBe('awake')
  })

  test.each(['http', 'https'])('%s: each that does not answer costs a quarter of a second, once', async (scheme) => {
    await using dead = await openDeadEnd('127.0.0.2')
    const tls = scheme === 'https' ? { tls: certificate('localhost') } : {}
    await using server = await startOrigin(undefined, { ...tls, host: '127.0.0.3', port: dead.port })
    await using pool = await startOriginPool(undefined, {
      baseUrl: new URL(`${scheme}://localhost:${server.port}`),
      lookup: finds('127.0.0.2', '127.0.0.2', '127.0.0.2', '127.0.0.2', '127.0.0.3'),
      ...(scheme === 'https' && { secureContext: createSecureContext({ ca: readFileSync(CA_FILE) }) }),
    })
    const tookMs: number[] = []
    for (const target of ['/1', '/2']) {
      const startedAt = performance.now()
      await pool.send(target, FRESH).ended()
      tookMs.push(performance.now() - startedAt)
    }
    expect(tookMs[0]).toBeGreaterThan(950)
    expect(tookMs[0]).toBeLessThan(1_700)
    expect(tookMs[1]).toBeLessThan(250)
    expect(server.connections).toHaveLength(2)
  })

  test('a short time limit is enough for the last of them', async () => {
    await using dead = await openDeadEnd('127.0.0.2')
    await using server = await startOrigin(undefined, { host: '127.0.0.3', port: dead.port })
    await using pool = await startOriginPool(undefined, {
      baseUrl: far(dead.port),
      lookup: finds('127.0.0.2', '127.0.0.2', '127.0.0.2', '127.0.0.2', '127.0.0.3'),
      connectTimeoutMs: 900,
    })
    await pool.send('/').ended()
    expect(server.connections).toHaveLength(1)
  })

  test('if none answers in time, the error names the setting', async () => {
    await using dead = await openDeadEnd('127.0.0.2')
    await using pool = await startOriginPool(undefined, {
      baseUrl: far(dead.port),
      lookup: finds('127.0.0.2', '127.0.0.2'),
      connectTimeoutMs: 400,
    })
    expect(await pool.send('/').failed()).toMatchObject({
      code: 'connection_timeout',
      hint: expect.stringContaining('origin.connectTimeout'),
    })
  })

  test('if all fail, the first that answered speaks for all', async () => {
    const lookup = finds('2001:db8::1', '127.0.0.2', '127.0.0.3') // the first is an example: no network leads to it
    await using pool = await startOriginPool(undefined, { baseUrl: far(1), lookup })
    const error = await pool.send('/').failed()
    expect(error).toMatchObject({ code: 'connection_refused', message: expect.stringContaining('127.0.0.2') })
  })
})

describe('the end of all connections', () => {
  test('every attempt fails, in whatever state, and every connection ends', async () => {
    const cue = onCue()
    await using pool = await startOriginPool(cue.script, { connections: 2 })
    const idle = pool.send('/idle')
    await pool.seen(1)
    cue.answer('/idle')
    await idle.ended()
    const underWay = pool.send('/under-way')
    await pool.seen(2)
    const connecting = pool.send('/connecting')
    const waiting = pool.send('/waiting')
    const fresh = pool.send('/fresh', FRESH)
    pool.pool.close()
    for (const recorder of [underWay, connecting, waiting, fresh]) {
      expect(recorder.told.at(-1)).toBe('failed')
      expect(recorder.error).toMatchObject({ code: 'connection_terminated' })
    }
    await pool.server.waitFor(({ openConnections }) => openConnections.every(({ peerEnd }) => peerEnd !== undefined))
    expect(pool.pool.stats).toEqual({ connected: 0, free: 0, pending: 0 })
    expect(idle.told).toEqual(['connected', 'head', 'end'])
  })

  test('an attempt during the end fails at once, and opens no connection', async () => {
    const cue = onCue()
    await using pool = await startOriginPool(cue.script, { connections: 1 })
    const again: Recorder[] = []
    const retrying = [pool.send('/under-way'), pool.send('/waiting')]
    for (const recorder of retrying) {
      recorder.onTold = (what) => {
        if (what === 'failed') again.push(pool.send('/again'), pool.send('/again', FRESH))
      }
    }
    await pool.seen(1)
    pool.pool.close()
    again.push(pool.send('/late'), pool.send('/late', FRESH))
    expect(again).toHaveLength(6)
    for (const recorder of again) expect(recorder.told).toEqual(['failed'])
    await pool.server.waitFor(({ openConnections }) => openConnections.every(({ peerEnd }) => peerEnd !== undefined))
    expect(pool.server.connections).toHaveLength(1)
  })
})

/** A roll-back that drops the extended master secret: RFC 7627 §5.3 demands that the handshake fails. */
test('a service that resumes no TLS session sees none, and nothing fails: neither a request nor a mint', async () => {
  const tls = { ...certificate('localhost'), ticketKeys: randomBytes(48), maxVersion: 'TLSv1.2' } as const
  const resumed: boolean[] = []
  const script: OriginScript = (_, { socket }) => {
    resumed.push((socket as TLSSocket).isSessionReused())
    return {}
  }
  await using server = await startOrigin(script, { tls })
  const origin = new ConnectionPool({
    baseUrl: new URL(server.url),
    connections: 4,
    connectTimeoutMs: 5_000,
    secureContext: createSecureContext({ ca: readFileSync(CA_FILE) }),
  })
  const send = async () => {
    const recorder = new Recorder({ ...FRESH, method: 'POST' })
    origin.dispatch(recorder.attempt)
    await recorder.ended()
  }
  await send()
  await send()
  expect(resumed).toEqual([false, false])
  server.present({ ...tls, secureOptions: SSL_OP_NO_EXTENDED_MASTER_SECRET })
  const mint = { method: 'POST', target: '/', fields: ['host', 'origin.example'], ...FRESH }
  await expect(call(origin, mint, 5_000)).resolves.toMatchObject({ status: 200 })
  await send()
  expect(resumed).toEqual([false, false, false, false])
  origin.close()
})

const SSL_OP_NO_EXTENDED_MASTER_SECRET = 1
