/** `check`: shows the configuration that would be used, each value with where it came from, and may try one mint. */

import type { LoadedConfig } from '../config/load.ts'
import { describeSource } from '../config/problem.ts'
import { type Setting, settings } from '../config/settings.ts'
import type { TokenErrorCode } from '../errors.ts'
import { type OrgId, parseOrgId } from '../http/org-id.ts'
import type { Output } from './output.ts'

/** How a mint went; never the token. */
export type MintOutcome =
  | { readonly kind: 'minted'; readonly durationMs: number }
  | {
      readonly kind: 'failed'
      readonly code: TokenErrorCode
      /** What to tell the person who asked; without secrets. */
      readonly message: string
      readonly durationMs: number
    }

export interface CheckOptions {
  readonly loaded: LoadedConfig
  /** Org to mint for, as it was given. */
  readonly org: string | undefined
  readonly mint: (org: OrgId) => Promise<MintOutcome>
  readonly stdout: Output
  readonly isTerminal: boolean
}

/** Resolves with the exit code. */
export async function check(options: CheckOptions): Promise<0 | 1> {
  const { loaded, org, stdout, isTerminal } = options
  stdout.write(renderSettings(loaded, isTerminal))
  stdout.write(renderWarnings(loaded, isTerminal))
  if (org === undefined) return 0
  const { line, isGood } = await tryMint(org, options)
  stdout.write(`\n${line}\n`)
  return isGood ? 0 : 1
}

/** Three aligned columns, in the order of the declaration; what was chosen stands out from what is default. */
export function renderSettings({ texts, sources }: LoadedConfig, isTerminal: boolean): string {
  const rows = settings.map((setting) => ({
    setting,
    value: texts.get(setting.key) || '-',
    source: sources.get(setting.key) ?? ({ kind: 'unset' } as const),
  }))
  const keyWidth = Math.max(...rows.map(({ setting }) => setting.key.length))
  const valueWidth = Math.min(MAX_VALUE_WIDTH, Math.max(...rows.map(({ value }) => value.length)))
  let previous: Setting['group']
  return rows
    .map(({ setting, value, source }) => {
      const isChosen = source.kind === 'file' || source.kind === 'environment'
      const line = `${setting.key.padEnd(keyWidth)}  ${value.padEnd(valueWidth)}  ${describeSource(source)}`
      const gap = setting.group === previous ? '' : '\n'
      previous = setting.group
      return `${gap}${isTerminal && !isChosen ? dimmed(line) : line}\n`
    })
    .join('')
}

const MAX_VALUE_WIDTH = 48

function renderWarnings({ warnings }: LoadedConfig, isTerminal: boolean): string {
  if (warnings.length === 0) return '\nThe configuration is good.\n'
  const label = isTerminal ? yellow('warning:') : 'warning:'
  return `\n${warnings.map((warning) => `${label} ${warning}\n`).join('')}\nThe configuration can be used.\n`
}

async function tryMint(text: string, { loaded, mint }: CheckOptions): Promise<{ line: string; isGood: boolean }> {
  const { orgs } = loaded.config
  const org = parseOrgId(text, orgs.pattern)
  if (org === undefined) return { line: 'mint: not tried, because this is no org id (see orgs.pattern)', isGood: false }
  if (orgs.allow.length > 0 && !orgs.allow.includes(org)) {
    return { line: `mint: not tried, because ${org} is not in orgs.allow`, isGood: false }
  }
  const outcome = await mint(org)
  const duration = `${Math.round(outcome.durationMs)} ms`
  if (outcome.kind === 'minted') return { line: `mint: a token for ${org} was obtained in ${duration}`, isGood: true }
  return { line: `mint: no token for ${org} after ${duration}: ${outcome.code}, ${outcome.message}`, isGood: false }
}

function dimmed(text: string): string {
  return `\u001b[2m${text}\u001b[22m`
}

function yellow(text: string): string {
  return `\u001b[33m${text}\u001b[39m`
}
