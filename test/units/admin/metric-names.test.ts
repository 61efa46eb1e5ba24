import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { describe, expect, test } from 'vitest'
import { parse } from 'yaml'
import { runtimeMetrics } from '../../../src/admin/counts.ts'
import { documentAt, tablesBelow, unquoted } from '../../processes/docs/documents.ts'
import { makeFolder } from '../../support/folder.ts'
import { lacks, programPath } from '../../support/programs.ts'
import { request } from '../../support/raw-client.ts'
import { type Exposed, parseExposition } from './exposed.ts'
import { AdminUnderTest } from './start-admin.ts'

const SCRAPE = 'GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n'
const ALERTS = readFileSync(new URL('../../../deploy/prometheus/alerts.yaml', import.meta.url), 'utf8')
const CASES = readFileSync(new URL('alerts-cases.yaml', import.meta.url), 'utf8')
const DASHBOARD = readFileSync(new URL('../../../deploy/grafana/dashboard.json', import.meta.url), 'utf8')

/** As `promtool test rules` reads it. */
interface AlertCase {
  readonly name: string
  readonly input_series: readonly { readonly series: string }[]
  readonly promql_expr_test: readonly { readonly exp_samples: readonly { readonly labels: string }[] }[]
}

function namesOfOurs(types: Exposed['types']): string[] {
  return [...types.keys()].filter((name) => name.startsWith('oap_'))
}

async function scrape(): Promise<string> {
  await using admin = await AdminUnderTest.start()
  await admin.mint('acme')
  admin.requestEnded()
  admin.requestEnded({ method: 'POST', status: 502, code: 'dns_error', caller: 'billing' })
  admin.metrics.store?.requests.add('claim', 'error')
  return (await request(admin.port, SCRAPE)).content.toString()
}

function promtool(args: readonly string[], input = ''): void {
  const { status, stdout, stderr } = spawnSync(programPath('promtool'), args, {
    input,
    cwd: import.meta.dirname,
    encoding: 'utf8',
  })
  if (status !== 0) throw new Error(`promtool ${args.join(' ')}: ${stdout}${stderr}`)
}

test('right behind a scrape, the event loop has no delay that it never had', async () => {
  for (let scrapes = 0; scrapes < 3; scrapes++) expect(await runtimeMetrics()).not.toContain(' 9223372036')
})

