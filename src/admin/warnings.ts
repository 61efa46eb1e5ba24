/** The bad states that are present. Each is told for as long as it lasts: in `/status`, on the page, and by a gauge. */

import * as clock from '../clock.ts'
import type { MetricFamily } from './counts.ts'

/** What a part says about its own state. */
interface Finding {
  /** What is wrong, and what to do. */
  readonly text: string
  /** When the state began, if the part knows; milliseconds since 1970. */
  readonly since?: number | undefined
  /** Until the state will end or change by itself, if that is known. */
  readonly leftMs?: number | undefined
}

/** By code: undefined as long as all is well. */
export type WarningChecks = Readonly<Record<string, () => Finding | string | undefined>>

export class Warnings {
  readonly #checks: WarningChecks
  /** When each state was first seen, in milliseconds since the epoch. */
  readonly #since = new Map<string, number>()

  constructor(checks: WarningChecks) {
    this.#checks = checks
  }

  /** To be called every few seconds, which tells when a state began. */
  present(now = clock.day()) {
    return Object.entries(this.#checks).flatMap(([code, check]) => {
      const found = check()
      if (found === undefined) {
        this.#since.delete(code)
        return []
      }
      const { text, leftMs, ...told }: Finding = typeof found === 'string' ? { text: found } : found
      const since = told.since ?? this.#since.get(code) ?? now
      this.#since.set(code, since)
      return [{ code, text, since: instant(since), until: leftMs === undefined ? undefined : instant(now + leftMs) }]
    })
  }

  family(): MetricFamily {
    const present = new Set(this.present().map(({ code }) => code))
    const values = Object.keys(this.#checks).map((code) => ({ labels: { code }, value: present.has(code) ? 1 : 0 }))
    return { name: 'oap_warnings', type: 'gauge', help: '1 as long as the bad state lasts, by code.', values }
  }
}

/** ISO 8601. */
function instant(at: number): string {
  return new Date(Math.round(at)).toISOString()
}
