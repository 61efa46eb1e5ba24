/**
 * Whose token goes with a request, and who gets whose answer, while everything happens that could mix them up: many orgs
 * at once, little room for tokens, tokens that the service forgets all the time, clients that leave. Bounded and seeded.
 */

import { KeepAliveClient } from '../test/support/keep-alive-client.ts'
import type { RotatingService } from '../test/support/rotating-service.ts'
import { Random } from '../test/support/seed.ts'

export interface CrossOrgOptions {
  /** Where the proxy listens on the loopback address. */
  readonly port: number
  readonly service: RotatingService
  readonly seed: number
  readonly requests: number
  /** Requests on their way at one time. */
  readonly concurrency: number
  readonly orgs: number
  /** No request is begun after so long. */
  readonly maxDurationMs: number
  /** Called about once a second. */
  readonly onProgress?: (report: CrossOrgReport) => void
}

export interface CrossOrgReport {
  /** Answered or aborted. */
  readonly requests: number
  readonly aborted: number
  /** By status. */
  readonly answers: Readonly<Record<number, number>>
  /** Connections that ended before the answer did, though nobody had aborted. */
  readonly broken: number
  readonly mints: number
  readonly durationMs: number
  /** What must not be: a token of another org at the service, the answer of another org at a client. */
  readonly mismatches: readonly string[]
}

/** Half of the traffic goes to so many orgs, so that cached tokens are used and evicted alike. */
const BUSY_ORGS = 50
const ABORT_SHARE = 0.01
const ABORT_WITHIN_MS = 20

export async function runCrossOrg(options: CrossOrgOptions): Promise<CrossOrgReport> {
  const run = new CrossOrgRun(options)
  const progress = setInterval(() => options.onProgress?.(run.report), 1_000)
  try {
    await run.complete()
  } finally {
    clearInterval(progress)
  }
  return run.report
}

class CrossOrgRun {
  readonly #options: CrossOrgOptions
  readonly #startedAt = performance.now()
  readonly #answers: Record<number, number> = {}
  readonly #mismatches: string[] = []
  #begun = 0
  #answered = 0
  #aborted = 0
  #broken = 0

  constructor(options: CrossOrgOptions) {
    this.#options = options
  }

  get report(): CrossOrgReport {
    const { service } = this.#options
    return {
      requests: this.#answered + this.#aborted + this.#broken,
      aborted: this.#aborted,
      answers: { ...this.#answers },
      broken: this.#broken,
      mints: service.mints,
      durationMs: performance.now() - this.#startedAt,
      mismatches: [...this.#mismatches, ...service.mismatches],
    }
  }

  async complete(): Promise<void> {
    const { concurrency, seed } = this.#options
    // Each client has a sequence of its own: what it does hangs on the seed alone, not on who is answered first.
    await Promise.all(Array.from({ length: concurrency }, (_, i) => this.#send(new Random(seed + i))))
  }

  async #send(random: Random): Promise<void> {
    const { port, requests, maxDurationMs } = this.#options
    using client = new KeepAliveClient(port)
    while (this.#begun < requests && performance.now() - this.#startedAt < maxDurationMs) {
      this.#begun += 1
      const org = this.#pickOrg(random)
      const willAbort = random.chance(ABORT_SHARE)
      const abort = willAbort ? setTimeout(() => client.abort(), random.next() * ABORT_WITHIN_MS) : undefined
      try {
        this.#check(org, await client.get(`/v2/as/${org}`, org))
      } catch {
        if (willAbort) this.#aborted += 1
        else this.#broken += 1
      }
      clearTimeout(abort)
    }
  }

  #pickOrg(random: Random): string {
    return `org-${random.integer(1, random.chance(0.5) ? BUSY_ORGS : this.#options.orgs)}`
  }

  #check(org: string, { status, content }: { readonly status: number; readonly content: string }): void {
    this.#answered += 1
    this.#answers[status] = (this.#answers[status] ?? 0) + 1
    if (status === 200 && content !== org) this.#mismatches.push(`${org} got the answer of ${content}`)
  }
}
