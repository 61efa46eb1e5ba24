/** A reader of the log has stopped reading: requests are served, memory is bounded, and the program can still end. */

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFile } from 'node:fs/promises'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'
import { eventually } from '../support/changes.ts'
import { KeepAliveClient } from '../support/keep-alive-client.ts'
import { startService } from '../support/service.ts'
import { environmentFor } from '../support/spawn-proxy.ts'

const MAIN = fileURLToPath(new URL('../../dist/main.js', import.meta.url))
const REQUESTS = 4_000
/** Length of the path, which the log contains. All lines together exceed every buffer on their way. */
const PATH_BYTES = 4_000
const MAX_GROWTH_BYTES = 96 * 1024 * 1024

async function residentBytes(pid: number): Promise<number> {
  return Number(/^VmRSS:\s+(\d+) kB/m.exec(await readFile(`/proc/${pid}/status`, 'utf8'))?.[1]) * 1024
}

test(`${REQUESTS} requests whose lines nobody reads`, async () => {
  await using service = await startService()
  await using env = await environmentFor(service)
  const { PATH } = process.env
  const child = spawn(process.execPath, [MAIN], {
    env: { PATH, ...env },
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  try {
    let printed = ''
    while (!printed.includes('"msg":"ready"')) printed += String((await once(child.stdout, 'data'))[0])
    child.stdout.pause()
    const port = Number(/"address":"[^"]*:(\d+)"/.exec(printed)?.[1])
    const pid = child.pid ?? 0
    using first = new KeepAliveClient(port)
    await first.get('/v2/x', 'acme')
    const before = await residentBytes(pid)

    let sent = 0
    const client = async () => {
      using connection = new KeepAliveClient(port)
      while (sent++ < REQUESTS) {
        const answer = await connection.get(`/v2/${'p'.repeat(PATH_BYTES)}`, 'acme')
        expect(answer.status).toBe(200)
        service.origin.requests.length = 0
      }
    }
    await Promise.all(Array.from({ length: 8 }, client))
    expect((await residentBytes(pid)) - before).toBeLessThan(MAX_GROWTH_BYTES)

    // Once somebody reads again, the log says what is missing.
    printed = ''
    child.stdout.on('data', (text) => {
      printed += String(text)
    })
    child.stdout.resume()
    await eventually(() => /"lines":[1-9]\d*,"msg":"log lines dropped/.test(printed), 'the lost lines to be told')

    child.kill('SIGTERM')
    expect((await once(child, 'exit'))[0]).toBe(0)
  } finally {
    child.kill('SIGKILL')
    child.stdout.destroy()
  }
})
