/** The spans that wait for the collector: a bounded number, sent in batches. Counts what never gets there. */

import { BatchSpanProcessor, type ReadableSpan, type SpanExporter } from '@opentelemetry/sdk-trace'
import * as clock from '../clock.ts'
import type { PartWarnings, Status } from '../part.ts'

/** With those on their way. What comes beyond is dropped: the collector may be away, and no request waits for it. */
const MAX_SPANS = 2_048
/** Of one call of the collector. To write a batch keeps the event loop busy, so it is small. */
const MAX_BATCH = 128
/** A loss is told for as long. */
const EPISODE_MS = 5 * 60_000

export class SpanQueue extends BatchSpanProcessor {
  /** Since the start. */
  dropped = 0
  #droppedAt = Number.NEGATIVE_INFINITY
  /** Why the last batch was lost: the status of the collector, or the code of the error. */
  problem: string | undefined
  /** Those on their way count until the collector has answered: if its answers drip, new spans are dropped. */
  #held = 0

  /** `exportTimeoutMillis`: the next batch does not wait any longer for the answer to the one before. */
  constructor(exporter: SpanExporter, exportTimeoutMillis: number) {
    const counted: SpanExporter = {
      export: (spans, done) =>
        exporter.export(spans, ({ code, error }) => {
          this.#held -= spans.length
          if (code !== 0) this.#drop(spans.length, problemOf(error))
          done({ code: 0 }) // whether it failed is told here, and to nobody else
        }),
      shutdown: () => exporter.shutdown(),
    }
    super({ exporter: counted, maxQueueSize: MAX_SPANS, maxExportBatchSize: MAX_BATCH, exportTimeoutMillis })
  }

  /** An episode ends five minutes after the last loss. */
  get isDropping(): boolean {
    return clock.now() - this.#droppedAt < EPISODE_MS
  }

  warnings(): PartWarnings {
    if (!this.isDropping) return {}
    const { dropped, problem = 'it does not take them as fast as they come' } = this
    return {
      spans_dropped: `The collector at traces.endpoint does not get all spans, and ${dropped} were dropped since the start: ${problem}. Requests do not wait for it. Check its address and its log.`,
    }
  }

  status(): Partial<Status> {
    return { spansDropped: this.dropped }
  }

  #drop(spans: number, problem = this.problem): void {
    this.dropped += spans
    this.#droppedAt = clock.now()
    this.problem = problem
  }

  override onEnd(span: ReadableSpan): void {
    if (this.#held === MAX_SPANS) this.#drop(1)
    else {
      this.#held++
      super.onEnd(span)
    }
  }
}

function problemOf(error: (Error & { readonly code?: unknown }) | undefined): string {
  const code = error?.code
  if (typeof code === 'number') return `it answers ${code}`
  return typeof code === 'string' ? code : 'it does not take them'
}
