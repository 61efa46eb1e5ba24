/** Runs the command `probe` in front of a service, and reads what it printed. */

import { probe } from '../../../src/cli/probe.ts'
import type { Report } from '../../../src/probe/report.ts'

export interface ProbedService {
  readonly baseUrl: string
  readonly appId: string
  readonly appSecret: string
}

export interface ProbeSettings {
  readonly org?: string
  readonly path?: string
  readonly wait?: string
  readonly graceMs?: number
  readonly env?: Readonly<Record<string, string>>
}

export interface Probed {
  readonly exitCode: number
  readonly report: Report
  /** Everything that was printed, of all forms of output. */
  readonly output: string
  finding(about: string): string
}

export async function runProbe(
  { baseUrl, appId, appSecret }: ProbedService,
  { org = 'acme', path, wait, graceMs = 200, env = {} }: ProbeSettings = {},
): Promise<Probed> {
  let [printed, told] = ['', '']
  const terminal = {
    print: (text: string) => (printed += text),
    tell: (text: string) => (told += text),
    confirm: undefined,
  }
  const variables = { OAP_BASE_URL: baseUrl, OAP_APP_ID: appId, OAP_APP_SECRET: appSecret, ...env }
  const exitCode = await probe({ org, path, wait, yes: true, json: true }, variables, terminal, graceMs)
  const report: Report = JSON.parse(printed)
  const finding = (about: string) => {
    const found = report.findings.find((each) => each.about === about)
    return found === undefined ? '' : `${found.outcome}: ${found.says} (${found.evidence})`
  }
  return { exitCode, report, output: printed + told, finding }
}
