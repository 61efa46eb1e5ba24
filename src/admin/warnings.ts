/** The bad states that are present. Each is told for as long as it lasts: in `/status`, on the page, and by a gauge. */

import * as clock from '../clock.ts'
import { type Finding, type Telling, WARNING_CODES, warningsOf } from '../part.ts'
import type { MetricFamily } from './counts.ts'

export class Warnings {
  readonly #parts: readonly Telling[]
  /** When each state was first seen, in milliseconds since the epoch. */
  readonly #since = new Map<string, number>()

  constructor(parts: readonly Telling[]) {
    this.#parts = parts
  }

  /** To be called every few seconds, which tells when a state began. */
  present(now = clock.day()) {
    const all = warningsOf(this.#parts, clock.now())
    return WARNING_CODES.flatMap((code) => {
      const found = all[code]
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
    const values = WARNING_CODES.map((code) => ({ labels: { code }, value: present.has(code) ? 1 : 0 }))
    return { name: 'oap_warnings', type: 'gauge', help: '1 as long as the bad state lasts, by code.', values }
  }
}

/** ISO 8601. */
function instant(at: number): string {
  return new Date(Math.round(at)).toISOString()
}
