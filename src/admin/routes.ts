/** What the admin listener answers, path by path. */

import { parseOrgId } from '../http/org-id.ts'
import type { TokenCache } from '../token/token-cache.ts'
import type { AdminProblemCode } from './admin-problem.ts'
import { EXPOSITION_TYPE, renderFamilies } from './exposition.ts'
import { reportHealth } from './health.ts'
import type { History } from './history.ts'
import { runtimeMetrics } from './runtime-metrics.ts'
import { type StatusQuery, type StatusSources, statusDocument } from './status.ts'
import { statusPage } from './status-page.ts'

export interface Answer {
  readonly status: number
  readonly type: string
  readonly content: string
  readonly contentSecurityPolicy?: string
}

export interface Route {
  /** GET stands for HEAD too. */
  readonly method: 'GET' | 'POST'
  /** True for what probes and scrapers ask for from other machines. */
  readonly isForProbes: boolean
  readonly answer: (query: URLSearchParams) => Answer | AdminProblemCode | Promise<Answer>
}

export interface AdminSources extends StatusSources {
  readonly tokens: Pick<TokenCache, 'status' | 'purge' | 'purgeAll'>
}

export interface RouteContext {
  readonly sources: AdminSources
  readonly history: History
  readonly orgPattern: RegExp
  readonly now: () => number
}

const TEXT = 'text/plain; charset=utf-8'
const JSON_TYPE = 'application/json'

export function adminRoutes(context: RouteContext): ReadonlyMap<string, Route> {
  const { sources, history, now } = context
  return new Map<string, Route>([
    ['/livez', probe(() => ({ status: 200, type: TEXT, content: 'ok\n' }))],
    ['/healthz', probe(() => ({ status: 200, type: TEXT, content: 'ok\n' }))],
    ['/readyz', probe((query) => readiness(sources, query))],
    ['/metrics', probe(() => exposition(sources))],
    ['/status', local('GET', (query) => json(statusDocument(sources, history, statusQuery(query), now())))],
    ['/', local('GET', () => ({ status: 200, type: 'text/html; charset=utf-8', ...statusPage }))],
    ['/tokens/purge', local('POST', (query) => purge(context, query))],
  ])
}

function probe(answer: Route['answer']): Route {
  return { method: 'GET', isForProbes: true, answer }
}

function local(method: Route['method'], answer: Route['answer']): Route {
  return { method, isForProbes: false, answer }
}

function readiness(sources: AdminSources, query: URLSearchParams): Answer {
  const { isOk, text } = reportHealth(sources.readiness(), query.has('verbose'))
  return { status: isOk ? 200 : 503, type: TEXT, content: text }
}

async function exposition({ metrics, gauges }: AdminSources): Promise<Answer> {
  const runtime = await runtimeMetrics()
  return { status: 200, type: EXPOSITION_TYPE, content: `${renderFamilies(metrics.families(gauges))}\n${runtime}` }
}

function statusQuery(query: URLSearchParams): StatusQuery {
  const asked = query.get('orgs')
  const isNumber = asked !== null && /^\d{1,9}$/.test(asked)
  return { maxOrgs: isNumber ? Number(asked) : Number.POSITIVE_INFINITY, search: query.get('search') ?? '' }
}

function purge({ sources, orgPattern }: RouteContext, query: URLSearchParams): Answer | AdminProblemCode {
  const [name, ...more] = query.getAll('org')
  if (name === undefined || more.length > 0) return 'org_id_missing'
  if (name === 'all') return json({ purged: sources.tokens.purgeAll() })
  const org = parseOrgId(name, orgPattern)
  if (org === undefined) return 'org_id_invalid'
  return json({ purged: sources.tokens.purge(org) ? 1 : 0 })
}

function json(value: object): Answer {
  return { status: 200, type: JSON_TYPE, content: `${JSON.stringify(value)}\n` }
}
