/** The lists of errors and of orgs. */

import type { OrgStatus } from '../../token/token-cache.ts'
import type { ErrorExample, ErrorReport } from '../recent-errors.ts'
import type { StatusDocument } from '../status.ts'
import { ago, byId, count, counted, duration, element, part, setItems, setLines, setText } from './dom.ts'

export function showErrors(errors: readonly ErrorReport[]): void {
  setItems(byId('errors'), errors, ({ code }) => code, errorItem, updateErrorItem)
  setText(byId('errors-note'), errors.length === 0 ? 'None since the start.' : '')
  setText(byId('errors-count'), errors.length === 0 ? '' : 'since the start, the latest first')
}

function errorItem(): HTMLElement {
  const item = element('li', 'error')
  const head = element('p', 'error-head')
  head.append(
    element('span', 'badge status'),
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
  const { code, title, detail, count: times, lastAgoMs, examples } = report
  setText(part(item, 'status'), String(examples[0]?.status ?? ''))
  setText(part(item, 'title'), title)
  setText(part(item, 'code'), code)
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

function exampleText({ method, path, orgId, requestId, agoMs }: ErrorExample): string {
  const org = orgId === undefined ? '' : ` for ${orgId}`
  return `${method} ${path}${org}, ${ago(agoMs)}, request ${requestId}`
}

/** `search`: the text that the listed orgs match. */
export function showOrgs({ orgs, orgCount, totals }: StatusDocument, search: string): void {
  setItems(byId('orgs'), orgs, ({ org }) => org, orgRow, updateOrgRow)
  byId('orgs-table').hidden = orgs.length === 0
  byId('search').hidden = search === '' && orgCount <= 10
  const none = search === '' ? 'No request has named an Org yet.' : 'No Org matches.'
  setText(byId('orgs-note'), orgs.length === 0 ? none : '')
  const all = `${counted(orgCount, 'Org')}, ${counted(totals.cachedTokens, 'token')}`
  setText(byId('orgs-count'), orgCount > orgs.length ? `${count(orgs.length)} of ${count(orgCount)} shown` : all)
}

function orgRow(): HTMLElement {
  const row = element('tr', '')
  const org = element('th', 'org')
  org.setAttribute('scope', 'row')
  const token = element('td', 'token')
  token.append(element('span', 'badge'))
  const age = element('td', 'age')
  age.append(element('span', 'age-text'), element('progress', 'bar'))
  row.append(org, token, age, element('td', 'refusal'))
  return row
}

function updateOrgRow(row: HTMLElement, { org, state, ageMs, lifetimeMs, lastRefusal }: OrgStatus): void {
  setText(part(row, 'org'), org)
  part(row, 'org').title = org
  setText(part(row, 'badge'), state)
  part(row, 'badge').dataset.state = state
  const isHeld = ageMs !== undefined && lifetimeMs !== undefined
  setText(part(row, 'age-text'), isHeld ? `${duration(ageMs)} of ${duration(lifetimeMs)}` : '')
  const bar = part(row, 'bar')
  bar.hidden = !isHeld
  if (isHeld && bar instanceof HTMLProgressElement) bar.value = Math.min(1, ageMs / lifetimeMs)
  setText(part(row, 'refusal'), lastRefusal === undefined ? '' : refusalText(lastRefusal))
}

function refusalText({ tokenEndpointStatus, agoMs }: NonNullable<OrgStatus['lastRefusal']>): string {
  return (tokenEndpointStatus === undefined ? '' : `${tokenEndpointStatus}, `) + ago(agoMs)
}
