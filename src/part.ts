/** What the parts of a running program tell of themselves: each beside the mechanism that it tells of. */

/** The bad states that last, in the order in which they are told. */
export const WARNING_CODES = [
  'orgs_paused',
  'mint_pace_reduced',
  'app_credentials_rejected',
  'secret_refused',
  'fresh_tokens_rejected',
  'tokens_ended_young',
  'rejection_status_learned',
  'route_rejected',
  'connections_closed_idle',
  'answers_broken',
  'answers_overdue',
  'overloaded',
  'service_limits',
  'tokens_often_rejected',
  'tunnels_left',
  'configuration_refused',
  'restart_pending',
  'key_set_unavailable',
  'fleet_store_lost',
  'fleet_password_rejected',
  'spans_dropped',
  'name_unresolved',
  'minter_lost',
  'minter_refused',
  'connections_refused',
  'tls_certificate',
  'cookies_dropped',
  'log_lines_dropped',
] as const

export interface Finding {
  /** What is wrong, and what to do. */
  readonly text: string
  /** When the state began, if the part knows; milliseconds since 1970. */
  readonly since?: number | undefined
  /** Until the state will end or change by itself, if that is known. */
  readonly leftMs?: number | undefined
}

/** Undefined as long as all is well. */
export type PartWarnings = { readonly [C in (typeof WARNING_CODES)[number]]?: Finding | string | undefined }

export interface ReadinessCheck {
  readonly name: string
  readonly isOk: boolean
  /** The reason, true for this value of `isOk`. It names no org, because probes may come from anywhere. */
  readonly detail?: string | undefined
}

export interface Unanswered {
  readonly org: string | undefined
  /** With `*` for ids. */
  readonly route: string
  /** For so long, the service has been silent. */
  readonly silentMs: number
}

/** What all parts hold and have counted. Of what several tell, numbers are added, and lists joined. */
export interface Status {
  readonly requestsInFlight: number
  readonly tunnels: number
  readonly requestsWaitingForToken: number
  /** Calls of the token endpoint, and those that wait for their turn. */
  readonly mintCalls: number
  readonly mintCallsWaiting: number
  /** Content of requests that is kept for repeats. */
  readonly keptBytes: number
  readonly clientConnections: number
  /** Since the start. */
  readonly connectionsRefused: number
  readonly cachedTokens: number
  readonly orgsPaused: number
  /** The share of `tokens.mintRate` that is used. */
  readonly mintPace: number
  readonly logLinesDropped: number
  readonly logLinesOmitted: number
  /** Undefined without traces. */
  readonly spansDropped: number | undefined
  readonly isMinterAvailable: boolean
  /** Number of connections by state. `pending`: attempts without one. */
  readonly originConnections: Readonly<Record<'busy' | 'free' | 'pending', number>>
  /** The store through which replicas share their tokens. Undefined for a proxy that shares none. */
  readonly fleet: { readonly state: 'connecting' | 'available' | 'lost'; readonly reason: string } | undefined
  /** The start, or the last reload that changed something. */
  readonly takenOverAt: Date
  readonly checks: readonly ReadinessCheck[]
  /** Empty if no callers are configured. */
  readonly callers: readonly { readonly name: string; readonly requestsInFlight: number }[]
  /** Each Org with requests in flight, and their number. */
  readonly orgsInFlight: readonly (readonly [org: string, count: number])[]
  /** The requests that the service has not begun to answer. */
  readonly unanswered: readonly Unanswered[]
  /** The Org of each open tunnel. */
  readonly orgsOfTunnels: readonly string[]
}

/** A part that tells of itself. To ask it changes nothing. `now`: monotonic milliseconds. */
export interface Telling {
  warnings?(now: number): PartWarnings
  status?(): Partial<Status>
}

export const NOTHING: Status = {
  requestsInFlight: 0,
  tunnels: 0,
  requestsWaitingForToken: 0,
  mintCalls: 0,
  mintCallsWaiting: 0,
  keptBytes: 0,
  clientConnections: 0,
  connectionsRefused: 0,
  cachedTokens: 0,
  orgsPaused: 0,
  mintPace: 0,
  logLinesDropped: 0,
  logLinesOmitted: 0,
  spansDropped: undefined,
  isMinterAvailable: true,
  originConnections: { busy: 0, free: 0, pending: 0 },
  fleet: undefined,
  takenOverAt: new Date(0),
  checks: [],
  callers: [],
  orgsInFlight: [],
  unanswered: [],
  orgsOfTunnels: [],
}

/** Puts together what the parts tell. */
export function inspect(parts: readonly Telling[]): Status {
  const all: Record<string, unknown> = { ...NOTHING }
  for (const part of parts) {
    for (const [name, value] of Object.entries(part.status?.() ?? {})) {
      const before = all[name]
      if (typeof before === 'number') all[name] = before + Number(value)
      else all[name] = Array.isArray(before) ? before.concat(value) : value
    }
  }
  return all as unknown as Status
}

/** The same of their bad states. Of what several tell, one is told. */
export function warningsOf(parts: readonly Telling[], now: number): PartWarnings {
  const told = parts.flatMap((part) => Object.entries(part.warnings?.(now) ?? {}))
  return Object.fromEntries(told.filter(([, found]) => found !== undefined))
}

const MAX_NAMED = 3

export function named(names: readonly string[]): string {
  const more = names.length > MAX_NAMED ? ` and ${names.length - MAX_NAMED} more` : ''
  return names.slice(0, MAX_NAMED).join(', ') + more
}
