/** The status page: polls `/status`, shows it, and says so when the proxy does not answer. */

import type { StatusDocument } from '../status.ts'
import { byId, part, setLines, setText, setTexts } from './dom.ts'
import { showErrors, showOrgs, showWarnings } from './lists.ts'
import { drawPlots } from './plots.ts'
import {
  answersText,
  counted,
  duration,
  milliseconds,
  number,
  rate,
  serviceText,
  stateText,
  utc,
  whoRows,
} from './words.ts'

const POLL_MS = 2000
const TIMEOUT_MS = 5000
const MAX_ORGS = 30

const search = part(document, '#search input') as HTMLInputElement
let shownVersion: string | undefined
let seenAt: number | undefined

async function poll(): Promise<void> {
  try {
    if (!document.hidden) await update()
  } catch (error) {
    showAway(error)
  }
  window.setTimeout(poll, POLL_MS)
}

async function update(): Promise<void> {
  const response = await fetch(`/status?orgs=${MAX_ORGS}&search=${encodeURIComponent(search.value.trim())}`, {
    cache: 'no-store',
    signal: AbortSignal.timeout(TIMEOUT_MS),
  })
  if (!response.ok) throw new Error(`The proxy answers ${response.status}`)
  const status: StatusDocument = await response.json()
  // Another version may have another page.
  if (shownVersion !== undefined && shownVersion !== status.program.version) location.reload()
  shownVersion = status.program.version
  seenAt = performance.now()
  showHead(status)
  showWarnings(status)
  showTiles(status)
  drawPlots(status.history)
  setLines(
    byId('who'),
    whoRows(status).map(([label, text]) => `${label}: ${text}`),
  )
  showErrors(status.errors)
  showOrgs(status)
  // What the server wrote is for browsers without JavaScript.
  document.querySelector('#plain')?.remove()
  part(document, 'main').hidden = false
}

function showHead(status: StatusDocument): void {
  const { isReady, warnings, program, service, configuration, callers } = status
  setState(stateText(status), !isReady ? 'red' : warnings.length > 0 ? 'amber' : 'green')
  const { version, node, host, pid, uptimeMs } = program
  const named = callers.map((caller) => {
    return `${caller.name} ${counted(caller.requests, 'request')}, ${number(caller.requestsInFlight)} in flight`
  })
  setTexts(document, {
    '#program': `${version} on Node ${node}, host ${host}, process ${pid}, up ${duration(uptimeMs)}`,
    '#service': serviceText(service),
    '#configuration': `Configuration applied ${utc(configuration.takenOverAt)}`,
    '#callers': named.length === 0 ? '' : `Callers: ${named.join('; ')}`,
  })
}

function showAway(error: unknown): void {
  setState(`No answer${seenAt === undefined ? '' : ` for ${duration(performance.now() - seenAt)}`}`, 'red')
  const isAnswered = error instanceof Error && !(error instanceof TypeError) && error.name !== 'TimeoutError'
  const reason = isAnswered ? error.message : 'The proxy does not answer'
  setText(byId('program'), `${reason}; trying again every ${duration(POLL_MS)}.`)
}

function setState(text: string, colour: string): void {
  setText(byId('state'), text)
  byId('state').dataset.colour = colour
  document.title = text === 'Ready' ? 'org-access-proxy' : `${text} · org-access-proxy`
}

/** The rate is the latest value of the plot; the other figures count the last five minutes. */
function showTiles({ totals, recent, history, fleet }: StatusDocument): void {
  const span = `in the last ${duration(Math.min(Math.max(1_000, recent.spanMs), 300_000))}`
  const { errors, requests, answers, mints, refusedMints, failedMints, p50Ms, p99Ms } = recent
  const inMs = (ms: number | undefined) => (ms === undefined ? '–' : milliseconds(ms))
  const share = requests === 0 ? 0 : (100 * (errors.proxy + errors.service)) / requests
  const running = `${number(totals.requests)} since the start, ${number(totals.requestsInFlight)} in flight`
  const ofService = `answers of the service: ${answersText(answers)}`
  showTile(
    'Requests',
    rate(history.requestsPerSecond.at(-1) ?? 0),
    [`${number(requests)} ${span}`, ofService, running],
    {
      'waiting for a token': totals.requestsWaitingForToken,
      'waiting for a connection to the service': totals.requestsWaiting,
    },
  )
  showTile('Latency p50', inMs(p50Ms), [`p99 ${inMs(p99Ms)}`, span])
  const ofApps = errors.app === 0 ? [] : [`besides, ${number(errors.app)} of the apps’ own`]
  showTile('Errors', `${number(share)} %`, [`of ${counted(requests, 'request')} ${span}`, ...ofApps], {
    'from the proxy': errors.proxy,
    'from the service': errors.service,
  })
  const none = totals.cachedTokens === 0 ? ['no Org has a token'] : []
  const store = fleet === undefined ? [] : [`store of the fleet: ${fleet.state}`]
  showTile('Tokens', number(totals.cachedTokens), [...none, `${counted(mints, 'mint')} ${span}`, ...store], {
    'of them failed': failedMints,
    'of them refused': refusedMints,
  })
}

/** A number with lines below it. `causes` are orange, and so is the number if there is one. */
function showTile(title: string, figure: string, notes: string[], causes: Record<string, number> = {}): void {
  const present = Object.entries(causes).filter(([, times]) => times > 0)
  const tile = byId(`tile-${title.split(' ', 1)[0]?.toLowerCase()}`)
  setTexts(tile, { h2: title, '.figure': figure })
  setLines(part(tile, '.notes'), notes)
  setLines(
    part(tile, '.causes'),
    present.map(([cause, times]) => `${number(times)} ${cause}`),
  )
}

search.addEventListener('input', () => void update().catch(showAway))
void poll()
