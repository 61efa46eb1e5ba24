/** Numbers, times and states in words, for the status page and for `org-access-proxy status`. */

import type { StatusDocument } from '../status.ts'

/** From here on, it is told how long a request waits for its answer. */
const SILENT_MS = 1_000

export type ErrorReport = StatusDocument['errors'][number]
export type Org = StatusDocument['orgs'][number]

/** The service, and how its tokens are had. */
export function serviceText({ baseUrl, appId, minter }: StatusDocument['service']): string {
  return minter === undefined ? `App ${appId} at ${baseUrl}` : `${baseUrl}, with tokens from the minter at ${minter}`
}

/** Two digits at least, and no more below ten. */
export function number(value: number): string {
  return value >= 10
    ? Math.round(value).toLocaleString('en')
    : value.toLocaleString('en', { maximumSignificantDigits: 2 })
}

/** `1 mint`, `2 mints`. */
export function counted(value: number, noun: string): string {
  return `${number(value)} ${noun}${value === 1 ? '' : 's'}`
}

export function rate(perSecond: number): string {
  return `${number(perSecond)}/s`
}

export function milliseconds(ms: number): string {
  return ms < 1000 ? `${number(ms)}\u00a0ms` : `${number(ms / 1000)}\u00a0s`
}

/** In the two largest units, with blanks at which no line breaks. */
export function duration(ms: number): string {
  return inTwoUnits(ms).replaceAll(' ', '\u00a0')
}

function inTwoUnits(ms: number): string {
  const seconds = Math.max(0, Math.floor(ms / 1000))
  const [minutes, hours, days] = [Math.floor(seconds / 60), Math.floor(seconds / 3_600), Math.floor(seconds / 86_400)]
  const both = (first: string, amount: number, unit: string) => (amount === 0 ? first : `${first} ${amount} ${unit}`)
  if (days > 0) return both(`${days} d`, hours % 24, 'h')
  if (hours > 0) return both(`${hours} h`, minutes % 60, 'min')
  return minutes > 0 ? both(`${minutes} min`, seconds % 60, 's') : `${seconds} s`
}

export function ago(ms: number): string {
  return ms < 1000 ? 'just now' : `${duration(ms)} ago`
}

/** `2xx 118, 4xx 2`: the classes that occurred. */
export function answersText(answers: StatusDocument['totals']['answers']): string {
  const seen = Object.entries(answers).filter(([, times]) => times > 0)
  return seen.length === 0 ? 'none' : seen.map(([status, times]) => `${status}\u00a0${number(times)}`).join(', ')
}

function quantilesText({ p50Ms, p99Ms }: { p50Ms: number | undefined; p99Ms: number | undefined }): string {
  return p50Ms === undefined || p99Ms === undefined ? '-' : `p50 ${milliseconds(p50Ms)}, p99 ${milliseconds(p99Ms)}`
}

/** The last minutes, a label and a text a row. */
export function recentRows({ recent, totals }: StatusDocument): [string, string][] {
  const { requestsInFlight, requestsWaitingForToken, requestsWaiting, cachedTokens } = totals
  const atService = Math.max(0, requestsInFlight - requestsWaitingForToken - requestsWaiting)
  const { requests, errors, answers, mints, refusedMints, failedMints } = recent
  return [
    [
      'requests',
      `${requests} (${requestsInFlight} in flight: ${requestsWaitingForToken} wait for a token, ${requestsWaiting} for a connection, ${atService} are with the service)`,
    ],
    ['latency', quantilesText(recent)],
    ['errors', `${errors.proxy} from the proxy, ${errors.service} from the service, ${errors.app} of the apps`],
    ['answers', `of the service: ${answersText(answers)}`],
    ['mints', `${mints}: ${refusedMints} refused, ${failedMints} failed`],
    ['tokens', cachedTokens === 0 ? 'no Org has a token' : String(cachedTokens)],
  ]
}

