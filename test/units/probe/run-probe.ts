/** Runs the command `probe` in front of a service, and reads what it printed. Its pauses take no time. */

import { probe } from '../../../src/cli/probe.ts'
import type { Clock } from '../../../src/probe/asker.ts'
import type { Report } from '../../../src/probe/report.ts'

export interface ProbedService {
  readonly baseUrl: string
  readonly appId: string
  readonly appSecret: string
}

export interface ProbeSettings {
  readonly path?: string
  readonly wait?: string
  readonly env?: Readonly<Record<string, string>>
  readonly clock?: ProbeClock
}

export interface Probed {
  readonly exitCode: number
  readonly report: Report
  /** Everything that was printed, of all forms of output. */
  readonly output: string
  finding(about: string): string
}

/** The time of a test: a pause is over at once, and a service may take some of it. */
export class ProbeClock implements Clock {
  ms = 1_000_000
  /** Ctrl-C comes then. */
  interruptAt = Number.POSITIVE_INFINITY
  readonly interrupt = new AbortController()

  now(): number {
    return this.ms
  }

  async sleep(ms: number): Promise<void> {
    this.ms += ms
    if (this.ms >= this.interruptAt) this.interrupt.abort()
  }
}

export async function runProbe(
  { baseUrl, appId, appSecret }: ProbedService,
  { path, wait, env = {}, clock = new ProbeClock() }: ProbeSettings = {},
): Promise<Probed> {
  let [printed, told] = ['', '']
  const terminal = {
    print: (text: string) => (printed += text),
    tell: (text: string) => (told += text),
    confirm: undefined,
    signal: clock.interrupt.signal,
  }
  const variables = { OAP_BASE_URL: baseUrl, OAP_APP_ID: appId, OAP_APP_SECRET: appSecret, ...env }
  const exitCode = await probe({ org: 'acme', path, wait, yes: true, json: true }, variables, terminal, clock)
  const report: Report = JSON.parse(printed)
  const finding = (about: string) => {
    const found = report.findings.find((each) => each.about === about)
    return found === undefined ? '' : `${found.outcome}: ${found.says} (${found.evidence})`
  }
  return { exitCode, report, output: printed + told, finding }
}
