/** The paths of the admin listener and their answers. */

import { createHash } from 'node:crypto'
// Built from src/admin/page/: by rolldown.config.ts in the program, by vitest.config.ts in tests.
import { markup, script, style } from 'status-page-assets'
import type { ErrorCode } from '../errors.ts'
import { parseOrgId } from '../org-id.ts'
import { inspect, type ReadinessCheck } from '../part.ts'
import { renderFamilies, runtimeMetrics } from './counts.ts'
import type { History } from './history.ts'
import { allRows } from './page/words.ts'
import { type AdminSources, type StatusDocument, statusOf } from './status.ts'
import type { Warnings } from './warnings.ts'

export interface Answer {
  readonly status: number
  readonly type: string
  readonly content: string
  /** Beside those that all answers have, or in place of them. */
  readonly fields?: Readonly<Record<string, string>>
}

export type AdminProblemCode = ErrorCode | 'callers_refused' | 'not_found' | 'quit_refused'

export interface Route {
  /** GET includes HEAD. */
  readonly method: 'GET' | 'POST'
  /** `probes`: those from other machines, and scrapers, too. `this machine`: no other, whatever `admin.allowRemote` says. */
  readonly isFor: 'probes' | 'operators' | 'this machine'
  readonly answer: (query: URLSearchParams) => Answer | AdminProblemCode | Promise<Answer>
}

/** On the page. */
const MAX_ORGS = 30

const TEXT = 'text/plain; charset=utf-8'

/** The browser runs the page's script and style, and nothing that is injected. */
const POLICY = [
  "default-src 'none'",
  `script-src '${hashOf(script)}'`,
  `style-src '${hashOf(style)}'`,
  "connect-src 'self'",
  'img-src data:',
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
  // No text can become markup, whatever the script does with it.
  "require-trusted-types-for 'script'",
  "trusted-types 'none'",
].join('; ')

// A function as replacement: `$&` in the script is no pattern.
const PAGE = markup
  .replace('<style></style>', () => `<style>${style}</style>`)
  .replace('<script type="module"></script>', () => `<script type="module">${script}</script>`)

/** One document that loads nothing from anywhere and runs only its own script, which takes the place of the table. */
function statusPage(document: StatusDocument): Answer {
  const table = allRows(document)
    .map(([label, text]) => `<tr><th>${escaped(label)}<td>${escaped(text)}`)
    .join('\n')
  return {
    status: 200,
    type: 'text/html; charset=utf-8',
    content: PAGE.replace('id="plain" class="card">', (open) => `${open}\n${table}\n`),
    fields: { 'content-security-policy': POLICY },
  }
}

/** Org ids and paths may look like markup. */
function escaped(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;')
}

export function adminRoutes(
  sources: AdminSources,
  history: History,
  warnings: Warnings,
  orgPattern: () => RegExp,
): ReadonlyMap<string, Route> {
  const { parts, metrics, version, purgeTokens } = sources

  async function exposition(): Promise<Answer> {
    const families = [...metrics.families(inspect(parts), version), warnings.family()]
    const [ours, runtime] = await Promise.all([renderFamilies(families), runtimeMetrics()])
    return { status: 200, type: 'text/plain; version=0.0.4; charset=utf-8', content: `${ours}\n${runtime}` }
  }

  function statusDocument(query: URLSearchParams): Answer {
    const asked = query.get('orgs') ?? ''
    const maxOrgs = /^\d{1,9}$/.test(asked) ? Number(asked) : Number.POSITIVE_INFINITY
    return json(statusOf(sources, history, warnings, maxOrgs, query.get('search') ?? ''))
  }

  const page = () => statusPage(statusOf(sources, history, warnings, MAX_ORGS, ''))

  /** `org=all` names every org. */
  function purge(query: URLSearchParams): Answer | AdminProblemCode {
    const [name, ...others] = query.getAll('org')
    if (name === undefined || others.length > 0) return 'org_id_missing'
    if (name === 'all') return json({ purged: purgeTokens() })
    const org = parseOrgId(name, orgPattern())
    return org === undefined ? 'org_id_invalid' : json({ purged: purgeTokens(org) })
  }

  /** The next mint shows whether the pauses that it ends were still needed. */
  function resume(): Answer {
    sources.resumeMints()
    return json({ resumed: true })
  }

  async function quit(begin: () => Promise<number>): Promise<Answer> {
    return json({ broken: await begin() })
  }

  const alive = () => ({ status: 200, type: TEXT, content: 'ok\n' })
  const readyz = (query: URLSearchParams) => readiness(inspect(parts).checks, query.has('verbose'))
  return new Map<string, Route>([
    ['/livez', { method: 'GET', isFor: 'probes', answer: alive }],
    ['/healthz', { method: 'GET', isFor: 'probes', answer: alive }],
    ['/readyz', { method: 'GET', isFor: 'probes', answer: readyz }],
    ['/metrics', { method: 'GET', isFor: 'probes', answer: exposition }],
    ['/status', { method: 'GET', isFor: 'operators', answer: statusDocument }],
    ['/', { method: 'GET', isFor: 'operators', answer: page }],
    ['/tokens/purge', { method: 'POST', isFor: 'operators', answer: purge }],
    ['/tokens/resume', { method: 'POST', isFor: 'operators', answer: resume }],
    ['/reload', { method: 'POST', isFor: 'operators', answer: async () => json(await sources.reload()) }],
    [
      '/quitquitquit',
      {
        method: 'POST',
        isFor: 'this machine',
        answer: () => (sources.quit === undefined ? 'quit_refused' : quit(sources.quit)),
      },
    ],
  ])
}

/** In the text form of Kubernetes' own `/readyz?verbose`. */
function readiness(checks: readonly ReadinessCheck[], isVerbose: boolean): Answer {
  const failing = checks.filter(({ isOk }) => !isOk).map(({ name }) => name)
  const lines = checks.map(({ name, isOk, detail }) => {
    const verdict = isOk ? `[+]${name} ok` : `[-]${name} failed`
    return detail === undefined ? `${verdict}\n` : `${verdict}: ${detail}\n`
  })
  const verdict = failing.length === 0 ? 'ok\n' : `not ready: ${failing.join(', ')}\n`
  const content = isVerbose ? lines.join('') + verdict : verdict
  return { status: failing.length === 0 ? 200 : 503, type: TEXT, content }
}

/** Numbers have three decimals at most, which keeps the document small. */
function json(value: object): Answer {
  const rounded = (_: string, each: unknown) => (typeof each === 'number' ? Math.round(each * 1000) / 1000 : each)
  return { status: 200, type: 'application/json', content: `${JSON.stringify(value, rounded)}\n` }
}

function hashOf(text: string): string {
  return `sha256-${createHash('sha256').update(text).digest('base64')}`
}
