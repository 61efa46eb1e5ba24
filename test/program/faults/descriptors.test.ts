/** More clients than file descriptors: the program does not end, does not spin, and serves again once descriptors are free. */

import { spawn } from 'node:child_process'
import { readFile } from 'node:fs/promises'
import { setTimeout as sleep } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { get } from '../../support/case-table.ts'
import { eventually } from '../../support/changes.ts'
import { makeFolder } from '../../support/folder.ts'
import { RawClient, request } from '../../support/raw-client.ts'
import { startService } from '../../support/service.ts'
import { environmentFor, MAIN, SpawnedProxy } from '../../support/spawn-proxy.ts'

const DESCRIPTORS = 64
const CLIENTS = 600
const WATCHED_MS = 1_000
const TICKS_PER_SECOND = 100

/** User and system time of the process so far. */
async function cpuMs(pid: number): Promise<number> {
  const fields = (await readFile(`/proc/${pid}/stat`, 'utf8')).split(') ')[1]?.split(' ') ?? []
  return ((Number(fields[11]) + Number(fields[12])) / TICKS_PER_SECOND) * 1_000
}

function startWith(descriptors: number, env: Readonly<Record<string, string>>): SpawnedProxy {
  const command = ['-c', `ulimit -n ${descriptors} && exec "$0" "$@"`, process.execPath, MAIN]
  return new SpawnedProxy(spawn('sh', command, { env: { PATH: process.env['PATH'], ...env } }))
}

test('too few descriptors for the start: one line says so', async () => {
  await using folder = await makeFolder()
  // Enough for Node to load the program, but not for its sockets.
  const callers = Array.from(
    { length: 40 },
    (_, i) => `  - {name: c${i}, socket: ${folder.at(`${i}.sock`)}, orgs: [acme]}\n`,
  )
  const OAP_CONFIG = await folder.write('proxy.yaml', `callers:\n${callers.join('')}`)
  const env = { OAP_APP_ID: 'app', OAP_APP_SECRET: 'secret', OAP_BASE_URL: 'http://127.0.0.1:1', OAP_CONFIG }
  await using proxy = startWith(48, { ...env, OAP_LISTEN_ADDRESS: 'localhost:0', OAP_ADMIN_ADDRESS: 'off' })
  expect(await proxy.exited).toEqual({ code: 1, signal: null })
  expect(proxy.stderr.at(-1)).toMatch(/EMFILE.*: raise the limit of open files/)
})

test(`${CLIENTS} connections and ${DESCRIPTORS} descriptors`, async () => {
  // Each request needs a descriptor of its own for the service.
  await using service = await startService({ script: () => ({ content: 'served', closes: true }) })
  await using env = await environmentFor(service)
  await using proxy = startWith(DESCRIPTORS, env)
  const { port } = await proxy.ready()
  const serves = async () => (await request(port, get('/v2/x', 'acme')).catch(() => undefined))?.status === 200
  const connect = (count: number) => Promise.all(Array.from({ length: count }, () => RawClient.connect(port)))

  const clients: RawClient[] = []
  for (let round = 0; round < 3; round++) {
    clients.push(...(await connect(DESCRIPTORS)))
    expect(await serves(), 'a request among many clients').toBe(true)
  }
  clients.push(...(await connect(CLIENTS - clients.length)))
  const before = await cpuMs(proxy.pid)
  await sleep(WATCHED_MS)
  expect((await cpuMs(proxy.pid)) - before, 'CPU time while nothing happens').toBeLessThan(WATCHED_MS / 2)
  expect(
    clients.map(({ end }) => end),
    'connections that were taken',
  ).toContain(undefined)

  for (const client of clients) await client[Symbol.asyncDispose]()
  await eventually(serves, 'a good answer', 5_000)
  proxy.signal('SIGTERM')
  expect((await proxy.exited).code).toBe(0)
})
