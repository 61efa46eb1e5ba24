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

interface Defaults {
  readonly endpoint: { readonly method: string; readonly path: string }
  readonly field: readonly string[]
  readonly settleTimeMs: number
  readonly mintTimeoutMs: number
}

/** `endpoint` is that of the configuration. */
export function settingsFrom(facts: Facts, endpoint: string, defaults: Defaults): Settings {
  const { field, delay, life, statedLifeMs = Number.POSITIVE_INFINITY, slowestMintMs = 0 } = facts
  const { leastMs = 0, mostMs = 0 } = delay ?? {}
  if (field === undefined) return {}
  return {
    ...(endpoint !== `${defaults.endpoint.method} ${defaults.endpoint.path}` && { endpoint }),
    ...(field !== defaults.field.join('.') && { field }),
    ...(life !== undefined && life.mostMs < statedLifeMs && { lifetime: durationText(life.leastMs) }),
    ...(leastMs * 2 > defaults.settleTimeMs && { settleTime: `${Math.ceil((mostMs * 2) / 1_000)}s` }),
    // Other statuses mean too much else. As long as no token was seen to end by 401, it may mean that, too.
    ...(statusOfEnds(facts) === 403 && { rejectedStatuses: [401, 403] }),
    ...(slowestMintMs * 2 > defaults.mintTimeoutMs && { mintTimeout: `${Math.ceil((slowestMintMs * 2) / 1_000)}s` }),
  }
}

/** That of a made-up token, unless one was seen to end. */
function statusOfEnds({ end, unknownStatus }: Facts): number | undefined {
  return end?.status ?? unknownStatus
}

/** Never longer than it was. */
function durationText(ms: number): string {
  return ms < 10_000 ? `${Math.floor(ms)}ms` : `${Math.floor(ms / 1_000)}s`
}

export function notesFrom(facts: Facts): string[] {
  const { endsFormer, end, endedAgeMs, life, statedLifeMs = 0 } = facts
  const status = statusOfEnds(facts)
  const notes: string[] = []
  if (endsFormer === true) {
    notes.push('A new token ends the one before: run one proxy, or let all of them share tokens (docs/fleet.md).')
  }
  if (status !== undefined && status !== 401 && status !== 403) {
    const what = end === undefined ? 'A made-up token' : 'A token that has ended'
    notes.push(`${what} gets ${status}, which may mean other things, too: the proxy mints after five in a row.`)
  }
  if (endedAgeMs !== undefined && life === undefined && endedAgeMs < (statedLifeMs || Number.POSITIVE_INFINITY)) {
    notes.push(
      `A token was rejected at an age of ${span(endedAgeMs)}, and others may live longer: set tokens.lifetime below that if uploads must not meet a rejection.`,
    )
  }
  if (life !== undefined && statedLifeMs > life.mostMs) {
    notes.push('Tokens end before the end that they state, so that tokens.lifetime has to tell it.')
  }
  return notes
}

/** What was not seen stays at the sandbox's default. */
export function switchesFrom(facts: Facts, endpoint: string, org: string): Readonly<Record<string, unknown>> {
  const { field, statedBy, statedLifeMs, clockOffsetMs, isSameToken, endsFormer, delay, life, unknownOrgStatus } = facts
  const lifeMs = life === undefined ? statedLifeMs : (life.leastMs + life.mostMs) / 2
  const named = {
    tokenEndpoint: endpoint,
    tokenField: field,
    statedEnds: statedBy,
    tokenLifetimeMs: lifeMs === undefined ? undefined : Math.round(lifeMs),
    clockOffsetMs: clockOffsetMs === undefined ? undefined : Math.round(clockOffsetMs),
    sameToken: isSameToken,
    oneTokenPerOrg: endsFormer,
    tokenSettleMs: delay === undefined ? undefined : Math.round(delay.mostMs),
    tokenSettleShare: delay === undefined || delay.share === 0 ? undefined : delay.share,
    expiredStatus: statusOfEnds(facts),
    unlinkedStatus: unknownOrgStatus,
    linked: ['acme', 'globex', 'org-*', org],
  }
  return Object.fromEntries(Object.entries(named).filter(([, value]) => value !== undefined))
}

export function hasToken({ findings }: Pick<Report, 'findings'>): boolean {
  return findings.some(({ about, outcome }) => about === 'answer' && outcome === 'seen')
}

/** JSON is YAML. */
export function renderYaml(report: Pick<Report, 'findings' | 'settings' | 'notes'>): string {
  const entries = Object.entries(report.settings)
  if (entries.length === 0) {
    const says = hasToken(report)
      ? `${report.notes.length === 0 ? 'As far as the probe can tell, the defaults fit' : 'No setting follows for sure'}`
      : 'No setting follows: no member of the answer is known to be a token'
    return `# ${says}.\n{}\n`
  }
  return `tokens:\n${entries.map(([name, value]) => `  ${name}: ${Array.isArray(value) ? JSON.stringify(value).replaceAll(',', ', ') : value}\n`).join('')}`
}

/** Plain text, as one pastes it into a ticket. */
export function renderPage(report: Report): string {
  const { program, at, baseUrl, endpoint, org, path, mints, gets, durationMs, findings, notes } = report
  const lines = [
    `Probe of ${baseUrl} for the Org ${org}, ${at}, org-access-proxy ${program}`,
    `${mints} mints by ${endpoint}, ${gets} GETs of ${path}, in ${span(durationMs)}`,
    '',
    ...findings.flatMap(({ about, outcome, says, evidence }) => [
      `${outcome.padEnd(18)}  ${about}${says === '' ? '' : `: ${says}`}`,
      `${' '.repeat(20)}(${evidence})`,
    ]),
    '',
    'Settings that follow and differ from the defaults:',
    '',
    renderYaml(report).replace(/^\{\}\n/m, ''),
    ...notes,
  ]
  return `${lines.join('\n').trimEnd()}\n`
}
