/** What `purge` and `resume` end, through the whole program. */

import { expect, test } from 'vitest'
import { get } from '../../support/case-table.ts'
import { request } from '../../support/raw-client.ts'
import { type ProxyUnderTest, startBoth } from '../../support/start-proxy.ts'

const ADMIN = { 'admin.address': 'localhost:0' } as const

async function ask(proxy: ProxyUnderTest, org: string): Promise<number> {
  return (await request(proxy.port, get('/v2/x', org))).status
}

test.each([
  [{ status: 403 }, 403],
  [{ status: 429, fields: ['Retry-After', '120'] }, 503],
])(
  'a purge of one Org drops what is remembered of its mints (%o), and nothing of another Org',
  async (trouble, status) => {
    let isIll = true
    const settings = { ...ADMIN, 'tokens.refusalTtl': '1h' }
    const { service, proxy } = await startBoth({ mint: (mint) => (isIll ? trouble : mint.issue()) }, settings)
    const both = async () => [await ask(proxy, 'acme'), await ask(proxy, 'globex')]
    expect(await both()).toEqual([status, status])
    isIll = false
    expect(await both()).toEqual([status, status])
    await proxy.askAdmin('/tokens/purge?org=acme', 'POST')
    expect(await both()).toEqual([200, status])
    await proxy.askAdmin('/tokens/purge?org=all', 'POST')
    expect(await both()).toEqual([200, 200])
    expect(service.tokens.mintsOf('acme')).toHaveLength(3)
  },
)

test('resume ends the pause after a mint that did not help', async () => {
  let accepts = true
  const settings = { ...ADMIN, 'tokens.settleTime': '0s', 'tokens.rejectedCooldown': '1h' }
  const script = () => ({ status: accepts ? 200 : 401 })
  const { service, proxy } = await startBoth({ acceptsAnyToken: true, script }, settings)
  expect(await ask(proxy, 'acme')).toBe(200)
  accepts = false
  for (const _ of 'abc') expect(await ask(proxy, 'acme')).toBe(401)
  expect(service.tokens.mintsOf('acme')).toHaveLength(2)
  await proxy.askAdmin('/tokens/resume', 'POST')
  for (const _ of 'abc') expect(await ask(proxy, 'acme')).toBe(401)
  expect(service.tokens.mintsOf('acme')).toHaveLength(3)
})
