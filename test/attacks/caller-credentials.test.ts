/** The attack on the identity of a caller: two credentials in one request, so that two checks find two callers. */

import { expect, test } from 'vitest'
import { request } from '../support/raw-client.ts'
import { startService } from '../support/service.ts'
import { startProxy } from '../support/start-proxy.ts'

const KEY = 'reports-key-0123456789'

test('two credentials at once, and one that Connection names', async () => {
  await using service = await startService()
  await using proxy = await startProxy(
    service,
    {},
    {
      'proxy.yaml': 'callers: [{name: a, keyFiles: [a.key], orgs: ["*"]}, {name: b, keyFiles: [b.key], orgs: ["*"]}]',
      'a.key': KEY,
      'b.key': 'another-key-0123456789',
    },
  )
  const send = (...lines: string[]) =>
    request(proxy.port, ['GET /v2/x HTTP/1.1', 'Host: localhost', 'X-Org-Id: acme', ...lines, '', ''].join('\r\n'))
  for (const lines of [
    [`X-Proxy-Key: ${KEY}`, 'X-Proxy-Key: another-key-0123456789'],
    [`X-Proxy-Key: ${KEY}`, `x-proxy-key: ${KEY}`],
    [`X-Proxy-Key: ${KEY}`, 'X-Proxy-Key:'],
    [`X-Proxy-Key: ${KEY}, another-key-0123456789`],
    [`X_Proxy_Key: ${KEY}`],
    [`Proxy-Authorization: Bearer ${KEY}`],
    [`Authorization: Bearer ${KEY}`],
  ]) {
    const { status, content } = await send(...lines)
    expect([status, JSON.parse(content.toString()).code]).toEqual([403, 'caller_refused'])
  }
  expect(service.origin.requests).toEqual([])
  expect((await send('Connection: x-proxy-key', `X-Proxy-Key: ${KEY}`)).status).toBe(200)
  expect(service.requests[0]?.fields.join()).not.toMatch(/proxy-key|reports-key/i)
})
