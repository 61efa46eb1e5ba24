/** Counts of what the fleet's store was asked, and whether it is there. Exists only if `fleet.store` is set. */

import { LabelledCounter } from './counters.ts'
import { histogramFamily, labelled, type MetricFamily, single } from './exposition.ts'
import { Histogram } from './histogram.ts'
import { BOUNDS_MS } from './request-metrics.ts'

/** Answers that an operation can get, beside those that all can get. */
const ANSWERS = {
  claim: ['token', 'acquired', 'held', 'noted'],
  publish: ['published', 'lost'],
  release: ['ok'],
  forget: ['ok'],
  permit: ['granted', 'wait', 'limited'],
  board: ['ok'],
  note: ['ok'],
  probe: ['ok'],
  open: ['unusable'],
} as const
const FAILURES = ['timeout', 'error', 'skipped'] as const

type Operation = keyof typeof ANSWERS
type Outcome = (typeof ANSWERS)[Operation][number] | (typeof FAILURES)[number]

export class FleetMetrics {
  readonly #asked = new Map<Operation, LabelledCounter<string>>()
  readonly #durations = new Histogram(BOUNDS_MS)
  #isAvailable = false

  constructor() {
    for (const operation of Object.keys(ANSWERS) as Operation[]) {
      const outcomes = [...ANSWERS[operation], ...(operation === 'open' ? [] : FAILURES)]
      const zeros = Object.fromEntries(outcomes.map((outcome) => [outcome, 0]))
      this.#asked.set(operation, new LabelledCounter('outcome', zeros))
    }
  }

  storeAsked(operation: Operation, outcome: Outcome, durationMs: number): void {
    this.#asked.get(operation)?.add(outcome)
    if (outcome !== 'skipped') this.#durations.record(durationMs)
  }

  valueUnusable(): void {
    this.#asked.get('open')?.add('unusable')
  }

  storeLost(): void {
    this.#isAvailable = false
  }

  storeBack(): void {
    this.#isAvailable = true
  }

  families(): MetricFamily[] {
    const samples = Array.from(this.#asked, ([operation, counter]) =>
      counter.samples().map(({ labels, value }) => ({ labels: { operation, ...labels }, value })),
    )
    return [
      labelled(
        'oap_fleet_requests_total',
        'counter',
        "Operations on the fleet's store, by operation and outcome.",
        samples.flat(),
      ),
      histogramFamily(
        'oap_fleet_request_duration_seconds',
        "Duration of one operation on the fleet's store.",
        this.#durations.snapshot(),
      ),
      single(
        'oap_fleet_available',
        'gauge',
        "1 if the fleet's store answers, 0 if this replica mints for itself.",
        this.#isAvailable ? 1 : 0,
      ),
    ]
  }
}
