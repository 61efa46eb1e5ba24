/** The mint of one org does not affect other orgs, and a request that waits for a mint cannot end it. */

import { expect, test } from 'vitest'
import { get } from '../../support/case-table.ts'
import { Gate } from '../../support/changes.ts'
import { KeepAliveClient } from '../../support/keep-alive-client.ts'
import { RawClient } from '../../support/raw-client.ts'
import { startService } from '../../support/service.ts'
import { startProxy } from '../../support/start-proxy.ts'
import type { MintScript } from '../../support/token-endpoint.ts'

/** The mints of this org wait for the gate. */
const heldMints =
  (org: string, gate: Gate): MintScript =>
  async (mint) => {
    if (mint.org === org) await gate.pass()
    return mint.issue()
  }

test.concurrent('the first waiting client leaves: the mint goes on for the others', async () => {
  const gate = new Gate()
  await using service = await startService({ mint: heldMints('acme', gate) })
  await using proxy = await startProxy(service)
  const first = await RawClient.connect(proxy.port)
  first.send(get('/v2/left', 'acme'))
  await service.origin.waitFor(() => service.tokens.mints.length === 1)
  using second = new KeepAliveClient(proxy.port)
  const answer = second.get('/v2/x', 'acme')
  first.reset()
  await first[Symbol.asyncDispose]()
  await proxy.logOf('/v2/left')
  gate.open()
  expect((await answer).status).toBe(200)
  expect(service.tokens.mints).toHaveLength(1)
  expect(service.requests.map((received) => received.target)).toEqual(['/v2/x'])
})

test.concurrent('all waiting clients leave: they wait no more, and the next one gets the token', async () => {
  const gate = new Gate()
  await using service = await startService({ mint: heldMints('acme', gate) })
  await using proxy = await startProxy(service, { 'admin.address': 'localhost:0' })
  const waiting = async () => JSON.parse((await proxy.askAdmin('/status')).content).totals.requestsWaitingForToken
  using first = new KeepAliveClient(proxy.port)
  const left = expect(first.get('/v2/left', 'acme')).rejects.toThrow()
  await service.origin.waitFor(() => service.tokens.mints.length === 1)
  expect(await waiting()).toBe(1)
  first.abort()
  await left
  await proxy.logOf('/v2/left')
  expect(await waiting()).toBe(0)
  gate.open()
  using second = new KeepAliveClient(proxy.port)
  expect((await second.get('/v2/x', 'acme')).status).toBe(200)
  expect(service.tokens.mints).toHaveLength(1)
})
