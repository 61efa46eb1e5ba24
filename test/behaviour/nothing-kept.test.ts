/** The proxy keeps nothing of one request for another, apart from tokens: no cookie, and no response. */

import { expect, test } from 'vitest'
import { get, head } from '../support/case-table.ts'
import { request } from '../support/raw-client.ts'
import { startBoth } from '../support/start-proxy.ts'

const CONDITIONS = ['If-None-Match: "a"', 'Range: bytes=0-1']

test('a cookie that the service sets comes back only if the client sends it', async () => {
  const { service, proxy } = await startBoth({ script: () => ({ fields: ['Set-Cookie', 'session=1; Path=/'] }) })
  await request(proxy.port, get('/v2/x', 'acme'))
  await request(proxy.port, get('/v2/x', 'acme'))
  expect(service.requests.map((seen) => seen.values('cookie'))).toEqual([[], []])
})

test.each(['GET', 'HEAD'])(
  'a response to %s that may be stored is not stored: the service answers each request',
  async (method) => {
    let answers = 0
    const { service, proxy } = await startBoth(
      {
        script: () => ({
          fields: ['Cache-Control', 'public, max-age=3600', 'ETag', '"a"', 'X-Answer', `${++answers}`],
        }),
      },
      {},
    )
    const line = `${method} /v2/x HTTP/1.1`
    const requests = [[], [], CONDITIONS].map((more) => head(line, 'Host: localhost', 'X-Org-Id: acme', ...more))
    for (const [index, raw] of requests.entries()) {
      const { fields } = await request(proxy.port, raw)
      expect(fields[fields.indexOf('X-Answer') + 1]).toBe(`${index + 1}`)
    }
    expect(service.requests.map((seen) => seen.values('if-none-match'))).toEqual([[], [], ['"a"']])
  },
)
