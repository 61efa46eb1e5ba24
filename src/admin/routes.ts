/** The paths of the admin listener and their answers. */

import { createHash } from 'node:crypto'
// Built from src/admin/page/: by rolldown.config.ts in the program, by vitest.config.ts in tests.
import { markup, script, style } from 'status-page-assets'
import { type OrgId, parseOrgId } from '../http/org-id.ts'
import type { AdminProblemCode } from './admin-problem.ts'
import { EXPOSITION_TYPE, renderFamilies, runtimeMetrics } from './counts.ts'
import type { History } from './history.ts'
import { type AdminSources, type ReadinessCheck, type StatusQuery, statusDocument } from './status.ts'

export interface Answer {
  readonly status: number
  readonly type: string
  readonly content: string
  readonly contentSecurityPolicy?: string
}

export interface Route {
  /** GET includes HEAD. */
  readonly method: 'GET' | 'POST'
  /** Probes and scrapers from other machines may use it. */
  readonly isForProbes: boolean
  readonly answer: (query: URLSearchParams) => Answer | AdminProblemCode | Promise<Answer>
}

interface RouteContext {
  readonly sources: AdminSources
  readonly history: History
  readonly orgPattern: () => RegExp
  readonly now: () => number
}

/** The status page: one document that loads nothing from anywhere and runs only its own script. */
const statusPage: Pick<Answer, 'content' | 'contentSecurityPolicy'> = {
  // A function as replacement: `$&` in the script is no pattern.
  content: markup
    .replace('<style></style>', () => `<style>${style}</style>`)
    .replace('<script type="module"></script>', () => `<script type="module">${script}</script>`),
  contentSecurityPolicy: [
    "default-src 'none'",
    // The browser runs what has these hashes, and nothing that is injected.
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
  ].join('; '),
}

const TEXT = 'text/plain; charset=utf-8'
const JSON_TYPE = 'application/json'

export function adminRoutes(context: RouteContext): ReadonlyMap<string, Route> {
  const { sources, history, now } = context
  return new Map<string, Route>([
    ['/livez', probe(() => ({ status: 200, type: TEXT, content: 'ok\n' }))],
    ['/healthz', probe(() => ({ status: 200, type: TEXT, content: 'ok\n' }))],
    ['/readyz', probe((query) => readiness(sources.readiness(), query.has('verbose')))],
    ['/metrics', probe(() => exposition(sources))],
    ['/status', local('GET', (query) => json(statusDocument(sources, history, statusQuery(query), now())))],
    ['/', local('GET', () => ({ status: 200, type: 'text/html; charset=utf-8', ...statusPage }))],
    ['/tokens/purge', local('POST', (query) => purge(context, query))],
    ['/tokens/resume', local('POST', () => resume(sources))],
  ])
}

function probe(answer: Route['answer']): Route {
  return { method: 'GET', isForProbes: true, answer }
}

function local(method: Route['method'], answer: Route['answer']): Route {
  return { method, isForProbes: false, answer }
}

/** In the text form of Kubernetes' own `/readyz?verbose`. */
function readiness(checks: readonly ReadinessCheck[], isVerbose: boolean): Answer {
  const failing = checks.filter(({ isOk }) => !isOk)
  const verdict = failing.length === 0 ? 'ok' : `not ready: ${failing.map(({ name }) => name).join(', ')}`
  const lines = isVerbose ? [...checks.map(readinessLine), verdict] : [verdict]
  return { status: failing.length === 0 ? 200 : 503, type: TEXT, content: `${lines.join('\n')}\n` }
}

function readinessLine({ name, isOk, detail }: ReadinessCheck): string {
  const verdict = `${isOk ? '[+]' : '[-]'}${name} ${isOk ? 'ok' : 'failed'}`
  return detail === undefined ? verdict : `${verdict}: ${detail}`
}

async function exposition({ metrics, gauges, warnings }: AdminSources): Promise<Answer> {
  const families = [...metrics.families(gauges), warnings.family()]
  const [ours, runtime] = await Promise.all([renderFamilies(families), runtimeMetrics()])
  return { status: 200, type: EXPOSITION_TYPE, content: `${ours}\n${runtime}` }
}

function statusQuery(query: URLSearchParams): StatusQuery {
  const asked = query.get('orgs')
  const isNumber = asked !== null && /^\d{1,9}$/.test(asked)
  return { maxOrgs: isNumber ? Number(asked) : Number.POSITIVE_INFINITY, search: query.get('search') ?? '' }
}

/** `org=ORG` names one org and `org=all` every org; `orgId=ORG` always names one, even an org whose id is `all`. */
function purge({ sources, orgPattern }: RouteContext, query: URLSearchParams): Answer | AdminProblemCode {
  const names = [...query.getAll('org'), ...query.getAll('orgId')]
  const [name] = names
  if (name === undefined || names.length > 1) return 'org_id_missing'
  if (query.get('org') === 'all') return json({ purged: sources.tokens.purgeAll() })
  const org: OrgId | undefined = parseOrgId(name, orgPattern())
  if (org === undefined) return 'org_id_invalid'
  return json({ purged: sources.tokens.purge(org) ? 1 : 0 })
}

/** Answers with the pauses that it has ended; the next mint shows whether they were still needed. */
function resume({ warnings, resumeMints }: AdminSources): Answer {
  const paused = warnings.present().filter(({ code }) => code === 'mints_paused' || code === 'orgs_paused')
  resumeMints()
  return json({ resumed: paused.map(({ text }) => text) })
}

function json(value: object): Answer {
  return { status: 200, type: JSON_TYPE, content: `${JSON.stringify(value)}\n` }
}

function hashOf(text: string): string {
  return `sha256-${createHash('sha256').update(text).digest('base64')}`
}
