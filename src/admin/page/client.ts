/** Script of the status page, last part: it asks for the status again and again, and says so when nobody answers. */

export const CLIENT_SCRIPT = `
const POLL_MS = 2000
const TIMEOUT_MS = 5000
const MAX_ORGS = 100
const COLOURS = { ready: '#2da44e', 'not-ready': '#d4840c', away: '#c93c37' }
const ICON = '<svg xmlns="http://www.w3.org/2000/svg"><circle cx="8" cy="8" r="7" fill="COLOUR"/></svg>'

let search = ''
let shownVersion
let seenAt
let poll = 0
let timer

async function look() {
  clearTimeout(timer)
  const own = ++poll
  try {
    if (!document.hidden) await show(own)
  } catch (error) {
    if (own === poll) showAway(error)
  }
  // A later look, such as one for a new search, has a timer of its own.
  if (own === poll) timer = setTimeout(look, POLL_MS)
}

async function show(own) {
  const query = new URLSearchParams({ orgs: MAX_ORGS, search })
  const response = await fetch('/status?' + query, { cache: 'no-store', signal: AbortSignal.timeout(TIMEOUT_MS) })
  if (!response.ok) throw new Error('it answers ' + response.status)
  const status = await response.json()
  if (own !== poll) return
  // Another version may come with another page.
  if (shownVersion !== undefined && shownVersion !== status.program.version) location.reload()
  shownVersion = status.program.version
  seenAt = performance.now()
  document.body.classList.remove('is-away')
  showState(status)
  showTiles(status)
  drawPlots(status.history)
  showOrgs(status, search)
  showErrors(status.errors)
}

function showState({ isReady, checks, program }) {
  setState(isReady ? 'ready' : 'not-ready', isReady ? 'Ready' : 'Not ready')
  setText(byId('program'), program.version + ' on Node ' + program.node + ', up ' + duration(program.uptimeMs))
  const failing = checks.filter((check) => !check.isOk)
  texts(byId('checks'), 'li', failing.map(checkText))
}

function checkText({ name, detail }) {
  return detail === undefined ? name : name + ': ' + detail
}

function showAway(error) {
  const since = seenAt === undefined ? '' : ' for ' + duration(performance.now() - seenAt)
  setState('away', 'No answer' + since)
  const why = error instanceof TypeError || error.name === 'TimeoutError' ? 'The proxy does not answer' : error.message
  setText(byId('program'), why + '; asking again every ' + duration(POLL_MS) + '.')
  document.body.classList.add('is-away')
}

function setState(state, text) {
  byId('state').dataset.state = state
  setText(byId('state'), text)
  document.title = state === 'ready' ? 'org-access-proxy' : text + ' · org-access-proxy'
  const icon = 'data:image/svg+xml,' + encodeURIComponent(ICON.replace('COLOUR', COLOURS[state]))
  if (byId('icon').href !== icon) byId('icon').href = icon
}

function showTiles({ totals, history }) {
  const { intervalMs, requestsPerSecond, errorsPerSecond, p50Ms, p99Ms } = history
  tile('tile-requests', rate(mean(requestsPerSecond.slice(-5))), [
    count(totals.requests) + ' since the start',
    count(totals.requestsInFlight) + ' at this moment',
  ])
  tile('tile-latency', latest(p50Ms), ['half of all below', '99 % below ' + latest(p99Ms)])
  const errors = sum(errorsPerSecond) * (intervalMs / 1000)
  const requests = sum(requestsPerSecond) * (intervalMs / 1000)
  const share = requests === 0 ? '0 %' : decimal((100 * errors) / requests) + ' %'
  tile('tile-errors', share, [
    'of the last 5 minutes',
    count(totals.refused) + ' by the proxy, ' + count(totals.serviceErrors) + ' by the service',
  ])
  byId('tile-errors').classList.toggle('is-troubled', errors > 0)
  tile('tile-tokens', count(totals.cachedTokens), [
    'assumed to live ' + duration(totals.lifetimeEstimateMs),
    count(totals.mints) + ' mints, ' + count(totals.failedMints) + ' failed',
  ])
  byId('tile-tokens').classList.toggle('is-troubled', sum(history.failedMintsPerSecond) > 0)
}

function tile(id, value, notes) {
  setText(part(byId(id), 'figure'), value)
  texts(part(byId(id), 'notes'), 'li', notes)
}

function latest(values) {
  const value = values.slice(-30).findLast((each) => each !== null)
  return value === undefined ? '–' : milliseconds(value)
}

function sum(values) {
  return values.reduce((total, value) => total + value, 0)
}

function mean(values) {
  return values.length === 0 ? 0 : sum(values) / values.length
}

byId('search').addEventListener('input', (event) => {
  search = event.target.value.trim()
  look()
})
document.addEventListener('visibilitychange', look)
setText(byId('purge'), "curl -X POST '" + location.origin + "/tokens/purge?org=ORG'")
look()
`
