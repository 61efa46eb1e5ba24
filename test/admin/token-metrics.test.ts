import { expect, test } from 'vitest'
import { renderFamilies } from '../../src/admin/counts.ts'
import { TokenMetrics } from '../../src/admin/token-metrics.ts'
import type { OrgId } from '../../src/http/org-id.ts'
import { parseExposition } from './exposed.ts'

const ORG = 'canary-org' as OrgId

test('mints are counted by reason and outcome, without the Org', async () => {
  const metrics = new TokenMetrics()
  metrics.mintSettled({ org: ORG, url: 'http://localhost/', reason: 'cold', outcome: 'ok', durationMs: 30 })
  metrics.mintSettled({
    org: ORG,
    url: 'http://localhost/',
    reason: 'refresh',
    outcome: 'token_endpoint_timeout',
    durationMs: 5_000,
  })
  metrics.mintSettled({
    org: ORG,
    url: 'http://localhost/',
    reason: 'cold',
    outcome: 'org_access_refused',
    durationMs: 0,
  })
  const text = await renderFamilies(metrics.families())
  const { values } = parseExposition(text)
  expect(values.get('oap_mints_total{reason="cold",outcome="ok"}')).toBe(1)
  expect(values.get('oap_mints_total{reason="refresh",outcome="token_endpoint_timeout"}')).toBe(1)
  expect(values.get('oap_mints_total{reason="refresh",outcome="ok"}')).toBe(0)
  expect(values.get('oap_mint_duration_seconds_count')).toBe(3)
  expect(values.get('oap_mint_duration_seconds_sum')).toBeCloseTo(5.03, 9)
  expect(metrics.totals()).toMatchObject({ mints: 3, refusedMints: 1, failedMints: 1 })
  expect(text).not.toContain(ORG)
})

test('rejections, evictions and changes of the secret are counted', async () => {
  const metrics = new TokenMetrics()
  metrics.tokenRejected()
  metrics.tokenRejected()
  metrics.tokenEvicted()
  metrics.secretReloaded('rejected')
  const { values } = parseExposition(await renderFamilies(metrics.families()))
  expect(values.get('oap_token_rejections_total')).toBe(2)
  expect(values.get('oap_token_evictions_total')).toBe(1)
  expect(values.get('oap_secret_reloads_total{outcome="rejected"}')).toBe(1)
  expect(values.get('oap_secret_reloads_total{outcome="proved"}')).toBe(0)
})
