/** Nobody reads the log, or it cannot be written: requests are served, lines are dropped, the loss is told, and a stop ends. */

import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { closeSync, constants, openSync } from 'node:fs'
import { expect, test } from 'vitest'
import { eventually } from '../../support/changes.ts'
import { makeFolder } from '../../support/folder.ts'
import { KeepAliveClient } from '../../support/keep-alive-client.ts'
import { freePort } from '../../support/listening.ts'
import { startProxyProcess } from '../../support/proxy-process.ts'
import { startService } from '../../support/service.ts'
import { environmentFor, MAIN } from '../../support/spawn-proxy.ts'

const REQUESTS = 5_000
/** Length of the path, of which the log contains as much. All lines together exceed every buffer on their way. */
const PATH_BYTES = 1_000

test(`${REQUESTS} requests whose lines nobody reads`, async () => {
  await using service = await startService()
  await using proxy = await startProxyProcess(service)
  const { stdout } = proxy.spawned.child
  stdout?.pause()
  using first = new KeepAliveClient(proxy.port)
  await first.get('/v2/x', 'acme')

  let sent = 0
  const client = async () => {
    using connection = new KeepAliveClient(proxy.port)
    while (sent++ < REQUESTS) {
      expect((await connection.get(`/v2/${'p'.repeat(PATH_BYTES)}`, 'acme')).status).toBe(200)
      service.origin.requests.length = 0
    }
  }
  await Promise.all(Array.from({ length: 8 }, client))

  const isTold = async () => (await proxy.metric('oap_warnings{code="log_lines_dropped"}')) === 1
  await eventually(isTold, 'the lost lines to be told')
  expect(await proxy.metric('oap_log_lines_dropped_total')).toBeGreaterThan(0)
  stdout?.resume()
  proxy.spawned.signal('SIGTERM')
  expect((await proxy.spawned.exited).code).toBe(0)
})

/** A pipe that is full and that nobody reads; its end for writing. */
async function fullPipe() {
  const folder = await makeFolder()
  const path = folder.at('pipe')
  execFileSync('mkfifo', [path])
  const fd = openSync(path, constants.O_RDWR)
  execFileSync('dd', ['if=/dev/zero', `of=${path}`, 'oflag=nonblock', 'bs=4096', 'count=16'], { stdio: 'ignore' })
  return { fd, folder }
}

/** With this descriptor as its stdout: a request is served, the warning says why no line is written, and SIGTERM ends it. */
async function serveWith(fd: number, cause: string, afterStart: () => Promise<unknown> = async () => undefined) {
  await using service = await startService()
  await using env = await environmentFor(service)
  const [port, adminPort] = [await freePort(), await freePort()]
  const addresses = { OAP_LISTEN_ADDRESS: `127.0.0.1:${port}`, OAP_ADMIN_ADDRESS: `127.0.0.1:${adminPort}` }
  const { PATH = '' } = process.env
  const child = spawn(process.execPath, [MAIN], {
    env: { PATH, ...env, ...addresses },
    stdio: ['ignore', fd, 'inherit'],
  })
  const exited = once(child, 'exit')
  try {
    const status = async () => (await fetch(`http://127.0.0.1:${adminPort}/status`)).json() as Promise<StatusOfLog>
    const isReady = async () => (await status().catch(() => undefined))?.isReady === true
    await eventually(isReady, 'the start')
    await afterStart()
    using client = new KeepAliveClient(port)
    for (let i = 0; i < 50; i++) expect((await client.get('/v2/x', 'acme')).status).toBe(200)
    const found = async () => (await status()).warnings.find(({ code }) => code === 'log_lines_dropped')?.text
    await eventually(async () => (await found())?.includes(cause) === true, `the warning: ${cause}`)
    child.kill('SIGTERM')
    expect(await exited).toEqual([0, null])
  } finally {
    child.kill('SIGKILL')
  }
}

interface StatusOfLog {
  readonly isReady: boolean
  readonly warnings: readonly { readonly code: string; readonly text: string }[]
}

test('the pipe is full from the start', async () => {
  const { fd, folder } = await fullPipe()
  await using _ = folder
  await serveWith(fd, 'nobody reads stdout')
  closeSync(fd)
})

test('the pipe blocks, because another program that shares it has changed its mode at its end', async () => {
  const { fd, folder } = await fullPipe()
  await using _ = folder
  // Node gives its stdout the mode back that it found.
  const other = spawn(process.execPath, ['-e', 'process.stdout; process.stdin.resume(); console.error("here")'], {
    stdio: ['pipe', fd, 'pipe'],
  })
  if (other.stderr !== null) await once(other.stderr, 'data')
  await serveWith(fd, 'nobody reads stdout', async () => {
    other.stdin?.end()
    await once(other, 'exit')
  })
  closeSync(fd)
})

test.each([
  ['the disk is full', '/dev/full', constants.O_WRONLY, 'ENOSPC'],
  ['the descriptor cannot be written', MAIN, constants.O_RDONLY, 'EBADF'],
])('%s', async (_, path, mode, cause) => {
  const fd = openSync(path, mode)
  await serveWith(fd, cause)
  closeSync(fd)
})
