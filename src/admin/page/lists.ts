/** The lists of warnings, errors and orgs. */

import type { OrgStatus } from '../../token/token-cache.ts'
import type { ErrorReport } from '../recent-errors.ts'
import type { StatusDocument } from '../status.ts'
import type { Warning } from '../warnings.ts'
import { ago, byId, count, counted, duration, element, part, setItems, setLines, setText } from './dom.ts'

/** Failed checks first: they keep the proxy out of service. */
export function showWarnings({ checks, warnings }: StatusDocument): void {
  const failed = checks.filter(({ isOk }) => !isOk)
  const items = [
    ...failed.map(({ name, detail }) => ({
      key: name,
      text: `Not ready: ${detail ?? name}`,
      time: '',
      level: 'failed',
    })),
    ...warnings.map((warning) => ({ key: warning.code, text: warning.text, time: timeText(warning), level: 'warned' })),
  ]
  const create = () => {
    const item = element('li', 'warning')
    item.append(element('span', 'text'), element('span', 'quiet time'))
    return item
  }
  setItems(
    byId('warnings'),
    items,
    ({ key }) => key,
    create,
    (item, { text, time, level }) => {
      item.dataset.level = level
      setText(part(item, 'text'), text)
      setText(part(item, 'time'), time)
    },
  )
}

/** In UTC, as the log. */
function timeText({ since, until }: Warning): string {
  const lasted = `since ${clock(since)} UTC (${duration(Date.now() - Date.parse(since))})`
  if (until === undefined) return lasted
  return `${lasted}, until ${clock(until)} UTC (${duration(Math.max(0, Date.parse(until) - Date.now()))} left)`
}

function clock(instant: string): string {
  const isToday = new Date().toISOString().slice(0, 10) === instant.slice(0, 10)
  return (isToday ? '' : `${instant.slice(0, 10)} `) + instant.slice(11, 19)
}

export function showErrors(errors: readonly ErrorReport[]): void {
  setItems(byId('errors'), errors, ({ code }) => code, errorItem, updateErrorItem)
  setText(byId('errors-note'), errors.length === 0 ? 'none since the start' : 'since the start, the latest first')
}

function errorItem(): HTMLElement {
  const item = element('li', 'error')
  const head = element('p', 'error-head')
  head.append(
    element('span', 'badge kind'),
    element('strong', 'title'),
    element('span', 'code'),
    element('span', 'quiet times'),
  )
  const examples = element('details', 'examples')
  examples.append(element('summary', 'quiet', 'Last requests'), element('ul', 'list'))
  item.append(head, element('p', 'concerned'), element('p', 'quiet advice'), examples)
  return item
}

function updateErrorItem(item: HTMLElement, report: ErrorReport): void {
  const { code, kind, title, detail, count: times, lastAgoMs, examples } = report
  setText(part(item, 'kind'), kind)
  part(item, 'kind').dataset.kind = kind
  setText(part(item, 'title'), title)
  setText(part(item, 'code'), `${examples[0]?.status ?? ''} ${code}`)
  setText(part(item, 'times'), `${counted(times, 'time')}, ${ago(lastAgoMs)}`)
  setText(part(item, 'concerned'), concernedText(report))
  setText(part(item, 'advice'), detail)
  setLines(part(item, 'list'), 'li', examples.map(exampleText))
}

function concernedText({ orgs, orgCount }: ErrorReport): string {
  if (orgs.length === 0) return ''
  const more = orgCount > orgs.length ? ` and ${count(orgCount - orgs.length)} more` : ''
  const listed = orgs.map(({ org, count: times }) => `${org} (${count(times)})`).join(', ')
  return `${orgCount === 1 ? 'Org' : 'Orgs'} ${listed}${more}`
}

function exampleText({ method, path, orgId, requestId, reason, agoMs }: ErrorReport['examples'][number]): string {
  const org = orgId === undefined ? '' : ` for ${orgId}`
  return `${reason === undefined ? '' : `${reason}: `}${method} ${path}${org}, ${ago(agoMs)}, request ${requestId}`
}

/** On a phone, only orgs in trouble and the first few others are shown, until somebody asks for all. */
const FOLDED = 5

/** `search`: the text that the listed orgs match. */
export function showOrgs({ orgs, orgCount, totals }: StatusDocument, search: string): void {
  setItems(byId('orgs'), orgs, ({ org }) => org, orgRow, updateOrgRow)
  for (const [i, row] of [...byId('orgs').children].entries()) row.classList.toggle('is-extra', i >= FOLDED)
  const table = byId('orgs-table')
  table.hidden = orgs.length === 0
  byId('unfold').hidden = orgs.length <= FOLDED || !table.classList.contains('is-folded')
  byId('search').hidden = search === '' && orgCount <= 10
  const none = search === '' ? 'No Org has a token yet: none was named by a request.' : 'No Org matches.'
  setText(byId('orgs-note'), orgs.length === 0 ? none : '')
  const all = `${counted(orgCount, 'Org')}, ${totals.cachedTokens === 0 ? 'none has a token' : counted(totals.cachedTokens, 'token')}`
  setText(byId('orgs-count'), orgCount > orgs.length ? `${count(orgs.length)} of ${count(orgCount)} shown` : all)
}

function orgRow(): HTMLElement {
  const row = element('tr', '')
  const org = element('th', 'org')
  org.setAttribute('scope', 'row')
  const token = element('td', 'token')
  token.append(element('span', 'badge'), element('span', 'refusal quiet'))
  const age = element('td', 'age')
  age.append(element('span', 'age-text'), element('progress', 'bar'))
  row.append(org, token, age)
  return row
}

function updateOrgRow(row: HTMLElement, { org, state, ageMs, lifetimeMs, lastRefusal }: OrgStatus): void {
  setText(part(row, 'org'), org)
  part(row, 'org').title = org
  row.dataset.state = state
  setText(part(row, 'badge'), state)
  setText(part(row, 'refusal'), lastRefusal === undefined ? '' : refusalText(lastRefusal))
  const life = lifetimeMs === undefined ? '' : ` of about ${duration(lifetimeMs)}`
  setText(part(row, 'age-text'), ageMs === undefined ? '' : duration(ageMs) + life)
  const bar = part(row, 'bar')
  bar.hidden = ageMs === undefined || lifetimeMs === undefined
  if (!bar.hidden && bar instanceof HTMLProgressElement) bar.value = Math.min(1, (ageMs ?? 0) / (lifetimeMs ?? 1))
}

function refusalText({ tokenEndpointStatus, agoMs }: NonNullable<OrgStatus['lastRefusal']>): string {
  return ` refused ${tokenEndpointStatus === undefined ? '' : `with ${tokenEndpointStatus} `}${ago(agoMs)}`
}

byId('unfold').addEventListener('click', () => {
  byId('orgs-table').classList.remove('is-folded')
  byId('unfold').hidden = true
})
