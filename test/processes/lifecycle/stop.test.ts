/** Stopping: requests in flight finish, and nothing hangs. */

import { expect, onTestFinished, test } from 'vitest'
import { get } from '../../support/case-table.ts'
import { Gate } from '../../support/changes.ts'
import { HANDSHAKE } from '../../support/handshake.ts'
import { fieldOf, outcomeOf, RawClient, request } from '../../support/raw-client.ts'
import { serviceForFile } from '../../support/service-for-file.ts'
import { spawnProxy } from '../../support/spawn-proxy.ts'

/** Requests for `/held…` are answered when the gate opens. */
let gate: Gate

const served = serviceForFile({
  script: async (received, connection) => {
    if (received.target.startsWith('/held')) await gate.pass()
    if (received.target.endsWith('/ws')) {
      connection.tunnel()
      connection.write('HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n')
      return undefined
    }
    return { content: 'done' }
  },
})

async function start(more: Record<string, string> = {}) {
  gate = new Gate(30_000)
  const proxy = spawnProxy({ env: { ...served.env, ...more } })
  onTestFinished(() => proxy[Symbol.asyncDispose]())
  return { proxy, ...(await proxy.ready()) }
}

test('the command stop drains, waits, and tells what was broken off', async () => {
  const settings = { OAP_ADMIN_ADDRESS: 'localhost:0', OAP_ADMIN_QUIT: 'true' }
  const stopOf = (adminPort: number) =>
    spawnProxy({ args: ['stop'], env: { OAP_ADMIN_ADDRESS: `localhost:${adminPort}` } })

  const { proxy, port, adminPort } = await start(settings)
  const held = request(port, get('/held', 'acme'))
  await gate.untilWaiting(1)
  await using stopping = stopOf(adminPort)
  await proxy.waitForLine(/"msg":"drain"/)
  await using second = stopOf(adminPort) // waits like the first one, and hurries nothing
  await expect(request(port, get('/late', 'acme'))).rejects.toThrow()
  gate.open()
  expect((await held).status).toBe(200)
  expect(await stopping.exited).toEqual({ code: 0, signal: null })
  expect(stopping.stdout).toEqual(['stopped: all requests in flight finished'])
  expect((await second.exited).code).toBeLessThan(2)
  expect(await proxy.exited).toEqual({ code: 0, signal: null })

  const cut = await start({ ...settings, OAP_SHUTDOWN_TIMEOUT: '100ms' })
  const broken = request(cut.port, get('/held', 'acme')).catch(() => 'broken')
  await gate.untilWaiting(1)
  await using cutting = stopOf(cut.adminPort)
  expect(await cutting.exited).toEqual({ code: 1, signal: null })
  expect(cutting.stdout).toEqual(['stopped: broke off 1 connection with requests in flight, at shutdown.timeout'])
  expect(await cut.proxy.exited).toEqual({ code: 1, signal: null })
  expect(await broken).toBe('broken')
})

test('/readyz fails at once, while the process lives and serves requests', async () => {
  const { proxy, port, adminPort } = await start({ OAP_SHUTDOWN_DELAY: '1s', OAP_ADMIN_ADDRESS: 'localhost:0' })
  const health = async (path: string) => {
    const { status, content } = await request(adminPort, get(path, 'acme'))
    return `${status} ${content}`
  }
  expect(await health('/readyz')).toBe('200 ok\n')
  proxy.signal('SIGTERM')
  await proxy.waitForLine(/"msg":"drain"/)
  expect([await health('/readyz'), await health('/livez')]).toEqual(['503 not ready: accepting\n', '200 ok\n'])
  expect((await request(port, get('/quick', 'acme'))).status).toBe(200)
  expect(await proxy.exited).toEqual({ code: 0, signal: null })
})

