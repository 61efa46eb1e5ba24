/** The status page: polls `/status`, shows it, and says so when the proxy does not answer. */

import type { StatusDocument } from '../status.ts'
import { byId, count, counted, decimal, duration, milliseconds, part, rate, setLines, setText } from './dom.ts'
import { showErrors, showOrgs, showWarnings } from './lists.ts'
import { drawPlots } from './plots.ts'

const POLL_MS = 2000
const TIMEOUT_MS = 5000
const MAX_ORGS = 100
const COLOURS = { ready: '#2da44e', 'not-ready': '#d4840c', away: '#c93c37' }
const ICON = '<svg xmlns="http://www.w3.org/2000/svg"><circle cx="8" cy="8" r="7" fill="COLOUR"/></svg>'

let search = ''
let shownVersion: string | undefined
let seenAt: number | undefined
/** Number of the latest poll. A new search starts one at once; answers to older polls are dropped. */
let latestPoll = 0
let timer: number | undefined

async function poll(): Promise<void> {
  window.clearTimeout(timer)
  latestPoll++
  const own = latestPoll
  try {
    if (!document.hidden) await update(own)
  } catch (error) {
    if (own === latestPoll) showAway(error)
  }
  if (own === latestPoll) timer = window.setTimeout(poll, POLL_MS)
}

async function update(own: number): Promise<void> {
  const query = new URLSearchParams({ orgs: String(MAX_ORGS), search })
  const response = await fetch(`/status?${query}`, { cache: 'no-store', signal: AbortSignal.timeout(TIMEOUT_MS) })
  if (!response.ok) throw new Error(`The proxy answers ${response.status}`)
  const status: StatusDocument = await response.json()
  if (own !== latestPoll) return
  // Another version may have another page.
  if (shownVersion !== undefined && shownVersion !== status.program.version) location.reload()
  shownVersion = status.program.version
  seenAt = performance.now()
  document.body.classList.remove('is-away')
  showState(status)
  showTiles(status)
  drawPlots(status.history)
  showErrors(status.errors)
  showOrgs(status, search)
}

function showState(status: StatusDocument): void {
  const { isReady, program, service, configuration } = status
  setState(isReady ? 'ready' : 'not-ready', isReady ? 'Ready' : 'Not ready')
  const { version, node, host, pid, uptimeMs } = program
  setText(byId('program'), `${version} on Node ${node}, host ${host}, process ${pid}, up ${duration(uptimeMs)}`)
  byId('service').hidden = false
  setText(byId('app-id'), service.appId)
  setText(byId('base-url'), service.baseUrl)
  const appliedAt = configuration.takenOverAt.slice(0, 19).replace('T', ' ')
  setText(byId('configuration'), `Configuration applied ${appliedAt} UTC`)
  setText(byId('callers'), callersText(status.callers))
  showWarnings(status)
}

/** Empty if no callers are configured. */
function callersText(callers: StatusDocument['callers']): string {
  if (callers.length === 0) return ''
  const texts = callers.map(
    ({ name, requests, requestsInFlight }) =>
      `${name} ${counted(requests, 'request')}, ${count(requestsInFlight)} in flight`,
  )
  return `Callers: ${texts.join('; ')}`
}

function showAway(error: unknown): void {
  const since = seenAt === undefined ? '' : ` for ${duration(performance.now() - seenAt)}`
  setState('away', `No answer${since}`)
  const isAnswered = error instanceof Error && !(error instanceof TypeError) && error.name !== 'TimeoutError'
  const reason = isAnswered ? error.message : 'The proxy does not answer'
  setText(byId('program'), `${reason}; trying again every ${duration(POLL_MS)}.`)
  document.body.classList.add('is-away')
}

function setState(state: keyof typeof COLOURS, text: string): void {
  byId('state').dataset.state = state
  setText(byId('state'), text)
  document.title = state === 'ready' ? 'org-access-proxy' : `${text} · org-access-proxy`
  const icon = `data:image/svg+xml,${encodeURIComponent(ICON.replace('COLOUR', COLOURS[state]))}`
  if (byId('icon').getAttribute('href') !== icon) byId('icon').setAttribute('href', icon)
}

/** A line of a tile; the cause of its colour if it is one. */
type Note = string | { readonly cause: string }

/** The rate is the latest value of the plot; the other figures count the last five minutes. */
function showTiles({ totals, recent, history, fleet }: StatusDocument): void {
  const span = `in the last ${duration(Math.max(1000, recent.spanMs))}`
  const { errors, mints, refusedMints, failedMints } = recent
  showTile('tile-requests', rate(history.requestsPerSecond.at(-1) ?? 0), [
    `${count(recent.requests)} ${span}`,
    `${count(totals.requests)} since the start, ${count(totals.requestsInFlight)} in flight`,
    ...causes(totals.requestsWaitingForToken, 'waiting for a token'),
    ...causes(totals.requestsWaiting, 'waiting for a connection to the service'),
  ])
  showTile('tile-latency', recent.p50Ms === undefined ? '–' : milliseconds(recent.p50Ms), [
    `p99 ${recent.p99Ms === undefined ? '–' : milliseconds(recent.p99Ms)}`,
    span,
  ])
  const failed = errors.proxy + errors.service
  showTile('tile-errors', `${decimal(recent.requests === 0 ? 0 : (100 * failed) / recent.requests)} %`, [
    `of ${counted(recent.requests, 'request')} ${span}`,
    ...causes(errors.proxy, 'from the proxy: its limits, its App, its faults'),
    ...causes(errors.service, 'from the service: unreachable, 5xx or 401'),
    ...(errors.app === 0 ? [] : [`besides, ${count(errors.app)} refused: errors of the apps`]),
  ])
  showTile('tile-tokens', count(totals.cachedTokens), [
    ...(totals.cachedTokens === 0 ? ['no Org has a token'] : []),
    `${counted(mints, 'mint')} ${span}`,
    ...causes(failedMints, 'failed'),
    ...causes(refusedMints, 'refused for their Orgs'),
    ...(fleet === undefined ? [] : [`store of the fleet: ${fleet.state}`]),
  ])
}

function causes(times: number, what: string): Note[] {
  return times === 0 ? [] : [{ cause: `${count(times)} ${what}` }]
}

function showTile(id: string, value: string, notes: readonly Note[]): void {
  const tile = byId(id)
  setText(part(tile, 'figure'), value)
  setLines(
    part(tile, 'notes'),
    'li',
    notes.map((note) => (typeof note === 'string' ? note : note.cause)),
  )
  for (const [i, line] of [...part(tile, 'notes').children].entries()) {
    line.classList.toggle('is-cause', typeof notes[i] === 'object')
  }
  tile.classList.toggle(
    'is-troubled',
    notes.some((note) => typeof note === 'object'),
  )
}

byId('search').addEventListener('input', ({ target }) => {
  if (target instanceof HTMLInputElement) search = target.value.trim()
  void poll()
})
document.addEventListener('visibilitychange', () => void poll())
setText(byId('purge'), `curl -X POST '${location.origin}/tokens/purge?org=ORG'`)
void poll()
