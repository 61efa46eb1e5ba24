/** No request ever bears another Org's token, and nobody gets another Org's answer, whatever goes on at once. */

import { expect, test } from 'vitest'
import { get } from '../support/case-table.ts'
import { Changes } from '../support/changes.ts'
import { problemOf, RawClient, request } from '../support/raw-client.ts'
import { withSeed } from '../support/seed.ts'
import { startService } from '../support/service.ts'
import { startProxy } from '../support/start-proxy.ts'

test("T-ID-24 two Orgs miss at once, and the later answer is the first one's", async () => {
  const changes = new Changes()
  const released = new Set<string>()
  await using service = await startService({
    mint: async (mint) => {
      await changes.until(() => released.has(mint.org), `the release of ${mint.org}`)
      return mint.org === 'refused' ? { status: 404 } : mint.issue()
    },
    script: (seen) => ({ content: service.orgOf(seen) ?? '' }),
  })
  await using proxy = await startProxy(service)
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

test('T-ID-23 many clients, many Orgs, few tokens kept, tokens taken back all the time, clients that leave', () =>
  withSeed(async (random) => {
    const orgs = Array.from({ length: 200 }, (_, i) => `org-${i}`)
    await using service = await startService({ script: (seen) => ({ content: service.orgOf(seen) ?? '' }) })
    await using proxy = await startProxy(service, {
      'tokens.maxOrgs': '20',
      'tokens.mintRate': '100000',
      'tokens.mintConcurrency': '64',
      'tokens.rejectedCooldown': '1ms',
      'log.level': 'warn',
    })
    const revoking = setInterval(() => service.tokens.revoke(random.pick(orgs)), 5)
    let wrong = 0
    let right = 0
    const client = async (requests: number): Promise<void> => {
      let connection = await RawClient.connect(proxy.port)
      for (let i = 0; i < requests; i++) {
        const org = random.pick(orgs)
        connection.send(get(`/v2/as/${org}`, org))
        if (random.chance(0.02)) {
          connection.reset()
          connection = await RawClient.connect(proxy.port)
          continue
        }
        const response = await connection.response()
        if (response.status !== 200) continue
        if (response.content.toString() === org) right++
        else wrong++
      }
      await connection[Symbol.asyncDispose]()
    }
    try {
      await Promise.all(Array.from({ length: 64 }, () => client(80)))
    } finally {
      clearInterval(revoking)
    }
    expect(wrong).toBe(0)
    expect(right).toBeGreaterThan(4000)
    const mismatches = service.requests.filter((seen) => {
      const org = seen.target.slice('/v2/as/'.length)
      return !seen.values('authorization').join().startsWith(`Bearer tok-${org}-`)
    })
    expect(mismatches).toEqual([])
  }))
