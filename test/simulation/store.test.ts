/** The store of the simulation beside a real one: each script brings the same answer, whatever came before. */

import { expect, test } from 'vitest'
import { openLink } from '../../src/fleet/redis-link.ts'
import { CLAIM, FORGET, PROBE, PUBLISH, RELEASE, storedValue } from '../../src/fleet/scripts.ts'
import { lacks } from '../support/programs.ts'
import { RedisServer } from '../units/fleet/redis-server.ts'
import { type Reply, StoreModel } from './peers/store.ts'
import { Random } from './world/random.ts'

const SCRIPTS = [CLAIM, CLAIM, CLAIM, PUBLISH, PUBLISH, RELEASE, FORGET, PROBE]
const LONG_MS = 60_000

/** Without times. */
function told(reply: Reply | unknown): unknown {
  return Array.isArray(reply) ? reply.map((part) => (typeof part === 'number' ? 'a time' : part)) : reply
}

test.skipIf(lacks('redis-server'))('the simulated store answers as a real one', async () => {
  await using server = await RedisServer.start()
  const place = { kind: 'tcp', host: '127.0.0.1', port: server.port, tls: false, database: 0 } as const
  const options = { address: place, cluster: false, password: () => undefined, secureContext: undefined }
  const link = openLink(options, 5_000, () => undefined)
  await link.opened
  const model = new StoreModel()
  const random = new Random(1, 'store')
  const began = Date.now()
  const mark = () => random.pick(['one', 'two']).padEnd(22, '-')
  /** Half of them are older than the claims take. */
  const value = () =>
    storedValue({ mark: mark(), mintedAtMs: began - random.pick([0, 100, 900_000]), sealed: 'sealed' })
  const kinds = new Set<unknown>()
  for (let i = 0; i < 2_000; i++) {
    const script = random.pick(SCRIPTS)
    const name = random.pick(['acme', 'globex'])
    const keys = ['t', 'l'].map((part) => `oap:{${name}}:${part}`)
    const owner = random.pick(['one', 'two', 'three'])
    // A lease that is longer than that of the claimer is a stranger's.
    const claim = [owner, String(LONG_MS - random.whole(0, 1) * 30_000), '450000', mark()]
    const args = { claim, publish: [owner, value(), String(LONG_MS)], release: [owner], forget: [], probe: [] }
    const real = await link.run(script.text, keys, args[script.operation])
    const simulated = model.run(script.text, keys, args[script.operation], Date.now())
    expect(told(simulated), `${i}: ${script.operation}`).toEqual(told(real))
    kinds.add(Array.isArray(real) ? real[0] : real)
  }
  expect([...kinds].sort()).toEqual(['acquired', 'held', 'lost', 'ok', 'token'])
  link.close()
})