test('a request whose head has begun to arrive gets 503 draining, while idle and unused connections close', async () => {
  const { proxy, port } = await start()
  await using unused = await RawClient.connect(port)
  await using fresh = await RawClient.connect(port)
  await using used = await RawClient.connect(port)
  await using idle = await RawClient.connect(port)
  const begun = get('/quick', 'acme')
  for (const client of [used, idle]) {
    client.send(get('/quick', 'acme'))
    expect((await client.response()).status).toBe(200)
  }
  for (const client of [fresh, used]) client.send(begun.slice(0, 20))
  expect((await request(port, get('/quick', 'acme'))).status).toBe(200) // so the proxy has read the bytes above
  const received = served.service.requests.length
  proxy.signal('SIGTERM')
  expect((await idle.untilClosed()).bytes.toString()).toBe('')
  expect((await unused.untilClosed()).bytes.toString()).toBe('')
  expect([fresh.end, used.end]).toEqual([undefined, undefined])
  for (const client of [fresh, used]) {
    client.send(begun.slice(20))
    const answer = await client.response()
    expect(answer.status).toBe(503)
    expect(JSON.parse(answer.content.toString())).toMatchObject({ code: 'draining' })
    expect(fieldOf(answer, 'connection')).toBe('close')
    expect(Number(fieldOf(answer, 'retry-after'))).toBeGreaterThan(0)
    expect((await client.untilClosed()).bytes.toString()).toBe('')
    client.endSending()
  }
  expect(await proxy.exited).toEqual({ code: 0, signal: null })
  expect(served.service.requests).toHaveLength(received)
})

test('an incomplete head delays a stop no longer than headersTimeout', async () => {
  const { proxy, port } = await start({ OAP_LISTEN_HEADERS_TIMEOUT: '3s', OAP_SHUTDOWN_TIMEOUT: '50s' })
  await using client = await RawClient.sending(port, 'GET /quick', { deadlineMs: 40_000 })
  expect((await request(port, get('/quick', 'acme'))).status).toBe(200) // so the proxy has read the bytes above
  proxy.signal('SIGTERM')
  const signalledAt = performance.now()
  await client.untilClosed()
  client.endSending()
  expect(await proxy.exited).toEqual({ code: 0, signal: null })
  expect(performance.now() - signalledAt).toBeLessThan(25_000) // half of the 50 s of the drain deadline
})

test('requests that outlast the deadline are broken off, and the exit code says so', async () => {
  const { proxy, port } = await start({ OAP_LISTEN_HEADERS_TIMEOUT: '100ms', OAP_SHUTDOWN_TIMEOUT: '1s' })
  // Answered with 408 and not counted. Its connection is there until the deadline, for it keeps its side open.
  await using _idle = await RawClient.sending(port, 'GET /quick')
  await using client = await RawClient.sending(port, get('/held', 'acme'))
  await gate.untilWaiting(1)
  proxy.signal('SIGTERM')
  expect(await proxy.exited).toEqual({ code: 1, signal: null })
  expect((await client.untilClosed()).bytes.toString()).toBe('')
  expect(proxy.logs.at(-1)).toMatchObject({ level: 'warn', connections: 1 })
  gate.open()
})

// It has no end that a stop could wait for.
test.each(['idle', 'with a client that does not read'])(
  'a WebSocket (%s) closes behind shutdown.delay',
  async (state) => {
    const { proxy, port } = await start({ OAP_SHUTDOWN_DELAY: '1s', OAP_SHUTDOWN_TIMEOUT: '50s' })
    await using client = await RawClient.sending(port, get('/ws', 'acme', ...HANDSHAKE))
    expect((await client.response()).status).toBe(101)
    const atService = served.service.requests.at(-1)?.connection
    if (state !== 'idle') {
      client.socket.pause()
      atService?.write(Buffer.alloc(32 * 1024 * 1024))
    }
    proxy.signal('SIGTERM')
    const signalledAt = performance.now()
    await proxy.waitForLine(/"msg":"drain"/)
    if (state === 'idle') {
      client.send('still here')
      await served.service.origin.waitFor(
        () => atService?.received.includes('still here') === true,
        'what the client sent',
      )
    }
    expect(await proxy.exited).toEqual({ code: 0, signal: null })
    expect(performance.now() - signalledAt).toBeGreaterThanOrEqual(1_000)
    expect(performance.now() - signalledAt).toBeLessThan(25_000) // half of the 50 s of the drain deadline
    expect(proxy.logs.at(-1)).toMatchObject({ level: 'info', msg: 'stopped' })
  },
)

