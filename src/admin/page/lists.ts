/** Script of the status page, third part: the Orgs and the last errors. */

export const LISTS_SCRIPT = `
/** Keeps one child a key, in the order of the items: what is open stays open, what is selected stays selected. */
function keyed(parent, items, keyOf, create, update) {
  const before = new Map([...parent.children].map((child) => [child.dataset.key, child]))
  items.forEach((item, i) => {
    const key = keyOf(item)
    const child = before.get(key) ?? create(item)
    child.dataset.key = key
    before.delete(key)
    update(child, item)
    if (parent.children[i] !== child) parent.insertBefore(child, parent.children[i] ?? null)
  })
  for (const child of before.values()) child.remove()
}

/** One child a text, by position: for what holds nothing but text. */
function texts(parent, name, lines) {
  while (parent.children.length > lines.length) parent.lastChild.remove()
  while (parent.children.length < lines.length) parent.append(document.createElement(name))
  for (const [i, line] of lines.entries()) setText(parent.children[i], line)
}

function part(parent, name) {
  return parent.querySelector('.' + name)
}

function showOrgs({ orgs, orgCount, totals }, search) {
  keyed(byId('orgs'), orgs, ({ org }) => org, orgRow, updateOrgRow)
  byId('orgs-table').hidden = orgs.length === 0
  byId('search').hidden = search === '' && orgCount <= 10
  const none = search === '' ? 'No token is held: none was asked for yet.' : 'No Org matches.'
  setText(byId('orgs-note'), orgs.length === 0 ? none : '')
  const left = orgCount > orgs.length ? count(orgs.length) + ' of ' + count(orgCount) + ' shown' : ''
  setText(byId('orgs-count'), left || count(totals.cachedTokens) + (totals.cachedTokens === 1 ? ' token' : ' tokens'))
}

function orgRow() {
  const row = element('tr', '')
  const org = element('th', 'org')
  org.scope = 'row'
  const token = element('td', 'token')
  token.append(element('span', 'badge'))
  const age = element('td', 'age')
  const bar = element('progress', 'bar')
  age.append(element('span', 'age-text'), bar)
  row.append(org, token, age, element('td', 'refusal'))
  return row
}

function updateOrgRow(row, { org, state, ageMs, lifetimeMs, lastRefusal }) {
  setText(part(row, 'org'), org)
  part(row, 'org').title = org
  setText(part(row, 'badge'), state)
  part(row, 'badge').dataset.state = state
  const isHeld = ageMs !== undefined && lifetimeMs !== undefined
  setText(part(row, 'age-text'), isHeld ? duration(ageMs) + ' of ' + duration(lifetimeMs) : '')
  part(row, 'bar').hidden = !isHeld
  if (isHeld) part(row, 'bar').value = Math.min(1, ageMs / lifetimeMs)
  setText(part(row, 'refusal'), lastRefusal === undefined ? '' : refusalText(lastRefusal))
}

function refusalText({ tokenEndpointStatus, agoMs }) {
  return (tokenEndpointStatus === undefined ? '' : tokenEndpointStatus + ', ') + ago(agoMs)
}

function showErrors(errors) {
  keyed(byId('errors'), errors, (error) => error.code, errorItem, updateErrorItem)
  setText(byId('errors-note'), errors.length === 0 ? 'None since the start.' : '')
}

function errorItem() {
  const item = element('li', 'error')
  const head = element('p', 'error-head')
  head.append(element('span', 'badge status'), element('strong', 'title'), element('span', 'quiet times'))
  const details = element('details', 'examples')
  details.append(element('summary', 'quiet code'), element('ul', 'list'))
  item.append(head, element('p', 'todo'), details)
  return item
}

function updateErrorItem(item, { code, title, detail, count: times, lastAgoMs, examples }) {
  setText(part(item, 'status'), String(examples[0].status))
  setText(part(item, 'title'), title)
  setText(part(item, 'times'), (times === 1 ? 'once' : count(times) + ' times') + ', ' + ago(lastAgoMs))
  setText(part(item, 'todo'), detail)
  setText(part(item, 'code'), code)
  texts(part(item, 'list'), 'li', examples.map(exampleText))
}

function exampleText({ method, path, orgId, requestId, agoMs }) {
  const org = orgId === undefined ? '' : ' for ' + orgId
  return method + ' ' + path + org + ', ' + ago(agoMs) + ', request ' + requestId
}
`
