/** Requests by method and status: on the path of every request, so two look-ups by identity and an increment. */

import type { Sample } from './exposition.ts'

/** Anything else a client may invent is counted together: labels must stay few. */
const METHODS: readonly string[] = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS', 'CONNECT', 'TRACE']
const OTHER = 'OTHER'

/** Status codes have three digits (RFC 9110 §15). */
const STATUSES = 1000

export class ResponseCounter {
  readonly #countsByMethod = new Map<string, Float64Array>()
  total = 0

  add(method: string, status: number): void {
    const counts = this.#countsByMethod.get(method) ?? this.#firstOf(method)
    counts[status] = (counts[status] ?? 0) + 1
    this.total++
  }

  #firstOf(method: string): Float64Array {
    const known = METHODS.includes(method) ? method : OTHER
    const counts = this.#countsByMethod.get(known) ?? new Float64Array(STATUSES)
    this.#countsByMethod.set(known, counts)
    return counts
  }

  samples(): Sample[] {
    const samples: Sample[] = []
    for (const [method, counts] of this.#countsByMethod) {
      for (const [status, value] of counts.entries()) {
        if (value > 0) samples.push({ labels: { method, status: String(status) }, value })
      }
    }
    return samples
  }
}
