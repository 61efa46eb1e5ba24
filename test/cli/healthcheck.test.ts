import { createServer, type RequestListener, type Server } from 'node:http'
import { type AddressInfo, createServer as createTcpServer, type Server as TcpServer } from 'node:net'
import { describe, expect, test } from 'vitest'
import { checkHealth } from '../../src/cli/admin-client.ts'
import type { ListenAddress } from '../../src/config/address.ts'
import { makeFolder } from '../config/folder.ts'

async function ask(address: ListenAddress | 'off') {
  let said = ''
  const exitCode = await checkHealth(address, { write: (text) => (said += text) })
  return { exitCode, said }
}

async function serving(listener: RequestListener, place: { path: string } | { port: number; host?: string }) {
  const server = createServer(listener)
  return { server, ...(await listening(server, place)) }
}

async function listening(server: Server | TcpServer, place: { path: string } | { port: number; host?: string }) {
  await new Promise<void>((resolve, reject) => server.once('error', reject).listen(place, resolve))
  const bound = server.address() as AddressInfo | string
  return {
    port: typeof bound === 'string' ? 0 : bound.port,
    [Symbol.asyncDispose]: () => new Promise<void>((resolve) => server.close(() => resolve())),
  }
}

const LOCAL = { port: 0, host: '127.0.0.1' }

describe('healthcheck exits with 0', () => {
  test.each(['localhost', '127.0.0.1', '0.0.0.0'])('if /livez answers 200 on %s', async (host) => {
    const asked: unknown[] = []
    await using admin = await serving((request, response) => {
      asked.push([request.method, request.url, request.headers.host])
      response.end('ok')
    }, LOCAL)
    expect(await ask({ kind: 'tcp', host, port: admin.port })).toEqual({ exitCode: 0, said: '' })
    expect(asked).toEqual([['GET', '/livez', `127.0.0.1:${admin.port}`]])
  })

  test('if it answers on a unix socket', async () => {
    await using folder = await makeFolder()
    const asked: unknown[] = []
    await using _ = await serving(
      (request, response) => {
        asked.push([request.url, request.headers.host])
        response.end('ok')
      },
      { path: folder.at('admin.sock') },
    )
    expect(await ask({ kind: 'unix', path: folder.at('admin.sock') })).toEqual({ exitCode: 0, said: '' })
    expect(asked).toEqual([['/livez', 'localhost']])
  })
})

describe('healthcheck exits with 1 and one line', () => {
  test('if the status is another', async () => {
    await using admin = await serving((_, response) => response.writeHead(503).end(), LOCAL)
    expect(await ask({ kind: 'tcp', host: '127.0.0.1', port: admin.port })).toEqual({
      exitCode: 1,
      said: 'healthcheck: the admin listener answered 503\n',
    })
  })

  test('if nobody listens', async () => {
    const { port, [Symbol.asyncDispose]: close } = await serving(() => undefined, LOCAL)
    await close()
    expect(await ask({ kind: 'tcp', host: '127.0.0.1', port })).toEqual({
      exitCode: 1,
      said: `healthcheck: the admin listener at 127.0.0.1:${port} cannot be reached (ECONNREFUSED)\n`,
    })
  })

  test('if the answer is not HTTP', async () => {
    const server = createTcpServer((socket) => socket.resume().end('hello\r\n\r\n'))
    await using admin = await listening(server, LOCAL)
    const { exitCode, said } = await ask({ kind: 'tcp', host: '127.0.0.1', port: admin.port })
    expect(exitCode).toBe(1)
    expect(said).toMatch(/^healthcheck: the admin listener at 127\.0\.0\.1:\d+ cannot be reached \(HPE_\w+\)\n$/)
  })

  test('if no answer comes within the deadline', async () => {
    await using admin = await serving(() => undefined, LOCAL)
    expect(await ask({ kind: 'tcp', host: '127.0.0.1', port: admin.port })).toEqual({
      exitCode: 1,
      said: `healthcheck: the admin listener at 127.0.0.1:${admin.port} did not answer within 2 s\n`,
    })
  })

  test('if the listener is off, or its port is unknown', async () => {
    expect(await ask('off')).toEqual({
      exitCode: 1,
      said: 'healthcheck: admin.address is off: there is no admin listener\n',
    })
    expect(await ask({ kind: 'tcp', host: 'localhost', port: 0 })).toEqual({
      exitCode: 1,
      said: 'healthcheck: admin.address has port 0, so its port is not known: set a fixed port\n',
    })
  })
})