test('a WebSocket that the service opens during a stop gets 503 draining, and the log says so', async () => {
  const { proxy, port } = await start({ OAP_SHUTDOWN_TIMEOUT: '20s' })
  await using client = await RawClient.sending(port, get('/held/ws', 'acme', ...HANDSHAKE))
  await gate.untilWaiting(1)
  proxy.signal('SIGTERM')
  const signalledAt = performance.now()
  await proxy.waitForLine(/"msg":"drain"/)
  await expect(RawClient.connect(port)).rejects.toThrow('ECONNREFUSED')
  gate.open()
  expect(outcomeOf(await client.response())).toBe('draining')
  await client.untilClosed()
  client.endSending()
  expect(await proxy.exited).toEqual({ code: 0, signal: null })
  expect(performance.now() - signalledAt).toBeLessThan(10_000) // half of the 20 s of the drain deadline
  const line = proxy.logs.find(({ path }) => path === '/held/ws')
  expect(line).toMatchObject({ status: 503, code: 'draining' })
})

test('SIGUSR2 ends nothing, and SIGQUIT is a stop like any other', async () => {
  const { proxy, port } = await start()
  await using client = await RawClient.sending(port, get('/held', 'acme'))
  await gate.untilWaiting(1)
  proxy.signal('SIGUSR2')
  await proxy.waitForLine(/"msg":"SIGUSR2 ignored"/)
  proxy.signal('SIGQUIT')
  await proxy.waitForLine(/"signal":"SIGQUIT".*"msg":"drain"/)
  gate.open()
  expect((await client.response()).status).toBe(200)
  expect(await proxy.exited).toEqual({ code: 0, signal: null })
})

test('a second signal ends the process at once', async () => {
  const { proxy, port } = await start()
  await using _client = await RawClient.sending(port, get('/held', 'acme'))
  await gate.untilWaiting(1)
  proxy.signal('SIGTERM')
  await proxy.waitForLine(/"msg":"drain"/)
  proxy.signal('SIGTERM')
  expect(await proxy.exited).toEqual({ code: 1, signal: null })
  gate.open()
})

test('a second signal with nothing in flight is no failure', async () => {
  const { proxy } = await start({ OAP_SHUTDOWN_DELAY: '60s' })
  proxy.signal('SIGTERM')
  await proxy.waitForLine(/"msg":"drain"/)
  proxy.signal('SIGTERM')
  expect(await proxy.exited).toEqual({ code: 0, signal: null })
})

test('a stop at the first line of the program ends it, also as the first process of a container', async () => {
  // The listener for SIGUSR1 is one of the first things that the program makes, before it loads its modules.
  const sender = `process.on('newListener', (name) => {
    if (name === 'SIGUSR1') process.kill(process.pid, 'SIGTERM')
  })`
  const nodeArgs = ['--import', `data:text/javascript,${encodeURIComponent(sender)}`]
  await using proxy = spawnProxy({ env: served.env, nodeArgs })
  expect(await proxy.exited).toEqual({ code: 0, signal: null })
  // Later ones load all modules in one turn of the event loop, and the signal comes behind it.
  if (process.versions.node.startsWith('20.')) expect(proxy.output).toBe('')
})

test('a stop that comes while the listeners for signals change hands is not lost', async () => {
  const sender = `let isSent = false
  process.on('removeListener', (name) => {
    if (name === 'SIGTERM' && !isSent) isSent = process.kill(process.pid, name)
  })`
  const nodeArgs = ['--import', `data:text/javascript,${encodeURIComponent(sender)}`]
  await using proxy = spawnProxy({ env: served.env, nodeArgs })
  expect(await proxy.exited).toEqual({ code: 0, signal: null })
  expect(proxy.output).toContain('"signal":"SIGTERM"')
})

test('while warm orgs are minted, SIGHUP ends nothing and SIGTERM stops the proxy', async () => {
  gate = new Gate(30_000)
  const before = served.service.tokens.script
  served.service.tokens.script = async (mint) => {
    await gate.pass()
    return mint.issue()
  }
  try {
    await using proxy = spawnProxy({ env: { ...served.env, OAP_TOKENS_WARM: 'slow', OAP_TOKENS_MINT_TIMEOUT: '20s' } })
    await gate.untilWaiting(1)
    proxy.signal('SIGHUP')
    proxy.signal('SIGTERM')
    await proxy.waitForLine(/"msg":"drain"/)
    expect(await proxy.exited).toEqual({ code: 0, signal: null })
    expect(proxy.output).not.toContain('mint failed') // the proxy has given up, not the endpoint
  } finally {
    gate.open()
    served.service.tokens.script = before
  }
})
