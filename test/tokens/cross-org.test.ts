/** T-ID-23 No request bears the token of another org and no client gets the answer of another, whatever goes on at once. */

import { expect, test } from 'vitest'
import { runCrossOrg } from '../../soak/cross-org.ts'
import { CONCURRENCY, ORGS, ROTATION_MS, SETTINGS } from '../../soak/settings.ts'
import { startProxyProcess } from '../support/proxy-process.ts'
import { startRotatingService } from '../support/rotating-service.ts'
import { withSeed } from '../support/seed.ts'

const REQUESTS = 100_000

test('eviction, rotation and aborts over a thousand orgs', { timeout: 150_000 }, () =>
  withSeed(async ({ seed }) => {
    await using service = await startRotatingService({ rotatesEveryMs: ROTATION_MS })
    await using proxy = await startProxyProcess(service, { settings: SETTINGS })
    const run = { port: proxy.port, service, seed, requests: REQUESTS, concurrency: CONCURRENCY, orgs: ORGS }
    const report = await runCrossOrg({ ...run, maxDurationMs: 120_000 })
    const { mismatches, ...counts } = report
    console.info(`cross-org: seed ${seed}, ${JSON.stringify(counts)}`)
    expect(mismatches).toEqual([])
    expect(report.requests).toBe(REQUESTS)
    expect(report.broken).toBe(0)
    // A run in which nobody is served would prove nothing. How many are hangs on the machine: a token that waits its turn
    // for long has been forgotten by the service when it gets there, and so has its replacement.
    expect(report.answers[200]).toBeGreaterThan(REQUESTS / 2)
    expect(report.mints).toBeGreaterThan(ORGS)
    expect(report.aborted).toBeGreaterThan(REQUESTS / 1_000)
    expect(await proxy.metric('oap_token_evictions_total')).toBeGreaterThan(ORGS)
    expect(proxy.spawned.stderr).toEqual([])
  }),
)
