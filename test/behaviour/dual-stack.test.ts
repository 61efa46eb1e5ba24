/** The name of the service has an IPv4 and an IPv6 address, and only one of them answers. Skipped if it has only one. */

import { lookup } from 'node:dns/promises'
import { afterAll, describe, expect, test } from 'vitest'
import { get } from '../support/case-table.ts'
import { HANDSHAKE } from '../support/handshake.ts'
import { request } from '../support/raw-client.ts'
import { startService } from '../support/service.ts'
import { startProxy } from '../support/start-proxy.ts'
import { echoServer } from '../support/websocket-echo.ts'

const known = (await lookup('localhost', { all: true })).map(({ address }) => address)

describe.each(['127.0.0.1', '::1'])('the service answers only on %s', async (host) => {
  const { script } = echoServer({ content: 'hello' })
  const service = await startService({ host, script }).catch(() => undefined) // a machine without IPv6

  afterAll(() => service?.[Symbol.asyncDispose]())

  const literal = host.includes(':') ? `[${host}]` : host
  test.skipIf(service === undefined || !known.includes(host)).each(['localhost', literal])(
    'mints, requests and WebSockets reach it as %s',
    async (name) => {
      if (service === undefined) return
      await using proxy = await startProxy(service, { baseUrl: `http://${name}:${service.origin.port}` })
      expect((await request(proxy.port, get('/v2/x', 'acme'))).content.toString()).toBe('hello')
      expect((await request(proxy.port, get('/v2/ws', 'acme', ...HANDSHAKE))).status).toBe(101)
    },
  )
})
