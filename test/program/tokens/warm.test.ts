/** `tokens.warm`: each org gets a token, within the budget, and in another order in each process. */

import { expect, test } from 'vitest'
import { Gate } from '../../support/changes.ts'
import { startService } from '../../support/service.ts'
import { startProxy } from '../../support/start-proxy.ts'

const ORGS = Array.from({ length: 400 }, (_, i) => `org-${i}`)

test('400 of 400 orgs, although the budget would refuse most of them at once', async () => {
  await using service = await startService()
  await using proxy = await startProxy(service, { 'tokens.warm': ORGS.join(), 'admin.address': 'localhost:0' })
  await proxy.app.warmed
  expect((await fetch(`http://127.0.0.1:${proxy.adminPort}/readyz`)).status).toBe(200)
  expect(new Set(service.tokens.mints.map((mint) => mint.org))).toEqual(new Set(ORGS))
  expect(service.tokens.mints).toHaveLength(400)
  expect(proxy.logs.find((line) => line.msg === 'warm orgs minted')).toMatchObject({ orgs: 400 })

  const order = service.tokens.mints.map((mint) => mint.org)
  await using other = await startService()
  await using second = await startProxy(other, { 'tokens.warm': ORGS.join(), 'tokens.mintRate': '1000' })
  await second.app.warmed
  expect(other.tokens.mints.map((mint) => mint.org)).not.toEqual(order)
})

test('orgs that fail are logged and counted, and the proxy becomes ready', async () => {
  const gate = new Gate()
  let issued = 0
  await using service = await startService({
    mint: async (mint) => {
      // Before the first token, a 404 would tell of a wrong path. Eight mints run at once: when the ninth comes, one has its token.
      if (mint.org === 'org-3') return gate.pass().then(() => ({ status: 404 }))
      issued += 1
      if (issued === 9) gate.open()
      return mint.issue()
    },
  })
  await using proxy = await startProxy(service, {
    'tokens.warm': ORGS.slice(0, 10).join(),
    'admin.address': 'localhost:0',
  })
  await proxy.app.warmed
  expect(proxy.logs.find((line) => line.msg === 'some warm orgs have no token')).toMatchObject({ orgs: 10, failed: 1 })
  const metrics = await (await fetch(`http://127.0.0.1:${proxy.adminPort}/metrics`)).text()
  expect(metrics).toContain('oap_mints_total{reason="warm",outcome="ok"} 9')
  expect(metrics).toContain('oap_mints_total{reason="warm",outcome="org_access_refused"} 1')
})