// `test/processes/docs/names.test.ts` compares the names.
test('types follow from the names, and labels are those of Operations: none can contain an Org or a token', async () => {
  const text = await scrape()
  const { types } = parseExposition(text)
  for (const name of ['process_cpu_seconds_total', 'process_resident_memory_bytes', 'nodejs_heap_size_used_bytes']) {
    expect(types.has(name), name).toBe(true)
  }
  const typeOf = (name: string) =>
    name.endsWith('_total') ? 'counter' : /(duration|overhead|response)_seconds$/.test(name) ? 'histogram' : 'gauge'
  for (const name of namesOfOurs(types)) expect([name, types.get(name)]).toEqual([name, typeOf(name)])
  const ours = text.split('\n').filter((line) => /^(# \w+ )?oap_/.test(line))
  const { labelNames } = parseExposition(`${ours.join('\n')}\n`)
  const rows = tablesBelow(documentAt('docs/operations.md'), '## Metrics')
  const documented = rows.flatMap(([, labels = '']) => labels.match(/\w+/g) ?? [])
  expect([...labelNames].filter((name) => name !== 'le').toSorted()).toEqual([...new Set(documented)].toSorted())
  expect(ours.join('\n')).not.toContain('acme')
})

test('the endpoint has the recorded values', async () => {
  await using admin = await AdminUnderTest.start()
  const response = await request(admin.port, SCRAPE)
  const { values } = parseExposition(response.content.toString())
  expect(response.fields).toContain('text/plain; version=0.0.4; charset=utf-8')
  expect(values.get('oap_origin_connections{state="free"}')).toBe(3)
  expect(values.get(`oap_build_info{version="0.0.0-test",node="${process.versions.node}"}`)).toBe(1)
})

test('an Org that is refused counts once, by the token endpoint or the minter, and one that a caller may not name does not', async () => {
  await using admin = await AdminUnderTest.start()
  const refused = { status: 403, code: 'org_access_refused' } as const
  for (const orgId of ['acme', 'acme', 'globex']) admin.requestEnded({ ...refused, orgId })
  admin.requestEnded({ status: 403, code: 'org_not_allowed', orgId: 'initech' })
  admin.requestEnded({ status: 403, code: 'org_not_allowed', orgId: 'umbrella', isOfMinter: true })
  const { values } = parseExposition((await request(admin.port, SCRAPE)).content.toString())
  expect(values.get('oap_orgs_refused')).toBe(3)
})

test('two scrapes at once both get values', async () => {
  await using admin = await AdminUnderTest.start()
  const texts = await Promise.all([request(admin.port, SCRAPE), request(admin.port, SCRAPE)])
  for (const { content } of texts) {
    for (const [name, value] of parseExposition(content.toString()).values) {
      expect(Number.isFinite(value), `${name} ${value}`).toBe(true)
    }
  }
})

describe('the alerts and the dashboard', () => {
  /** The metrics in an expression: all words other than calls, labels, texts and durations. */
  function namesIn(expression: string): string[] {
    const bare = expression
      .replace(/"[^"]*"/g, '')
      .replace(/\{[^}]*\}|\[[^\]]*\]/g, '')
      .replace(/\b(by|without|on|ignoring)\s*\([^)]*\)/g, '')
    return bare.match(/\b[a-z]\w*_\w+\b(?!\s*\()/g) ?? []
  }

  function knows({ types }: Exposed, name: string): boolean {
    return types.has(name) || types.has(name.replace(/_(bucket|sum|count)$/, ''))
  }

  test('alerts name only metrics that exist', async () => {
    const exposed = parseExposition(await scrape())
    const groups: { groups: { rules: { expr: string }[] }[] } = parse(ALERTS)
    const names = groups.groups.flatMap(({ rules }) => rules.flatMap(({ expr }) => namesIn(expr)))
    expect(names.length).toBeGreaterThan(10)
    expect(names.filter((name) => !knows(exposed, name))).toEqual([])
  })

  test('alerts use only codes and outcomes that exist', async () => {
    const states = tablesBelow(documentAt('docs/operations.md'), '## Warnings').map(([code = '']) => unquoted(code))
    const series = [...parseExposition(await scrape()).values.keys(), ...states.map((code) => `{code="${code}"}`)]
    const matchers = [...ALERTS.matchAll(/(\w+)(?:=|=~|!=)"([^"]+)"/g)]
    expect(matchers.length).toBeGreaterThan(5)
    for (const [, label, pattern = ''] of matchers) {
      if (label === 'job') continue // of the scrape configuration
      for (const alternative of pattern.split('|')) {
        const wanted = new RegExp(`[{,]${label}="${alternative}"[,}]`)
        expect(
          series.some((name) => wanted.test(name)),
          `${label} ${alternative}`,
        ).toBe(true)
      }
    }
  })

  test('the dashboard names only metrics that exist, and all of ours', async () => {
    const exposed = parseExposition(await scrape())
    const { panels }: { panels: { targets: { expr: string }[] }[] } = JSON.parse(DASHBOARD)
    const names = panels.flatMap(({ targets }) => targets.flatMap(({ expr }) => namesIn(expr)))
    expect(names.filter((name) => !knows(exposed, name))).toEqual([])
    const shown = new Set(names.map((name) => name.replace(/_bucket$/, '')))
    expect(namesOfOurs(exposed.types).filter((name) => !shown.has(name))).toEqual([])
  })

  test('each alert has a trouble in which it fires, and a night with its metrics in which it does not', () => {
    const { groups }: { groups: { rules: { alert: string; expr: string }[] }[] } = parse(ALERTS)
    const { tests: cases }: { tests: AlertCase[] } = parse(CASES)
    const fired = cases
      .filter(({ name }) => !name.startsWith('night:'))
      .flatMap((each) => each.promql_expr_test.flatMap(({ exp_samples: found }) => found.map(({ labels }) => labels)))
    const quiet = cases
      .filter(({ name }) => name.startsWith('night:'))
      .flatMap((each) => each.input_series.map(({ series }) => series))
    for (const { alert, expr } of groups.flatMap(({ rules }) => rules)) {
      expect(
        fired.some((labels) => labels.includes(`alertname="${alert}"`)),
        alert,
      ).toBe(true)
      for (const name of [...namesIn(expr), ...(expr.startsWith('up') ? ['up'] : [])])
        expect(
          quiet.some((series) => series.startsWith(name)),
          `${alert}: ${name}`,
        ).toBe(true)
      for (const [, codes = ''] of expr.matchAll(/oap_warnings\{code=~?"([^"]+)"/g))
        for (const code of codes.split('|'))
          expect(
            quiet.some((series) => series.includes(`code="${code}"`)),
            `${alert}: ${code}`,
          ).toBe(true)
    }
  })

  test('Operations lists the alerts that are critical', () => {
    const { groups }: { groups: { rules: { alert: string; labels: { severity: string } }[] }[] } = parse(ALERTS)
    const rules = groups.flatMap(({ rules }) => rules)
    expect(rules.filter(({ labels }) => !['critical', 'warning'].includes(labels.severity))).toEqual([])
    const critical = rules.filter(({ labels }) => labels.severity === 'critical').map(({ alert }) => alert)
    const told = /\n## Alerts\n(.*?)\n## /s.exec(documentAt('docs/operations.md').text)?.[1] ?? ''
    expect([...told.matchAll(/`OrgAccessProxy(\w+)`/g)].map(([, name]) => `OrgAccessProxy${name}`).toSorted()).toEqual(
      critical.toSorted(),
    )
  })

  test.skipIf(lacks('promtool'))(
    'promtool accepts metrics and alerts, and the alerts fire on the right series',
    async () => {
      promtool(['check', 'metrics'], await scrape())
      promtool(['check', 'rules', '../../../deploy/prometheus/alerts.yaml'])
      promtool(['test', 'rules', 'alerts-cases.yaml'])
    },
  )

  test('each alert says what it means and what to do, and leads to Operations', () => {
    const { groups }: { groups: { rules: { annotations: Record<string, string> }[] }[] } = parse(ALERTS)
    for (const { annotations } of groups.flatMap(({ rules }) => rules)) {
      expect(annotations).toEqual({
        runbook_url: 'https://docs.example/operations.md#alerts',
        summary: expect.stringMatching(/\S/),
        description: expect.stringMatching(/\.$/),
      })
    }
  })

  test.skipIf(lacks('promtool')).each(['scrape.yaml', 'scrape-kubernetes.yaml'])(
    'promtool accepts %s, with the job that the alert names',
    async (name) => {
      const path = fileURLToPath(new URL(`../../../deploy/prometheus/${name}`, import.meta.url))
      const text = readFileSync(path, 'utf8')
      // Debian's promtool is built without Kubernetes.
      const plain = text.replace(/kubernetes_sd_configs:\n +- role: pod/, 'static_configs: [{ targets: [pod:9090] }]')
      await using folder = await makeFolder()
      promtool(['check', 'config', plain === text ? path : await folder.write('prometheus.yaml', plain)])
      const [, job = ''] = /up\{job="([^"]+)"\}/.exec(ALERTS) ?? []
      const { scrape_configs: jobs }: { scrape_configs: { job_name: string }[] } = parse(text)
      expect(jobs.map(({ job_name: found }) => found)).toEqual([job])
    },
  )

  test.skipIf(lacks('promtool'))('promtool accepts every expression of the dashboard', async () => {
    const { panels }: { panels: { targets: { expr: string }[] }[] } = JSON.parse(DASHBOARD)
    const expressions = panels.flatMap(({ targets }) => targets.map(({ expr }) => expr))
    const rules = expressions.map((expr, i) => ({ record: `p:${i}`, expr: expr.replaceAll('$__rate_interval', '5m') }))
    await using folder = await makeFolder()
    const groups = [{ name: 'dashboard', rules }]
    promtool(['check', 'rules', await folder.write('rules.json', JSON.stringify({ groups }))])
  })
})
