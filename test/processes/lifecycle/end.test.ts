/** The process can always end, in whatever state stdout is. */

import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { open, readFile, rm } from 'node:fs/promises'
import { describe, expect, test } from 'vitest'
import { get } from '../../support/case-table.ts'
import { eventually } from '../../support/changes.ts'
import { folderForFile } from '../../support/folder.ts'
import { KeepAliveClient } from '../../support/keep-alive-client.ts'
import { lacks, programPath } from '../../support/programs.ts'
import { request } from '../../support/raw-client.ts'
import { serviceForFile } from '../../support/service-for-file.ts'
import { MAIN, SpawnedProxy } from '../../support/spawn-proxy.ts'

/** On SIGUSR2 the program throws an error that nobody catches. */
const FAULT_ON_SIGUSR2 = `process.on('SIGUSR2', () => { throw new Error('a fault') })`
const ARGS = ['--import', `data:text/javascript,${encodeURIComponent(FAULT_ON_SIGUSR2)}`, MAIN]
const DEADLINE_MS = 15_000

const served = serviceForFile()
const socket = (await folderForFile()).at('proxy.sock')

/** Listens on a unix socket, because it cannot print its port. */
async function start(stdout: 'pipe' | number): Promise<ChildProcess> {
  const { PATH } = process.env
  const child = spawn(process.execPath, ARGS, {
    env: { PATH, ...served.env, OAP_LISTEN_ADDRESS: `unix:${socket}` },
    stdio: ['ignore', stdout, 'ignore'],
  })
  try {
    const answer = () => request(socket, get('/v2/x', 'acme')).catch(() => undefined)
    await eventually(async () => (await answer())?.status, 'an answer', DEADLINE_MS)
    return child
  } catch (error) {
    child.kill('SIGKILL')
    throw error
  }
}

async function startWithFullDisk(): Promise<ChildProcess> {
  const full = await open('/dev/full', 'w')
  try {
    return await start(full.fd)
  } finally {
    await full.close()
  }
}

async function startWithoutReader(): Promise<ChildProcess> {
  const child = await start('pipe')
  child.stdout?.destroy()
  return child
}

/** Fills the pipe, at both ends, with 300 lines of over a KiB; the rest waits in the program. */
async function startWithIdleReader(): Promise<ChildProcess> {
  const child = await start('pipe')
  child.stdout?.pause()
  using client = new KeepAliveClient(socket)
  for (let i = 0; i < 300; i++) await client.get(`/v2/${'p'.repeat(1_024)}`, 'acme')
  return child
}

const OUTPUTS = [
  { output: 'a full disk', startIt: startWithFullDisk },
  { output: 'a pipe whose reader has gone', startIt: startWithoutReader },
  { output: 'a pipe that nobody reads', startIt: startWithIdleReader },
]
const ENDINGS = [
  { ending: 'SIGTERM', signal: 'SIGTERM', code: 0 },
  { ending: 'a fault that nobody handles', signal: 'SIGUSR2', code: 1 },
] as const

describe.each(OUTPUTS)('stdout is $output', ({ startIt }) => {
  test.skipIf(!existsSync('/dev/full')).each(ENDINGS)('$ending ends it with $code', async ({ signal, code }) => {
    const child = await startIt()
    try {
      expect((await request(socket, get('/v2/x', 'acme'))).status).toBe(200)
      const exited = once(child, 'exit')
      child.kill(signal)
      expect(await exited).toEqual([code, null])
      await expect(request(socket, get('/v2/x', 'acme'))).rejects.toThrow(/ENOENT|ECONNREFUSED/)
    } finally {
      child.kill('SIGKILL')
      child.stdout?.destroy()
      await rm(socket, { force: true })
    }
  })
})

describe.skipIf(lacks('script'))('in a terminal', () => {
  function startInTerminal(file = MAIN): SpawnedProxy {
    const { PATH = '', HOME = '' } = process.env
    const command = `exec ${process.execPath} ${file}`
    return new SpawnedProxy(
      spawn(programPath('script'), ['--quiet', '--return', '--flush', '--command', command, '/dev/null'], {
        env: { PATH, HOME, ...served.env, SHELL: '/bin/sh' },
        stdio: ['ignore', 'pipe', 'pipe'],
      }),
    )
  }

  const pidIn = async (terminal: SpawnedProxy) => JSON.parse(await terminal.waitForLine(/"msg":"start"/)).pid as number

  async function untilEnded(pid: number): Promise<void> {
    const hasEnded = async () => {
      const status = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => undefined)
      return status === undefined || / [ZX] /.test(status) || undefined
    }
    try {
      await eventually(hasEnded, 'the end', DEADLINE_MS)
    } catch (error) {
      process.kill(pid, 'SIGKILL')
      throw error
    }
  }

  test('SIGHUP while the terminal is open reloads', async () => {
    await using terminal = startInTerminal()
    const pid = await pidIn(terminal)
    const { port } = await terminal.ready()
    process.kill(pid, 'SIGHUP')
    process.kill(pid, 'SIGHUP')
    expect((await request(port, get('/v2/x', 'acme'))).status).toBe(200)
    expect(terminal.output).not.toContain('"msg":"drain"')
    process.kill(pid, 'SIGTERM')
    expect((await terminal.exited).code).toBe(0)
  })

  test('a terminal that closes ends it', async () => {
    await using terminal = startInTerminal()
    const pid = await pidIn(terminal)
    await terminal.ready()
    terminal.signal('SIGKILL')
    await untilEnded(pid)
  })

  test('a terminal that nobody reads does not keep the process alive', async () => {
    await using terminal = startInTerminal()
    const pid = await pidIn(terminal)
    const { port } = await terminal.ready()
    terminal.child.stdout?.pause()
    using client = new KeepAliveClient(port)
    for (let i = 0; i < 100; i++) await client.get(`/v2/${'p'.repeat(1_024)}`, 'acme')
    process.kill(pid, 'SIGTERM')
    await untilEnded(pid)
    terminal.child.stdout?.resume()
    expect((await terminal.exited).code).toBe(0)
  })
})
