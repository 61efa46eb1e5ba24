/** The bad states that are present. Each is told for as long as it lasts: in `/status`, on the page, and by a gauge. */

import type { MetricFamily } from './counts.ts'
import type { RecentTotals } from './history.ts'

const CODES = [
  'mints_paused',
  'orgs_paused',
  'app_credentials_rejected',
  'secret_refused',
  'configuration_refused',
  'fleet_store_lost',
  'connections_refused',
  'log_lines_dropped',
  'tls_certificate',
  'fresh_tokens_rejected',
  'rejection_status_learned',
  'mints_refused',
] as const
export type WarningCode = (typeof CODES)[number]

export interface Warning {
  readonly code: WarningCode
  /** What is wrong, and what to do. */
  readonly text: string
  /** ISO 8601, like `until`. */
  readonly since: string
  /** When the state will end or change by itself, if that is known. */
  readonly until?: string | undefined
}

/** What a part says about its own state. Without `lastedMs`, the state began when it was first seen. */
export interface Finding {
  readonly text: string
  readonly lastedMs?: number | undefined
  readonly leftMs?: number | undefined
}

/** Undefined as long as all is well. */
export type WarningCheck = () => Finding | undefined

export class Warnings {
  readonly #checks = new Map<WarningCode, WarningCheck>()
  /** In milliseconds since the epoch. */
  readonly #since = new Map<WarningCode, number>()

  add(code: WarningCode, check: WarningCheck): void {
    this.#checks.set(code, check)
  }

  /** To be called every few seconds, which tells when a state began. */
  present(now = Date.now()): Warning[] {
    return [...this.#checks].flatMap(([code, check]) => {
      const finding = check()
      if (finding === undefined) {
        this.#since.delete(code)
        return []
      }
      const { text, lastedMs, leftMs } = finding
      const since = lastedMs === undefined ? (this.#since.get(code) ?? now) : now - lastedMs
      this.#since.set(code, since)
      return [{ code, text, since: instant(since), until: leftMs === undefined ? undefined : instant(now + leftMs) }]
    })
  }

  family(): MetricFamily {
    const present = new Set(this.present().map(({ code }) => code))
    const values = CODES.map((code) => ({ labels: { code }, value: present.has(code) ? 1 : 0 }))
    return { name: 'oap_warnings', type: 'gauge', help: '1 as long as the bad state lasts, by code.', values }
  }
}

function instant(at: number): string {
  return new Date(Math.round(at)).toISOString()
}

const EPISODE_MS = 5 * 60_000

/** A check of a count that should not grow: an episode ends five minutes after the last growth. */
export function whileGrowing(count: () => number, textOf: (grown: number) => string, now = Date.now): WarningCheck {
  let seen = count()
  let before = seen
  let grewAt = Number.NEGATIVE_INFINITY
  return () => {
    if (now() - grewAt >= EPISODE_MS) before = seen
    if (count() > seen) {
      seen = count()
      grewAt = now()
    }
    return seen > before ? { text: textOf(seen - before) } : undefined
  }
}

/** Fewer refusals may be unlinked orgs. */
const MIN_REFUSED_MINTS = 3
const REFUSED_SHARE = 0.5

/** A wrong address answers 404 for every org, which looks like orgs that are not linked. */
export function refusedMints({ mints, refusedMints }: RecentTotals, baseUrl: string): Finding | undefined {
  if (refusedMints < MIN_REFUSED_MINTS || refusedMints <= mints * REFUSED_SHARE) return undefined
  return {
    text:
      `The token endpoint refused ${refusedMints} of the last ${mints} mints. Check that baseUrl ${baseUrl} is right; ` +
      'if it is, check that these Orgs are linked with the App.',
  }
}
