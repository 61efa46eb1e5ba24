/** Ten thousand clients keep idle connections: requests of others are served as usual. */

import { readFileSync } from 'node:fs'
import { connect, type Socket } from 'node:net'
import { expect, test } from 'vitest'
import { get } from '../support/case-table.ts'
import { KeepAliveClient } from '../support/keep-alive-client.ts'
import { scaled } from '../support/pace.ts'
import { startService } from '../support/service.ts'
import { environmentFor, spawnProxy } from '../support/spawn-proxy.ts'

const IDLE = 10_000
const REQUESTS = 500
const P99_MS = 500

const [, descriptors = '0'] = /^Max open files\s+(\d+)/m.exec(readFileSync('/proc/self/limits', 'utf8')) ?? []
const hasRoom = Number(descriptors) >= IDLE + 1_000

/** Resolves when its one request was answered. The connection stays open. */
function openIdle(port: number): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const socket = connect({ port, host: '127.0.0.1' }, () => socket.write(get('/v2/x', 'acme')))
    socket.once('data', () => resolve(socket))
    socket.once('error', reject)
  })
}

test.skipIf(!hasRoom)(
  `${IDLE} idle connections${hasRoom ? '' : ` (skipped: ${descriptors} descriptors)`}`,
  async () => {
    await using service = await startService()
    await using env = await environmentFor(service)
    await using proxy = spawnProxy({
      env: { ...env, OAP_LISTEN_MAX_CONNECTIONS: `${IDLE + 100}`, OAP_LISTEN_KEEP_ALIVE_TIMEOUT: '5m' },
    })
    const { port } = await proxy.ready()
    const idle: Socket[] = []
    const opener = async () => {
      while (idle.length < IDLE) {
        idle.push(await openIdle(port))
        service.origin.requests.length = 0
      }
    }
    await Promise.all(Array.from({ length: 64 }, opener))

    using client = new KeepAliveClient(port)
    const durations: number[] = []
    for (let i = 0; i < REQUESTS; i++) {
      const { status, durationMs } = await client.get('/v2/x', 'acme')
      expect(status).toBe(200)
      durations.push(durationMs)
    }
    const p99 = durations.sort((a, b) => a - b)[Math.floor(REQUESTS * 0.99)]
    expect(p99).toBeLessThan(scaled(P99_MS))
    expect(
      idle.every((socket) => socket.readyState === 'open'),
      'idle connections that live on',
    ).toBe(true)

    for (const socket of idle) socket.destroy()
    proxy.signal('SIGTERM')
    expect((await proxy.exited).code).toBe(0)
  },
)
