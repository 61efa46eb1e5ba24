/** No Org gets the token of another, in whichever order mints end. For the same under load see tokens/cross-org.test.ts. */

import { expect, test } from 'vitest'
import { get } from '../../support/case-table.ts'
import { Changes } from '../../support/changes.ts'
import { problemOf, request } from '../../support/raw-client.ts'
import { startBoth } from '../../support/start-proxy.ts'

test('two Orgs need tokens at once, and the first mint is answered last', async () => {
  const changes = new Changes()
  const released = new Set<string>()
  const { service, proxy } = await startBoth({
    mint: async (mint) => {
      await changes.until(() => released.has(mint.org), `the release of ${mint.org}`)
      return mint.org === 'refused' ? { status: 404 } : mint.issue()
    },
    script: (seen) => ({ content: service.orgOf(seen) ?? '' }),
  })
  const orgs = ['first', 'second', 'refused', 'third']
  const answers = orgs.map((org) => request(proxy.port, get('/v2/x', org)))
  await service.origin.waitFor(() => service.tokens.mints.length === orgs.length)
  for (const org of orgs.toReversed()) {
    released.add(org)
    changes.notify()
    await answers[orgs.indexOf(org)]
  }
  const [first, second, refused, third] = await Promise.all(answers)
  expect([first, second, third].map((answer) => answer?.content.toString())).toEqual(['first', 'second', 'third'])
  expect(refused?.status).toBe(403)
  expect(refused && problemOf(refused).code).toBe('org_access_refused')
})
