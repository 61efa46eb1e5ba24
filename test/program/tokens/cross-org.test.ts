/**
 * No request carries the token of another org, and no client gets the answer of another. Meanwhile everything happens
 * that could mix them up: many orgs at once, a cache for a tenth of their tokens, tokens that live less than a second,
 * and clients that leave.
 */

import { expect, test } from 'vitest'
import { KeepAliveClient } from '../../support/keep-alive-client.ts'
import { startOrgEcho } from '../../support/org-echo.ts'
import { scaled } from '../../support/pace.ts'
import { startProxyProcess } from '../../support/proxy-process.ts'
import { Random, withSeed } from '../../support/seed.ts'
import type { ProxySettings } from '../../support/start-proxy.ts'

const REQUESTS = 1_500
const ORGS = 300
const CONCURRENCY = 256
/** Half of the traffic is for this many orgs, so that cached tokens are both used and evicted. */
const BUSY_ORGS = 20

const SETTINGS: ProxySettings = {
  'tokens.maxOrgs': `${ORGS / 10}`,
  'tokens.mintRate': '100000',
  'tokens.mintConcurrency': '256',
  // The service shares its process with all clients, and Node accepts one connection in each turn of the event loop.
  'tokens.mintTimeout': '1m',
  'tokens.rejectedCooldown': '1ms',
  'log.requests': 'off',
}

test('eviction, expiry and aborts over three hundred orgs', () =>
  withSeed(async ({ seed }) => {
    await using service = await startOrgEcho({ tokenLifetimeMs: scaled(600) })
    await using proxy = await startProxyProcess(service, { settings: SETTINGS })
    const run = new CrossOrgRun(proxy.port, seed)
    await run.complete()
    console.info(`cross-org: seed ${seed}, ${JSON.stringify(run)}, ${service.stats().totals.mints} mints`)
    expect([...run.mismatches, ...service.mismatches]).toEqual([])
    expect(run.broken).toBe(0)
    const { 200: served = 0, 401: rejected = 0, ...others } = run.answers
    // The client sees the rejection if its token ended twice. Nothing else may go wrong.
    expect(others).toEqual({})
    expect(served + rejected + run.aborted).toBe(REQUESTS)
    expect(served).toBeGreaterThan(REQUESTS * 0.9)
    expect(service.stats().totals.mints).toBeGreaterThan(ORGS)
    expect(run.aborted).toBeGreaterThan(REQUESTS / 1_000)
    expect(await proxy.metric('oap_token_evictions_total')).toBeGreaterThan(ORGS)
    expect(proxy.spawned.stderr).toEqual([])
  }))

class CrossOrgRun {
  readonly #port: number
  readonly #seed: number
  /** Number of answers by status. */
  readonly answers: Record<number, number> = {}
  readonly mismatches: string[] = []
  aborted = 0
  /** Connections that ended before their answer, although nobody aborted. */
  broken = 0
  #begun = 0

  constructor(port: number, seed: number) {
    this.#port = port
    this.#seed = seed
  }

  async complete(): Promise<void> {
    // Each client has its own sequence, which depends on the seed alone and not on the order of answers.
    await Promise.all(Array.from({ length: CONCURRENCY }, (_, i) => this.#send(new Random(this.#seed + i))))
  }

  async #send(random: Random): Promise<void> {
    using client = new KeepAliveClient(this.#port)
    while (this.#begun < REQUESTS) {
      this.#begun += 1
      const org = `org-${random.integer(1, random.chance(0.5) ? BUSY_ORGS : ORGS)}`
      const willAbort = random.chance(0.01)
      const abort = willAbort ? setTimeout(() => client.abort(), random.integer(0, 20)) : undefined
      try {
        const { status, content } = await client.get(`/v2/as/${org}`, org)
        this.answers[status] = (this.answers[status] ?? 0) + 1
        if (status === 200 && content !== org) this.mismatches.push(`${org} got the answer of ${content}`)
      } catch {
        if (willAbort) this.aborted += 1
        else this.broken += 1
      }
      clearTimeout(abort)
    }
  }
}
