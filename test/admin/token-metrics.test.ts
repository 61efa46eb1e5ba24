import { expect, test } from 'vitest'
import { renderFamilies } from '../../src/admin/counts.ts'
import { Metrics } from '../../src/admin/metrics.ts'
import type { OrgId } from '../../src/http/org-id.ts'
import { parseExposition } from './exposed.ts'
import { NO_GAUGES } from './records.ts'

test('mints are counted by reason and outcome, without the Org', async () => {
  const metrics = new Metrics()
  const mint = { org: 'canary-org' as OrgId, url: 'http://localhost/' }
  metrics.mintSettled({ ...mint, reason: 'cold', outcome: 'ok', durationMs: 30 })
  metrics.mintSettled({ ...mint, reason: 'refresh', outcome: 'token_endpoint_timeout', durationMs: 5_000 })
  metrics.mintSettled({ ...mint, reason: 'cold', outcome: 'org_access_refused', durationMs: 0 })
  const text = await renderFamilies(metrics.families(NO_GAUGES))
  const { values } = parseExposition(text)
  expect(values.get('oap_mints_total{reason="cold",outcome="ok"}')).toBe(1)
  expect(values.get('oap_mints_total{reason="refresh",outcome="token_endpoint_timeout"}')).toBe(1)
  expect(values.get('oap_mints_total{reason="refresh",outcome="ok"}')).toBe(0)
  expect(values.get('oap_mint_duration_seconds_sum')).toBeCloseTo(5.03, 9)
  expect(metrics.totals()).toMatchObject({ mints: 3, refusedMints: 1, failedMints: 1 })
  expect(text).not.toContain('canary-org')
})
