/** Where switches come in from outside: what each can take, and one message for all that is wrong. */

import type { FaultKind } from './fault.ts'
import type { Switches } from './switches.ts'

/** A value that no switch can take; the message names every one that is wrong. */
export class SwitchError extends TypeError {
  override readonly name = 'SwitchError'
}

type Check = (value: unknown) => string | undefined

const SWITCH_CHECKS: Readonly<Record<keyof Switches, Check>> = {
  appSecret: (value) =>
    isText(value) || (isTexts(value) && value.length > 0) ? undefined : 'wants a string or a list of strings',
  linked: (value) => (value === '*' || isTexts(value) ? undefined : 'wants "*" or a list of org ids'),
  tokenLifetimeMs: isDuration,
  tokenFormat: (value) => (value === 'opaque' || value === 'jwt' ? undefined : 'wants "opaque" or "jwt"'),
  badCredentialsStatus: isStatus,
  unlinkedStatus: isStatus,
  expiredStatus: isStatus,
  mintLatencyMs: isDuration,
  requestLatencyMs: isDuration,
  mintFaults: isFaults,
  requestFaults: isFaults,
}

const FAULT_CHECKS: Readonly<Record<string, Check>> = {
  kind: (value) => (FAULT_KINDS.some((kind) => kind === value) ? undefined : `wants one of ${FAULT_KINDS.join(', ')}`),
  org: (value) => (isText(value) ? undefined : 'wants an org id'),
  probability: (value) => (isNumber(value) && value <= 1 ? undefined : 'wants a number from 0 to 1'),
  count: isWhole,
  status: isStatus,
  retryAfterSeconds: isWhole,
}

const FAULT_KINDS: readonly FaultKind[] = ['status', 'html', 'hang', 'reset', 'cut', 'truncated-json']

/**
 * The switches that are named, with what they are to be.
 * @throws {SwitchError}
 */
export function parseSwitches(input: unknown): Partial<Switches> {
  if (!isRecord(input)) throw new SwitchError('wants an object of switches')
  const problems = problemsIn(input, SWITCH_CHECKS)
  if (problems.length > 0) throw new SwitchError(problems.join('; '))
  return definedOnly(input)
}

function problemsIn(input: Record<string, unknown>, checks: Readonly<Record<string, Check>>): string[] {
  return Object.entries(input).flatMap(([name, value]) => {
    if (value === undefined) return []
    const problem = Object.hasOwn(checks, name) ? checks[name]?.(value) : 'is not known'
    return problem === undefined ? [] : [`${name} ${problem}`]
  })
}

function definedOnly(input: Record<string, unknown>): Partial<Switches> {
  return Object.fromEntries(Object.entries(input).filter(([, value]) => value !== undefined))
}

function isFaults(value: unknown): string | undefined {
  if (!Array.isArray(value)) return 'wants a list of faults'
  const problems = value.flatMap((fault: unknown) => {
    if (!isRecord(fault)) return ['a fault is an object']
    const { kind, status } = fault
    const missing = kind === 'status' && status === undefined ? ['kind status wants a status'] : []
    return [...problemsIn({ kind: null, ...fault }, FAULT_CHECKS), ...missing]
  })
  return problems.length === 0 ? undefined : `(${problems.join('; ')})`
}

function isStatus(value: unknown): string | undefined {
  return Number.isInteger(value) && Number(value) >= 200 && Number(value) <= 599
    ? undefined
    : 'wants a status, 200 to 599'
}

function isDuration(value: unknown): string | undefined {
  return isNumber(value) ? undefined : 'wants milliseconds, 0 or more'
}

function isWhole(value: unknown): string | undefined {
  return isNumber(value) && Number.isInteger(value) ? undefined : 'wants a whole number, 0 or more'
}

function isNumber(value: unknown): value is number {
  return typeof value === 'number' && Number.isFinite(value) && value >= 0
}

function isText(value: unknown): value is string {
  return typeof value === 'string' && value !== ''
}

function isTexts(value: unknown): value is string[] {
  return Array.isArray(value) && value.every(isText)
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
