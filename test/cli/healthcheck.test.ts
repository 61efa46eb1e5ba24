import { createServer, type RequestListener, type Server } from 'node:http'
import { type AddressInfo, createServer as createTcpServer, type Server as TcpServer } from 'node:net'
import { describe, expect, test } from 'vitest'
import { checkHealth } from '../../src/cli/admin-client.ts'
import { makeFolder } from '../config/folder.ts'

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
    expect(await checkHealth({ kind: 'tcp', host, port: admin.port })).toBe(0)
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
    expect(await checkHealth({ kind: 'unix', path: folder.at('admin.sock') })).toBe(0)
    expect(asked).toEqual([['/livez', 'localhost']])
  })
})

describe('healthcheck fails with one line', () => {
  test('if the status is another', async () => {
    await using admin = await serving((_, response) => response.writeHead(503).end(), LOCAL)
    await expect(checkHealth({ kind: 'tcp', host: '127.0.0.1', port: admin.port })).rejects.toThrow(
      'the admin listener answered 503',
    )
  })

  test('if nobody listens', async () => {
    const { port, [Symbol.asyncDispose]: close } = await serving(() => undefined, LOCAL)
    await close()
    await expect(checkHealth({ kind: 'tcp', host: '127.0.0.1', port })).rejects.toThrow(
      `the admin listener at 127.0.0.1:${port} cannot be reached (ECONNREFUSED)`,
    )
  })

  test('if the answer is not HTTP', async () => {
    const server = createTcpServer((socket) => socket.resume().end('hello\r\n\r\n'))
    await using admin = await listening(server, LOCAL)
    await expect(checkHealth({ kind: 'tcp', host: '127.0.0.1', port: admin.port })).rejects.toThrow(
      /^the admin listener at 127\.0\.0\.1:\d+ cannot be reached \(HPE_\w+\)$/,
    )
  })

  test('if no answer comes within the deadline', async () => {
    await using admin = await serving(() => undefined, LOCAL)
    await expect(checkHealth({ kind: 'tcp', host: '127.0.0.1', port: admin.port })).rejects.toThrow(
      `the admin listener at 127.0.0.1:${admin.port} did not answer within 2 s`,
    )
  })

  test('if the listener is off, or its port is unknown', async () => {
    await expect(checkHealth('off')).rejects.toThrow('admin.address is off: there is no admin listener')
    await expect(checkHealth({ kind: 'tcp', host: 'localhost', port: 0 })).rejects.toThrow(
      'admin.address has port 0, so its port is not known: set a fixed port',
    )
  })
})
