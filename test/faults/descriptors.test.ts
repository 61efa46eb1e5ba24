/** More clients than file descriptors: the program does not end, does not spin, and serves again once descriptors are free. */

import { spawn } from 'node:child_process'
import { readFile } from 'node:fs/promises'
import { setTimeout as sleep } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { get } from '../support/case-table.ts'
import { eventually } from '../support/changes.ts'
import { RawClient, request } from '../support/raw-client.ts'
import { startService } from '../support/service.ts'
import { environmentFor, MAIN, SpawnedProxy } from '../support/spawn-proxy.ts'

/** Node's own loader needs about two hundred at once during the start. */
const DESCRIPTORS = 64
const CLIENTS = 600
const WATCHED_MS = 1_000
const TICKS_PER_SECOND = 100

/** User and system time of the process so far. */
async function cpuMs(pid: number): Promise<number> {
  const fields = (await readFile(`/proc/${pid}/stat`, 'utf8')).split(') ')[1]?.split(' ') ?? []
  return ((Number(fields[11]) + Number(fields[12])) / TICKS_PER_SECOND) * 1_000
}

function spawnWith(descriptors: number, env: Readonly<Record<string, string>>): SpawnedProxy {
  const { PATH } = process.env
  const child = spawn('sh', ['-c', `ulimit -n ${descriptors} && exec "$0" "$@"`, process.execPath, MAIN], {
    env: { PATH, ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  return new SpawnedProxy(child)
}

test(`${CLIENTS} connections and ${DESCRIPTORS} descriptors`, async () => {
  await using service = await startService()
  await using env = await environmentFor(service)
  await using proxy = spawnWith(DESCRIPTORS, env)
  const { port } = await proxy.ready()
  expect((await request(port, get('/v2/x', 'acme'))).status).toBe(200)

  const clients = await Promise.all(Array.from({ length: CLIENTS }, () => RawClient.connect(port)))
  const before = await cpuMs(proxy.pid)
  await sleep(WATCHED_MS)
  expect((await cpuMs(proxy.pid)) - before, 'CPU time while nothing happens').toBeLessThan(WATCHED_MS / 2)
  expect(
    clients.some((client) => client.end === undefined),
    'connections that were taken',
  ).toBe(true)

  for (const client of clients) await client[Symbol.asyncDispose]()
  const serves = async () => {
    const response = await request(port, get('/v2/x', 'acme')).catch(() => undefined)
    return response?.status === 200 ? true : undefined
  }
  await eventually(serves, 'a good answer', 5_000)
  proxy.signal('SIGTERM')
  expect((await proxy.exited).code).toBe(0)
})

test('however many clients are connected, requests have descriptors for the service', async () => {
  await using service = await startService({ script: () => ({ content: 'served', closes: true }) })
  await using env = await environmentFor(service)
  await using proxy = spawnWith(DESCRIPTORS, env)
  const { port } = await proxy.ready()
  const clients: RawClient[] = []
  for (let round = 0; round < 3; round++) {
    clients.push(...(await Promise.all(Array.from({ length: DESCRIPTORS }, () => RawClient.connect(port)))))
    expect((await request(port, get('/v2/x', 'acme'))).status).toBe(200)
  }
  for (const client of clients) await client[Symbol.asyncDispose]()
})
