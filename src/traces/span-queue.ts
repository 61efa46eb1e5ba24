/** The spans that wait for the collector: a bounded number, sent in batches. Counts what never gets there. */

import { BatchSpanProcessor, type ReadableSpan, type SpanExporter, type SpanProcessor } from '@opentelemetry/sdk-trace'

/** With those on their way. What comes beyond is dropped: the collector may be away, and no request waits for it. */
const MAX_SPANS = 2_048
/** Of one call of the collector. To write a batch keeps the event loop busy, so it is small. */
const MAX_BATCH = 128
/** A loss is told for as long. */
const EPISODE_MS = 5 * 60_000

export class SpanQueue implements SpanProcessor {
  /** Since the start. */
  dropped = 0
  #droppedAt = Number.NEGATIVE_INFINITY
  /** Why the last batch was lost: the status of the collector, or the code of the error. */
  problem: string | undefined
  #size = 0
  readonly #batches: BatchSpanProcessor

  constructor(exporter: SpanExporter, timeoutMs: number) {
    const counted: SpanExporter = {
      export: (spans, done) => {
        let isSettled = false
        const settle = (problem?: string) => {
          if (isSettled) return
          isSettled = true
          clearTimeout(timer)
          this.#size -= spans.length
          if (problem !== undefined) this.#drop(spans.length, problem)
          done({ code: 0 }) // whether it failed is told here, and to nobody else
        }
        // The exporter ends what is silent. An answer that drips would keep the places of its spans for ever.
        const timer = setTimeout(settle, 1.5 * timeoutMs, 'its answer does not end').unref()
        exporter.export(spans, ({ code, error }) => settle(code === 0 ? undefined : problemOf(error)))
      },
      shutdown: () => exporter.shutdown(),
    }
    this.#batches = new BatchSpanProcessor({
      exporter: counted,
      maxQueueSize: MAX_SPANS,
      maxExportBatchSize: MAX_BATCH,
      exportTimeoutMillis: 2 * timeoutMs, // the one above ends first
    })
  }

  /** An episode ends five minutes after the last loss. */
  get isDropping(): boolean {
    return performance.now() - this.#droppedAt < EPISODE_MS
  }

  #drop(spans: number, problem = this.problem): void {
    this.dropped += spans
    this.#droppedAt = performance.now()
    this.problem = problem
  }

  onStart(): void {}

  onEnd(span: ReadableSpan): void {
    if (this.#size < MAX_SPANS) {
      this.#size++
      this.#batches.onEnd(span)
    } else this.#drop(1)
  }

  forceFlush(): Promise<void> {
    return this.#batches.forceFlush()
  }

  shutdown(): Promise<void> {
    return this.#batches.shutdown()
  }
}

function problemOf(error: (Error & { readonly code?: unknown }) | undefined): string {
  const code = error?.code
  if (typeof code === 'number') return `it answers ${code}`
  return typeof code === 'string' ? code : 'it does not take them'
}
