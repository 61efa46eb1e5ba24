/** `origin.sendCookies`: the cookie jar of an app sends the cookies of the service again, although it sees the proxy alone. */

import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { describe, expect, test } from 'vitest'
import { get } from '../../support/case-table.ts'
import { HANDSHAKE } from '../../support/handshake.ts'
import { lacks, programPath } from '../../support/programs.ts'
import { fieldOf, request } from '../../support/raw-client.ts'
import { startBothForFile, startProxy } from '../../support/start-proxy.ts'

const COOKIE = 'session=1; Domain=127.0.0.1; Path=/api/v2; Secure'

const { service, proxy } = await startBothForFile(
  {
    prefix: '/api',
    acceptsAnyToken: true,
    script: (seen, connection) => {
      if (seen.target.endsWith('/ws')) {
        connection.tunnel()
        connection.write(
          `HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSet-Cookie: ${COOKIE}\r\n\r\n`,
        )
        return undefined
      }
      return { fields: ['Set-Cookie', COOKIE], content: seen.values('cookie').join() }
    },
  },
  // Over TLS, cookies keep `Secure`; and programs from outside need a port.
  { 'origin.sendCookies': 'true', appRoutes: 'GET /v2/app', 'listen.address': 'localhost:0' },
)

describe('a login by cookie', () => {
  const python = `
import sys, http.cookiejar, urllib.request
opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar()))
for path in ("login", "more"):
    asked = urllib.request.Request(sys.argv[1] + path, headers={"X-Org-Id": "acme"})
    print(opener.open(asked).read().decode())
`
  test.for([
    [
      'curl',
      (url: string) => ['-sS', '-c', '/dev/null', '-H', 'X-Org-Id: acme', '-w', '\\n', `${url}login`, `${url}more`],
    ],
    ['python3', (url: string) => ['-c', python, url]],
  ] as const)('with %s', async ([name, argsOf], { skip }) => {
    skip(lacks(name))
    const { stdout } = await promisify(execFile)(programPath(name), argsOf(`http://localhost:${proxy.port}/v2/`))
    expect(stdout.trimEnd().split('\n')).toEqual(['', 'session=1'])
  })
})

test.each([
  ['a request', get('/v2/x', 'acme')],
  ['a request of the App', 'GET /v2/app HTTP/1.1\r\nHost: localhost\r\n\r\n'],
  ['a WebSocket', get('/v2/ws', 'acme', ...HANDSHAKE)],
])('the cookie in the answer to %s is for the proxy', async (_, raw) => {
  expect(fieldOf(await request(proxy.port, raw), 'set-cookie')).toBe('session=1; Path=/v2')
})

test('without the setting, it passes as it is', async () => {
  await using other = await startProxy(service)
  expect(fieldOf(await request(other.port, get('/v2/x', 'acme')), 'set-cookie')).toBe(COOKIE)
})
