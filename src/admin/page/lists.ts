/** The lists of warnings, errors and orgs. */

import type { StatusDocument } from '../status.ts'
import { ago, byId, counted, duration, number, part, setItems, setLines, setText, setTexts, utc } from './dom.ts'

type Warning = StatusDocument['warnings'][number]
type ErrorReport = StatusDocument['errors'][number]
type Org = StatusDocument['orgs'][number]

/** Failed checks first: they keep the proxy out of service. */
export function showWarnings({ checks, warnings }: StatusDocument): void {
  const failed = checks.filter(({ isOk }) => !isOk)
  const items = [
    ...failed.map(({ name, detail }) => ({ text: `Not ready: ${detail ?? name}`, time: '', colour: 'red' })),
    ...warnings.map((warning) => ({ text: warning.text, time: timeText(warning), colour: 'amber' })),
  ]
  const update = (item: HTMLElement, { text, time, colour }: (typeof items)[number]) => {
    setTexts(item, { '.text': text, '.time': time })
    item.dataset.colour = colour
  }
  setItems(byId('warnings'), 'warning', items, ({ text }) => text, update)
}

function timeText({ since, until }: Warning): string {
  const lasted = `since ${utc(since)} (${duration(Date.now() - Date.parse(since))})`
  if (until === undefined) return lasted
  return `${lasted}, until ${utc(until)} (${duration(Date.parse(until) - Date.now())} left)`
}

export function showErrors(errors: readonly ErrorReport[]): void {
  setItems(byId('errors'), 'error', errors, ({ code }) => code, updateError)
  setText(byId('errors-note'), errors.length === 0 ? 'none since the start' : 'since the start, the latest first')
}

function updateError(item: HTMLElement, { code, kind, title, detail, examples, ...report }: ErrorReport): void {
  const orgs = report.orgs.map(({ org, count }) => `${org} (${number(count)})`).join(', ')
  const hidden = report.orgCount - report.orgs.length
  setTexts(item, {
    '.badge': kind,
    strong: title,
    code: `${examples[0]?.status ?? ''} ${code}`,
    '.times': `${counted(report.count, 'time')}, ${ago(report.lastAgoMs)}`,
    '.concerned': orgs === '' ? '' : `Orgs: ${orgs}${hidden > 0 ? ` and ${number(hidden)} more` : ''}`,
    '.advice': detail,
  })
  part(item, '.badge').dataset.colour = kind
  setLines(part(item, '.examples'), examples.map(exampleText))
}

function exampleText({ method, path, orgId, requestId, reason, agoMs }: ErrorReport['examples'][number]): string {
  const org = orgId === undefined ? '' : ` for ${orgId}`
  return `${reason === undefined ? '' : `${reason}: `}${method} ${path}${org}, ${ago(agoMs)}, request ${requestId}`
}

/** `search`: the text that the listed orgs match. */
export function showOrgs({ orgs, orgCount, totals }: StatusDocument, search: string): void {
  setItems(byId('orgs'), 'org', orgs, ({ org }) => org, updateOrg)
  byId('search').hidden = search === '' && orgCount <= 10
  const none = search === '' ? 'No Org has a token yet: none was named by a request.' : 'No Org matches.'
  const all = `${counted(orgCount, 'Org')}, ${totals.cachedTokens === 0 ? 'none has a token' : counted(totals.cachedTokens, 'token')}`
  const some = `${number(orgs.length)} of ${number(orgCount)} shown`
  setText(byId('orgs-note'), orgCount === 0 ? none : orgCount > orgs.length ? some : all)
}

function updateOrg(item: HTMLElement, { org, state, ageMs, lifetimeMs, lastRefusal }: Org): void {
  const lifetime = lifetimeMs === undefined ? '' : ` of about ${duration(lifetimeMs)}`
  const age = ageMs === undefined ? '' : duration(ageMs) + lifetime
  setTexts(item, { '.org': org, '.badge': state, '.age': age, '.refusal': refusalText(lastRefusal) })
  part(item, '.badge').dataset.colour = state
}

function refusalText(refusal: Org['lastRefusal']): string {
  if (refusal === undefined) return ''
  const { tokenEndpointStatus: status, agoMs } = refusal
  return ` refused ${status === undefined ? '' : `with ${status} `}${ago(agoMs)}`
}
