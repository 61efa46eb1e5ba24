/** What systemd does for the program: sockets that outlive a restart, and waiting for the end of a start. */

import { spawn } from 'node:child_process'
import { expect, onTestFinished, test } from 'vitest'
import { get } from '../../support/case-table.ts'
import { freePort } from '../../support/listening.ts'
import { lacks, programPath } from '../../support/programs.ts'
import { request } from '../../support/raw-client.ts'
import { serviceForFile } from '../../support/service-for-file.ts'
import { MAIN, SpawnedProxy, spawnProxy } from '../../support/spawn-proxy.ts'

const served = serviceForFile()

/** Like systemd: holds a socket, never accepts on it, and starts the program with it for each line of input. */
const HOLDER = `
import os, socket, sys
held = socket.create_server(("127.0.0.1", 0))
port = held.getsockname()[1]
os.dup2(held.fileno(), 3)
os.set_inheritable(3, True)
print("port", port, flush=True)
for line in sys.stdin:
    pid = os.fork()
    if pid == 0:
        os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="1", LISTEN_FDNAMES="org-access-proxy.socket")
        os.environ["OAP_LISTEN_ADDRESS"] = "localhost:" + (line.strip() or str(port))
        os.execv(sys.argv[1], sys.argv[1:])
    print("pid", pid, flush=True)
    print("exit", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
`

async function holdSocket() {
  const args = ['-c', HOLDER, process.execPath, MAIN]
  const child = spawn(programPath('python3'), args, { env: { PATH: process.env['PATH'], ...served.env } })
  const holder = new SpawnedProxy(child)
  onTestFinished(() => holder[Symbol.asyncDispose]())
  const numberIn = async (pattern: RegExp) => Number(/\d+/.exec(await holder.waitForLine(pattern))?.[0])
  /** Starts the program, and resolves with its pid. `port` is for a listen.address that is not the socket's. */
  const start = async (port = '') => {
    holder.stdout.length = 0
    child.stdin?.write(`${port}\n`)
    return numberIn(/^pid/)
  }
  return { holder, port: await numberIn(/^port/), start }
}

test.skipIf(lacks('python3'))('a restart refuses no connection', async () => {
  const { holder, port, start } = await holdSocket()
  const first = await start()
  expect(JSON.parse(await holder.waitForLine(/"msg":"ready"/)).address).toBe(`localhost:${port}`)
  expect((await request(port, get('/v2/x', 'acme'))).status).toBe(200)
  process.kill(first, 'SIGTERM')
  expect(await holder.waitForLine(/^exit/)).toBe('exit 0')
  // No process accepts now, so the connection waits.
  const waiting = request(port, get('/v2/x', 'acme'))
  const second = await start()
  expect((await waiting).status).toBe(200)
  process.kill(second, 'SIGTERM')
  await holder.waitForLine(/^exit 0/)
})

test.skipIf(lacks('python3'))('a socket for another address than the configured one is refused', async () => {
  const { holder, port, start } = await holdSocket()
  await start('1')
  expect(await holder.waitForLine(/^exit/)).toBe('exit 1')
  expect(holder.stderr).toEqual([
    `org-access-proxy: systemd passed a socket for 127.0.0.1:${port}, but the configured address is localhost:1: make them the same`,
  ])
})

/** Like systemd: takes messages on a unix socket for datagrams, and prints each of them. */
const NOTIFIED = `
import os, socket
taker = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
taker.bind("\\0" + os.environ["NAME"])
print("bound", flush=True)
while True:
    print(taker.recv(4096), flush=True)
`

test.skipIf(lacks('python3', 'systemd-notify'))('systemd is told that the start is over', async () => {
  const name = `org-access-proxy-test-${process.pid}`
  await using systemd = new SpawnedProxy(
    spawn(programPath('python3'), ['-c', NOTIFIED], { env: { PATH: process.env['PATH'], NAME: name } }),
  )
  await systemd.waitForLine(/^bound/)
  await using proxy = spawnProxy({ env: { ...served.env, NOTIFY_SOCKET: `@${name}` } })
  await proxy.ready()
  expect(await systemd.waitForLine(/READY/)).toBe("b'READY=1'")
})

test('without systemd-notify, a line says that nobody told systemd', async () => {
  await using proxy = spawnProxy({ env: { ...served.env, NOTIFY_SOCKET: '/nowhere', PATH: '/nowhere' } })
  const line = await proxy.waitForLine(/systemd not told/)
  expect(JSON.parse(line)).toMatchObject({ level: 'warn', problem: 'spawn systemd-notify ENOENT' })
})

test.skipIf(lacks('systemd-socket-activate'))('systemd-socket-activate starts it with a connection', async () => {
  const port = await freePort()
  const env = { PATH: process.env['PATH'], ...served.env, OAP_LISTEN_ADDRESS: `localhost:${port}` }
  const passed = Object.keys(env).map((name) => `--setenv=${name}`)
  const args = [`--listen=127.0.0.1:${port}`, ...passed, process.execPath, MAIN]
  await using proxy = new SpawnedProxy(spawn(programPath('systemd-socket-activate'), args, { env }))
  await proxy.waitForLine(/Listening on/)
  expect((await request(port, get('/v2/x', 'acme'))).status).toBe(200)
})
