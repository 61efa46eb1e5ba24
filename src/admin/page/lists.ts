/** The lists of warnings, errors and orgs. */

import type { StatusDocument } from '../status.ts'
import { byId, part, setItems, setLines, setText, setTexts } from './dom.ts'
import {
  ageText,
  ago,
  counted,
  type ErrorReport,
  exampleText,
  lastingText,
  number,
  type Org,
  refusalText,
} from './words.ts'

/** Failed checks first: they keep the proxy out of service. */
export function showWarnings({ checks, warnings }: StatusDocument): void {
  const failed = checks.filter(({ isOk }) => !isOk)
  const items = [
    ...failed.map(({ name, detail }) => ({ text: `Not ready: ${detail ?? name}`, time: '', colour: 'red' })),
    ...warnings.map((warning) => ({ text: warning.text, time: lastingText(warning), colour: 'amber' })),
  ]
  const update = (item: HTMLElement, { text, time, colour }: (typeof items)[number]) => {
    setTexts(item, { '.text': text, '.time': time })
    item.dataset.colour = colour
  }
  setItems(byId('warnings'), 'warning', items, ({ text }) => text, update)
}

export function showErrors(errors: readonly ErrorReport[]): void {
  setItems(byId('errors'), 'error', errors, ({ title }) => title, updateError)
  setText(byId('errors-note'), errors.length === 0 ? 'none since the start' : 'since the start, the latest first')
}

function updateError(item: HTMLElement, { code, kind, title, detail, examples, ...report }: ErrorReport): void {
  const [last] = examples
  const org = last?.orgId === undefined ? '' : `, for ${last.orgId}`
  setTexts(item, {
    '.badge': kind,
    strong: title,
    code: `${last?.status ?? ''} ${code}`,
    '.times': `${counted(report.count, 'time')}, the last ${ago(report.lastAgoMs)}${org}`,
    '.advice': detail,
  })
  part(item, '.badge').dataset.colour = kind
  setLines(part(item, '.examples'), examples.map(exampleText))
}

export function showOrgs({ orgs, orgCount, refusedOrgCount, totals }: StatusDocument): void {
  setItems(byId('orgs'), 'org', orgs, ({ org }) => org, updateOrg)
  const search = byId('search')
  const isSearching =
    part(search, 'input') === document.activeElement || (part(search, 'input') as HTMLInputElement).value !== ''
  search.hidden = !isSearching && orgCount <= orgs.length
  const none = isSearching ? 'No Org has this in its id.' : 'No Org has a token yet: none was named by a request.'
  const shown =
    orgCount > orgs.length ? `${number(orgs.length)} of ${counted(orgCount, 'Org')} shown` : counted(orgCount, 'Org')
  const refused = refusedOrgCount === 0 ? '' : `, ${counted(refusedOrgCount, 'Org')} refused`
  const tokenless = totals.cachedTokens === 0 ? ', none has a token' : ''
  setText(byId('orgs-note'), orgCount === 0 ? none : shown + refused + tokenless)
}

function updateOrg(item: HTMLElement, org: Org): void {
  setTexts(item, { '.org': org.org, '.badge': org.state, '.age': ageText(org), '.refusal': refusalText(org) })
  part(item, '.badge').dataset.colour = org.state
}
