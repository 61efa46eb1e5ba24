import { once } from 'node:events'
import { createServer } from 'node:http'
import { createServer as createTcpServer } from 'node:net'
import { expect, test } from 'vitest'
import { checkHealth } from '../../../src/cli/admin-client.ts'
import { makeFolder } from '../../support/folder.ts'
import { freePort, listening } from '../../support/listening.ts'

const at = (port: number, host = '127.0.0.1') => checkHealth({ kind: 'tcp', host, port })

/** Answers 200 and notes what it was asked for. */
function healthy() {
  const asked: unknown[] = []
  const server = createServer(({ method, url, headers }, response) => {
    asked.push([method, url, headers.host])
    response.end('ok')
  })
  return { server, asked }
}

test.each(['localhost', '127.0.0.1', '0.0.0.0'])('exits with 0 if /livez answers 200 on %s', async (host) => {
  const { server, asked } = healthy()
  await using admin = await listening(server)
  expect(await at(admin.port, host)).toBe(0)
  expect(asked).toEqual([['GET', '/livez', `127.0.0.1:${admin.port}`]])
})

test('exits with 0 if it answers on a unix socket', async () => {
  await using folder = await makeFolder()
  const path = folder.at('admin.sock')
  const { server, asked } = healthy()
  await once(server.listen(path), 'listening')
  expect(await checkHealth({ kind: 'unix', path })).toBe(0)
  expect(asked).toEqual([['GET', '/livez', 'localhost']])
  server.close()
})

test.each([
  ['another status', createServer((_, response) => response.writeHead(503).end()), / answered 503$/],
  [
    'no HTTP',
    createTcpServer((socket) => socket.resume().end('hello\r\n\r\n')),
    / at .* cannot be reached \(no usable response\)$/,
  ],
  ['no answer', createServer(() => undefined), / at 127\.0\.0\.1:\d+ did not answer within 2 s$/],
])('fails with one line: %s', async (_, server, expected) => {
  await using admin = await listening(server)
  await expect(at(admin.port)).rejects.toThrow(expected)
})

test('fails with one line if nobody listens or the listener is off', async () => {
  const port = await freePort()
  const refused = `the admin listener at 127.0.0.1:${port} cannot be reached (ECONNREFUSED)`
  await expect(at(port)).rejects.toThrow(refused)
  await expect(checkHealth('off')).rejects.toThrow('admin.address is off: there is no admin listener')
})
