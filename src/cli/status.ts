/** `status`: prints the running proxy's `/status` for people, in the order of the status page. */

import type { StatusDocument } from '../admin/status.ts'
import type { ListenAddress } from '../config/address.ts'
import { askAdmin, type Output } from './admin-client.ts'

const MAX_ORGS = 20

/** Resolves with the exit code: 0 if the proxy is ready. With `asJson`, prints `/status` as it is. */
export async function printStatus(address: ListenAddress | 'off', stdout: Output, asJson = false): Promise<0 | 1> {
  const { status, content } = await askAdmin(address, `/status?orgs=${MAX_ORGS}`)
  if (status !== 200) throw new Error(`the admin listener answered ${status}: ${detailOf(content)}`)
  const document: StatusDocument = JSON.parse(content)
  stdout.write(asJson ? content : renderStatus(document))
  return document.isReady ? 0 : 1
}

/** The advice of problem details, or nothing. */
function detailOf(content: string): string {
  const [, detail = '"no detail"'] = /"detail":("(?:[^"\\]|\\.)*")/.exec(content) ?? []
  return JSON.parse(detail)
}

/** Org ids and paths come from clients: control characters in them are shown escaped. */
function renderStatus(document: StatusDocument): string {
  const { program, service, isReady, checks, warnings } = document
  const lines = [
    `${isReady ? 'ready' : 'NOT READY'}  org-access-proxy ${program.version} on Node ${program.node}, host ${program.host}, process ${program.pid}, up ${seconds(program.uptimeMs)}`,
    `App ${service.appId} at ${service.baseUrl}`,
    ...checks
      .filter(({ isOk }) => !isOk)
      .map(({ name, detail }) => `not ready: ${name}${detail === undefined ? '' : `: ${detail}`}`),
    ...warnings.map(warningLine),
    '',
    ...overview(document),
    '',
    ...errorLines(document),
    '',
    ...orgLines(document),
  ]
  return lines.map((line) => `${line.replaceAll(/\p{Cc}/gu, escaped).trimEnd()}\n`).join('')
}

function warningLine({ text, since, until }: StatusDocument['warnings'][number]): string {
  const left = until === undefined ? '' : `, until ${timeOf(until)} (${seconds(Date.parse(until) - Date.now())} left)`
  return `warning since ${timeOf(since)}${left}: ${text}`
}

/** In UTC, as in the log. */
function timeOf(instant: string): string {
  return `${instant.slice(0, 19).replace('T', ' ')} UTC`
}

function overview({ recent, totals }: StatusDocument): string[] {
  const { p50Ms, p99Ms, errors } = recent
  const latency = p50Ms === undefined || p99Ms === undefined ? '-' : `p50 ${p50Ms} ms, p99 ${p99Ms} ms`
  return [
    `last ${seconds(recent.spanMs)}`,
    `  requests  ${recent.requests} (${totals.requestsInFlight} in flight, ${totals.requestsWaitingForToken} waiting for a token, ${totals.requestsWaiting} for a connection)`,
    `  latency   ${latency}`,
    `  errors    ${errors.proxy} from the proxy, ${errors.service} from the service, ${errors.app} of the apps`,
    `  mints     ${recent.mints}: ${recent.refusedMints} refused, ${recent.failedMints} failed`,
    `  tokens    ${totals.cachedTokens === 0 ? 'no Org has a token' : totals.cachedTokens}`,
  ]
}

function errorLines({ errors }: StatusDocument): string[] {
  if (errors.length === 0) return ['no errors since the start']
  return [
    'errors since the start, the latest first',
    ...errors.flatMap(({ code, kind, title, detail, count, lastAgoMs, orgs, orgCount, examples }) => {
      const more = orgCount > orgs.length ? `, and ${orgCount - orgs.length} more` : ''
      const listed = orgs.map(({ org, count: times }) => `${org} (${times})`).join(', ')
      const [last] = examples
      return [
        `  ${kind.padEnd(7)} ${last?.status ?? '-'} ${code}  ${count} x, last ${seconds(lastAgoMs)} ago: ${title}`,
        ...(orgs.length === 0 ? [] : [`      Orgs: ${listed}${more}`]),
        ...(last === undefined
          ? []
          : [
              `      last: ${last.reason === undefined ? '' : `${last.reason}: `}${last.method} ${last.path}, request ${last.requestId}`,
            ]),
        `      ${detail}`,
      ]
    }),
  ]
}

function orgLines({ orgs, orgCount }: StatusDocument): string[] {
  if (orgs.length === 0) return ['no Orgs yet']
  const width = Math.max(...orgs.map(({ org }) => org.length))
  return [
    orgCount > orgs.length ? `Orgs (${orgs.length} of ${orgCount})` : `Orgs (${orgCount})`,
    ...orgs.map(({ org, state, ageMs, lifetimeMs, lastRefusal }) => {
      const life = lifetimeMs === undefined ? '' : ` of about ${seconds(lifetimeMs)}`
      const age = ageMs === undefined ? '' : seconds(ageMs) + life
      const refusal = lastRefusal === undefined ? '' : `  refused ${seconds(lastRefusal.agoMs)} ago`
      const status = lastRefusal?.tokenEndpointStatus === undefined ? '' : ` with ${lastRefusal.tokenEndpointStatus}`
      return `  ${org.padEnd(width)}  ${state.padEnd(10)}  ${age}${refusal}${status}`
    }),
  ]
}

function seconds(ms: number): string {
  return `${Math.round(ms / 1000)} s`
}

function escaped(character: string): string {
  return character === '\n' ? '\\n' : `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`
}
