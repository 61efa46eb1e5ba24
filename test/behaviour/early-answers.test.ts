/**
 * Services that answer an upload before they have read it, and then reset the connection. The client gets the answer, and
 * an early 401 retires the token.
 */

import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { type AddressInfo, createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { head } from '../support/case-table.ts'
import { eventually } from '../support/changes.ts'
import type { OriginScript } from '../support/origin-connection.ts'
import { RawClient, type RawResponse, request } from '../support/raw-client.ts'
import { startService } from '../support/service.ts'
import { startProxy } from '../support/start-proxy.ts'

const SIZES = [100_000, 2_000_000]
const UPLOADS = 10

async function upload(port: number, target: string, bytes: number, org = 'acme'): Promise<RawResponse> {
  await using client = await RawClient.sending(
    port,
    head(`PUT ${target} HTTP/1.1`, 'Host: 127.0.0.1', `X-Org-Id: ${org}`, `Content-Length: ${bytes}`),
  )
  client.send(Buffer.alloc(bytes, 'x'))
  return await client.response('PUT')
}

/** Answers once it has `bytes` of the content, and closes with the rest unread. */
function answerEarly(status: number, bytes: number): OriginScript {
  return async (received, connection) => {
    await eventually(() => received.contentBytes >= bytes || undefined, 'the first content')
    connection.socket.pause()
    connection.socket.write(`HTTP/1.1 ${status} Early\r\nContent-Length: 5\r\n\r\nearly`, () => {
      connection.socket.destroy()
    })
    return undefined
  }
}

describe.each(SIZES)('%i octets', (bytes) => {
  test.each([
    ['before any content', 0],
    ['after 32 KiB', 32 * 1024],
  ])('an answer %s is not lost', async (_, first) => {
    await using service = await startService({ script: answerEarly(413, first) })
    await using proxy = await startProxy(service)
    for (let i = 0; i < UPLOADS; i++) {
      const response = await upload(proxy.port, '/v2/upload', bytes)
      expect([response.status, response.content.toString()]).toEqual([413, 'early'])
    }
    expect(service.requests).toHaveLength(UPLOADS)
  })

  test('an early 401 leads to a new token, and the next upload succeeds', async () => {
    const unauthorized = answerEarly(401, 0)
    await using service = await startService({
      acceptsAnyToken: true,
      script: (received, connection) =>
        service.orgOf(received) === undefined ? unauthorized(received, connection) : { content: 'taken' },
    })
    await using proxy = await startProxy(service)
    for (let i = 0; i < UPLOADS; i++) {
      const org = `org-${i}`
      expect((await upload(proxy.port, '/v2/upload', bytes, org)).status).toBe(200)
      service.tokens.revoke(org)
      expect((await upload(proxy.port, '/v2/upload', bytes, org)).status).toBe(401)
      expect((await upload(proxy.port, '/v2/upload', bytes, org)).status).toBe(200)
      expect(service.tokens.mintsOf(org)).toHaveLength(2)
    }
  })
})

/**
 * gunicorn answers without reading the content, says that the connection stays open, and closes it 2 ms later. Content that the
 * kernel took whole looks like content that was read. The next upload on such a connection would be lost.
 */
test.each([
  ['a refusal of much content', 413, 100_000, 2],
  ['a rejection of much content', 401, 100_000, 2],
  ['a redirect of much content', 307, 100_000, 2],
  ['a refusal of little content', 413, 1_000, 1],
  ['a success', 200, 100_000, 1],
])('after %s, the next upload has the right connection', async (_, status, bytes, connections) => {
  await using service = await startService({ acceptsAnyToken: true, script: () => ({ status, content: 'kept alive' }) })
  await using proxy = await startProxy(service, { 'replay.maxBody': '0B' })
  for (let i = 0; i < 2; i++) expect((await upload(proxy.port, '/v2/upload', bytes)).status).toBe(status)
  expect(new Set(service.requests.map(({ connection }) => connection)).size).toBe(connections)
})

/** These answer each upload before they have read it. They issue tokens, too. */
interface RealServer {
  readonly program: string
  readonly versionFlag: string
  configuration(port: number, folder: string): string
  args(file: string, folder: string): readonly string[]
}

const TOKEN = '{"orgAccessToken":"a-token"}'

const REAL_SERVERS: readonly RealServer[] = [
  {
    program: 'nginx',
    versionFlag: '-v',
    configuration: (port, folder) => `daemon off;
master_process off;
pid ${folder}/nginx.pid;
error_log ${folder}/error.log;
events { worker_connections 100; }
http {
  access_log off;
  client_max_body_size 1k;
  lingering_close off;
  client_body_temp_path ${folder};
  proxy_temp_path ${folder};
  fastcgi_temp_path ${folder};
  uwsgi_temp_path ${folder};
  scgi_temp_path ${folder};
  server {
    listen 127.0.0.1:${port};
    location / { return 200 'taken'; }
    location ~ /access$ { default_type application/json; return 200 '${TOKEN}'; }
  }
}
`,
    args: (file, folder) => ['-c', file, '-p', folder],
  },
  {
    program: 'haproxy',
    versionFlag: '-v',
    configuration: (port) => `defaults
  mode http
  timeout connect 5s
  timeout client 10s
  timeout server 10s
frontend service
  bind 127.0.0.1:${port}
  http-request return status 200 content-type application/json string '${TOKEN}' if { path_end /access }
  http-request deny deny_status 413
`,
    args: (file) => ['-db', '-f', file],
  },
]

describe.each(REAL_SERVERS)('$program as the service', (server) => {
  const isInstalled = spawnSync(server.program, [server.versionFlag]).status === 0

  test.skipIf(!isInstalled).each(SIZES)('no answer to an upload of %i octets is lost', async (bytes) => {
    await using real = await startRealServer(server)
    await using service = await startService()
    await using proxy = await startProxy(service, { baseUrl: `http://127.0.0.1:${real.port}` })
    for (let i = 0; i < UPLOADS; i++) expect((await upload(proxy.port, '/v2/upload', bytes)).status).toBe(413)
  })
})

async function startRealServer(server: RealServer): Promise<{ readonly port: number } & AsyncDisposable> {
  const folder = await mkdtemp(join(tmpdir(), 'oap-early-'))
  const port = await freePort()
  const file = join(folder, 'configuration')
  await writeFile(file, server.configuration(port, folder))
  const child = spawn(server.program, server.args(file, folder), { stdio: ['ignore', 'ignore', 'inherit'] })
  const exited = once(child, 'exit')
  await eventually(() => answers(port), `${server.program} to listen`)
  return {
    port,
    [Symbol.asyncDispose]: async () => {
      child.kill('SIGKILL')
      await exited
      await rm(folder, { recursive: true })
    },
  }
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  server.close()
  await once(server, 'close')
  return port
}

async function answers(port: number): Promise<true | undefined> {
  const asked = request(port, head('GET /v2/small HTTP/1.1', 'Host: 127.0.0.1'))
  return asked.then(
    () => true,
    () => undefined,
  )
}
