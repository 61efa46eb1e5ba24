/** As many requests as were asked for, with a line about how far it is, memory included, and a verdict at the end. */

import { expect, test } from 'vitest'
import { type ProxyProcess, startProxyProcess } from '../test/support/proxy-process.ts'
import { startRotatingService } from '../test/support/rotating-service.ts'
import { type CrossOrgReport, runCrossOrg } from './cross-org.ts'
import { CONCURRENCY, ORGS, ROTATION_MS, SETTINGS } from './settings.ts'

const PROGRESS_EVERY_MS = 10_000

const { SOAK_OPTIONS = '{}' } = process.env
const { requests = '10000', seconds = '60', seed = '1' }: Record<string, string> = JSON.parse(SOAK_OPTIONS)

function describe({ requests, durationMs, answers, aborted, broken, mints, mismatches }: CrossOrgReport): string {
  const byStatus = Object.entries(answers).map(([status, count]) => `${count} × ${status}`)
  return (
    `${requests} requests in ${Math.round(durationMs / 1_000)} s: ${byStatus.join(', ')}, ${aborted} aborted, ` +
    `${broken} broken; ${mints} mints; ${mismatches.length} mismatches`
  )
}

async function residentMiB(proxy: ProxyProcess): Promise<number> {
  const { residentBytes } = await proxy.memory()
  return Math.round(residentBytes / 2 ** 20)
}

test(`${requests} requests for ${ORGS} orgs from seed ${seed}`, async () => {
  await using service = await startRotatingService({ rotatesEveryMs: ROTATION_MS })
  await using proxy = await startProxyProcess(service, { settings: SETTINGS })
  let nextLineMs = PROGRESS_EVERY_MS
  const onProgress = async (report: CrossOrgReport) => {
    if (report.durationMs < nextLineMs) return
    nextLineMs += PROGRESS_EVERY_MS
    process.stdout.write(`${describe(report)}; resident ${await residentMiB(proxy)} MiB\n`)
  }
  process.stdout.write(`soak: ${requests} requests, ${seconds} s at the most, seed ${seed}\n`)
  const report = await runCrossOrg({
    port: proxy.port,
    service,
    seed: Number(seed),
    requests: Number(requests),
    concurrency: CONCURRENCY,
    orgs: ORGS,
    maxDurationMs: Number(seconds) * 1_000,
    onProgress: (progress) => {
      onProgress(progress).catch(() => undefined) // the proxy has ended: the run itself fails then
    },
  })
  const isGood = report.mismatches.length === 0 && report.broken === 0
  const date = new Date().toISOString().slice(0, 10)
  process.stdout.write(
    `${date}, seed ${seed}: ${describe(report)}; resident ${await residentMiB(proxy)} MiB: ${isGood ? 'passed' : 'FAILED'}\n`,
  )
  expect(report.mismatches.slice(0, 20)).toEqual([])
  expect(report.broken, 'connections that ended before the answer did').toBe(0)
  expect(report.answers[200] ?? 0, 'served').toBeGreaterThan(report.requests / 2)
})
