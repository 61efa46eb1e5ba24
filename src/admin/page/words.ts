/** Numbers, times and states in words, for the status page and for `org-access-proxy status`. */

import type { StatusDocument } from '../status.ts'

export type ErrorReport = StatusDocument['errors'][number]
export type Org = StatusDocument['orgs'][number]

/** Two digits at least, and no more below ten. */
export function number(value: number): string {
  return value >= 10
    ? Math.round(value).toLocaleString('en')
    : value.toLocaleString('en', { maximumSignificantDigits: 2 })
}

/** `1 mint`, `2 mints`. */
export function counted(value: number, noun: string): string {
  return `${number(value)} ${noun}${value === 1 ? '' : 's'}`
}

export function rate(perSecond: number): string {
  return `${number(perSecond)}/s`
}

export function milliseconds(ms: number): string {
  return ms < 1000 ? `${number(ms)} ms` : `${number(ms / 1000)} s`
}

/** In the two largest units. */
export function duration(ms: number): string {
  const seconds = Math.max(0, Math.floor(ms / 1000))
  const [minutes, hours, days] = [Math.floor(seconds / 60), Math.floor(seconds / 3_600), Math.floor(seconds / 86_400)]
  const both = (first: string, amount: number, unit: string) => (amount === 0 ? first : `${first} ${amount} ${unit}`)
  if (days > 0) return both(`${days} d`, hours % 24, 'h')
  if (hours > 0) return both(`${hours} h`, minutes % 60, 'min')
  return minutes > 0 ? both(`${minutes} min`, seconds % 60, 's') : `${seconds} s`
}

export function ago(ms: number): string {
  return ms < 1000 ? 'just now' : `${duration(ms)} ago`
}

/** In UTC, as in the log. */
export function utc(instant: string): string {
  return `${instant.slice(0, 19).replace('T', ' ')} UTC`
}

export function lastingText({ since, until }: StatusDocument['warnings'][number]): string {
  const lasted = `since ${utc(since)} (${duration(Date.now() - Date.parse(since))})`
  if (until === undefined) return lasted
  return `${lasted}, until ${utc(until)} (${duration(Date.parse(until) - Date.now())} left)`
}

export function exampleText(example: ErrorReport['examples'][number]): string {
  const { method, path, orgId, requestId, reason, agoMs } = example
  const org = orgId === undefined ? '' : ` for ${orgId}`
  return `${reason === undefined ? '' : `${reason}: `}${method} ${path}${org}, ${ago(agoMs)}, request ${requestId}`
}

export function ageText({ ageMs, lifetimeMs }: Org): string {
  const lifetime = lifetimeMs === undefined ? '' : ` of about ${duration(lifetimeMs)}`
  return ageMs === undefined ? '' : duration(ageMs) + lifetime
}

export function refusalText({ lastRefusal }: Org): string {
  if (lastRefusal === undefined) return ''
  const { tokenEndpointStatus: status } = lastRefusal
  return status === undefined ? ' refused' : ` refused with ${status}`
}