/** Who is slow, who is busy, who fails. */
export function whoRows({
  recent,
  busiest,
  mostErrors,
  inFlight,
  tunnels,
  totals,
}: StatusDocument): [string, string][] {
  const list = (counts: readonly { name: string; count: number }[]) =>
    counts.map(({ name, count }) => `${name} ${number(count)}`).join(', ')
  const requestsOf = (counts: StatusDocument['busiest']['orgs']) =>
    list(counts.map(({ name, requests: count }) => ({ name, count })))
  const errorsOf = (counts: StatusDocument['busiest']['orgs']) =>
    list(counts.map(({ name, errors: count }) => ({ name, count })))
  const rows: [string, string][] = [
    ['the service, to its first byte', quantilesText(recent.service)],
    ['the proxy, and the transfer', quantilesText(recent.proxy)],
    ['busiest Orgs', requestsOf(busiest.orgs)],
    ['busiest callers', requestsOf(busiest.callers)],
    ['Orgs with most errors', errorsOf(mostErrors.orgs)],
    ['callers with most errors', errorsOf(mostErrors.callers)],
    ['Orgs with most in flight', inFlight.orgs.map(heldText).join(', ')],
    ['Orgs with most WebSockets', list(tunnels.orgs)],
    ['seen by few clients, since the start', troublesText(totals.serviceTroubles)],
  ]
  return rows.filter(([, text]) => text !== '')
}

/** `acme 12 (GET /v2/x unanswered for 45 s)`. */
function heldText({ name, count, longest }: StatusDocument['inFlight']['orgs'][number]): string {
  const told = `${name} ${number(count)}`
  if (longest === undefined || longest.silentMs < SILENT_MS) return told
  return `${told} (${longest.route} unanswered for ${duration(longest.silentMs)})`
}

/** `3 repeats after a rejected token, 1 answer 429 of the service`; empty if there is none. */
function troublesText({ repeated, limited, broken, idle }: StatusDocument['totals']['serviceTroubles']): string {
  const told: [number, string, string][] = [
    [repeated, 'repeat after a rejected token', 'repeats after rejected tokens'],
    [limited, 'answer 429 of the service', 'answers 429 of the service'],
    [broken, 'broken answer', 'broken answers'],
    [idle, 'connection closed while idle', 'connections closed while idle'],
  ]
  return told
    .filter(([count]) => count > 0)
    .map(([count, one, many]) => `${number(count)} ${count === 1 ? one : many}`)
    .join(', ')
}

/** The whole status, for the page without JavaScript. */
export function allRows(document: StatusDocument): [string, string][] {
  const { warnings, errors, orgs } = document
  return [
    ['state', stateText(document)],
    ['service', serviceText(document.service)],
    ...warnings.map((warning): [string, string] => ['warning', `${warning.text} (${lastingText(warning)})`]),
    ...recentRows(document),
    ...whoRows(document),
    ...errors.map(({ code, title, count, detail }): [string, string] => [
      code,
      `${counted(count, 'time')}: ${title}. ${detail}`,
    ]),
    ...orgs.map((org): [string, string] => [org.org, `${org.state} ${ageText(org)}${refusalText(org)}`]),
  ]
}

/** `Ready, 2 warnings`. */
export function stateText({ isReady, warnings }: Pick<StatusDocument, 'isReady' | 'warnings'>): string {
  const told = warnings.length === 0 ? '' : `, ${counted(warnings.length, 'warning')}`
  return `${isReady ? 'Ready' : 'Not ready'}${told}`
}

/** In UTC, as in the log. */
export function utc(instant: string): string {
  return `${instant.slice(0, 19).replace('T', ' ')} UTC`
}

export function lastingText({ since, until }: StatusDocument['warnings'][number]): string {
  const lasted = `since ${utc(since)} (${duration(Date.now() - Date.parse(since))})`
  if (until === undefined) return lasted
  return `${lasted}, until ${utc(until)} (${duration(Date.parse(until) - Date.now())} left)`
}

export function exampleText(example: ErrorReport['examples'][number]): string {
  const { method, path, orgId, requestId, reason, agoMs } = example
  const org = orgId === undefined ? '' : ` for ${orgId}`
  const sent = method === '' ? 'no readable request' : `${method} ${path}`
  return `${reason === undefined ? '' : `${reason}: `}${sent}${org}, ${ago(agoMs)}, request ${requestId}`
}

export function ageText({ ageMs, lifetimeMs }: Org): string {
  const lifetime = lifetimeMs === undefined ? '' : `, lives about ${duration(lifetimeMs)}`
  return ageMs === undefined ? '' : `token ${duration(ageMs)} old${lifetime}`
}

export function refusalText({ state, lastRefusal }: Org): string {
  if (lastRefusal === undefined) return ''
  const { code, tokenEndpointStatus: status } = lastRefusal
  return state === 'paused' ? ` after ${code}` : ` refused with ${status ?? code}`
}
