/** What a probe prints: a page for people, the settings that follow, and JSON, which `sandbox --like` reads. */

import { type Facts, type Finding, span } from './findings.ts'

export interface Report {
  readonly program: string
  /** When it began. */
  readonly at: string
  readonly baseUrl: string
  /** Of the configuration: a method and a path. */
  readonly endpoint: string
  readonly org: string
  readonly path: string
  readonly mints: number
  readonly gets: number
  readonly durationMs: number
  readonly findings: readonly Finding[]
  readonly settings: Settings
  /** What no setting says. */
  readonly notes: readonly string[]
  /** Switches of the sandbox that make it like this service. */
  readonly sandbox: Readonly<Record<string, unknown>>
}

/** Of the group `tokens`; those at their defaults are left out. */
export type Settings = Readonly<Record<string, string | readonly number[]>>

export interface Defaults {
  readonly endpoint: string
  readonly field: string
  readonly settleTimeMs: number
  readonly mintTimeoutMs: number
}

/** `endpoint` is that of the configuration. */
export function settingsFrom(facts: Facts, endpoint: string, defaults: Defaults): Settings {
  const { field, delay, life, statedBy = [], slowestMintMs = 0 } = facts
  const statuses = rejectedStatuses(facts)
  const settleMs = (delay?.mostMs ?? 0) * 2
  const settings = {
    ...(field !== undefined && endpoint !== defaults.endpoint && { endpoint }),
    ...(field !== undefined && field !== defaults.field && { field }),
    ...(life?.kind === 'regular' && statedBy.length === 0 && { lifetime: durationText(life.leastMs) }),
    ...(settleMs > defaults.settleTimeMs && { settleTime: `${Math.ceil(settleMs / 1_000)}s` }),
    ...(statuses.join() !== '401' && { rejectedStatuses: statuses }),
    ...(slowestMintMs * 2 > defaults.mintTimeoutMs && { mintTimeout: `${Math.ceil((slowestMintMs * 2) / 1_000)}s` }),
  }
  return settings
}

/** A 4xx other than these means too much else: the proxy learns by itself whether it ends tokens. */
function rejectedStatuses({ unknownStatus, endedStatus }: Facts): number[] {
  // As long as no token was seen to end, 401 may mean it, too.
  const statuses = [unknownStatus, endedStatus ?? 401].filter((status) => status !== undefined)
  const clear = statuses.filter((status) => status === 401 || status === 403 || (status >= 300 && status < 400))
  const chosen = [...new Set(clear)].sort((a, b) => a - b)
  return chosen.length === 0 ? [401] : chosen
}

/** Never longer than it was. */
function durationText(ms: number): string {
  return ms < 10_000 ? `${Math.floor(ms)}ms` : `${Math.floor(ms / 1_000)}s`
}

export function notesFrom(facts: Facts): string[] {
  const { endsFormer, mintLimit, endedStatus, unknownStatus, life } = facts
  const other = endedStatus ?? unknownStatus
  const perSecond = mintLimit === undefined ? 0 : (mintLimit.count * 1_000) / mintLimit.windowMs
  return [
    ...(endsFormer === true
      ? ['A new token ends the one before: run one proxy, or let all of them share tokens (docs/fleet.md).']
      : []),
    ...(other !== undefined && other >= 400 && other !== 401 && other !== 403
      ? [
          `${other} for a token that is no longer good means other things, too: the proxy tries a new token after five in a row.`,
        ]
      : []),
    ...(life?.kind === 'irregular' ? ['Lives differ, so the proxy renews a token when the service rejects it.'] : []),
    ...(life?.kind === 'sliding'
      ? ['A use makes a token live longer, so only tokens that were idle are renewed.']
      : []),
    ...(perSecond > 0 && perSecond < 100
      ? [
          `If the limit of mints is one for the whole App: tokens.mintRate: ${Math.max(0.1, Number(perSecond.toFixed(2)))}`,
        ]
      : []),
  ]
}

/** What was not seen stays at the sandbox's default. */
export function switchesFrom(facts: Facts, endpoint: string, org: string): Readonly<Record<string, unknown>> {
  const { field, statedBy, statedLifeMs, clockOffsetMs, isSameToken, endsFormer, delay, life, mintLimit } = facts
  const { unknownStatus, endedStatus = unknownStatus, unknownOrgStatus } = facts
  const lifeMs = life === undefined ? statedLifeMs : Math.round((life.leastMs + life.mostMs) / 2)
  const named = {
    tokenEndpoint: endpoint,
    tokenField: field,
    statedEnds: statedBy,
    tokenLifetimeMs: lifeMs === undefined ? undefined : Math.round(lifeMs),
    tokenLifetimeKind: life?.kind,
    clockOffsetMs: clockOffsetMs === undefined ? undefined : Math.round(clockOffsetMs),
    sameToken: isSameToken,
    oneTokenPerOrg: endsFormer,
    tokenSettleMs: delay === undefined ? undefined : Math.round(delay.mostMs),
    tokenSettleShare: delay === undefined || delay.share === 0 ? undefined : delay.share,
    expiredStatus: endedStatus,
    unlinkedStatus: unknownOrgStatus,
    mintLimit,
    linked: ['acme', 'globex', 'org-*', org],
  }
  return Object.fromEntries(Object.entries(named).filter(([, value]) => value !== undefined))
}

/** JSON is YAML. */
export function renderYaml(settings: Settings): string {
  const entries = Object.entries(settings)
  if (entries.length === 0) return '# As far as the probe can tell, the defaults fit.\n{}\n'
  return `tokens:\n${entries.map(([name, value]) => `  ${name}: ${Array.isArray(value) ? JSON.stringify(value).replaceAll(',', ', ') : value}\n`).join('')}`
}

const WIDTH = 'could not be asked'.length

/** Plain text of at most 100 columns, as one pastes it into a ticket. */
export function renderPage(report: Report): string {
  const { program, at, baseUrl, endpoint, org, path, mints, gets, durationMs, findings, settings, notes } = report
  const lines = [
    `Probe of ${baseUrl} for the Org ${org}`,
    `${at}, org-access-proxy ${program}, in ${span(durationMs)}:`,
    `${mints} mints by ${endpoint}`,
    `${gets} GETs of ${path}`,
    '',
    'Findings',
    ...findings.flatMap(({ about, outcome, says, evidence }) => [
      '',
      ...wrapped(`  ${outcome.padEnd(WIDTH)}  ${about}: ${says}`, WIDTH + 4),
      ...wrapped(`  ${' '.repeat(WIDTH)}  (${evidence})`, WIDTH + 4),
    ]),
    '',
    'Settings that follow and differ from the defaults',
    '',
    ...renderYaml(settings)
      .trimEnd()
      .split('\n')
      .filter((line) => line !== '{}')
      .map((line) => `  ${line}`),
    ...(notes.length === 0 ? [] : ['', ...notes.flatMap((note) => wrapped(`  ${note}`, 2))]),
  ]
  return `${lines.map((line) => line.trimEnd()).join('\n')}\n`
}

const MAX_COLUMNS = 100

/** At blanks; further lines are indented. A word that is too long stays whole. */
function wrapped(text: string, indent: number): string[] {
  const lines: string[] = []
  let rest = text
  while (rest.length > MAX_COLUMNS) {
    const at = rest.lastIndexOf(' ', MAX_COLUMNS)
    const cut = at > indent ? at : rest.indexOf(' ', MAX_COLUMNS)
    if (cut === -1) break
    lines.push(rest.slice(0, cut))
    rest = ' '.repeat(indent) + rest.slice(cut + 1)
  }
  return [...lines, rest]
}
