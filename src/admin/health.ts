/** Health as text, in the form that Kubernetes uses for its own. Pure. */

export interface ReadinessCheck {
  readonly name: string
  readonly isOk: boolean
  /** Why it is as it is. Names no Org: probes answer to everybody. */
  readonly detail?: string | undefined
}

export interface HealthReport {
  readonly isOk: boolean
  readonly text: string
}

export function reportHealth(checks: readonly ReadinessCheck[], isVerbose: boolean): HealthReport {
  const failing = checks.filter(({ isOk }) => !isOk)
  const isOk = failing.length === 0
  const verdict = isOk ? 'ok' : `not ready: ${failing.map(({ name }) => name).join(', ')}`
  const lines = isVerbose ? [...checks.map(line), verdict] : [verdict]
  return { isOk, text: `${lines.join('\n')}\n` }
}

function line({ name, isOk, detail }: ReadinessCheck): string {
  const verdict = `${isOk ? '[+]' : '[-]'}${name} ${isOk ? 'ok' : 'failed'}`
  return detail === undefined ? verdict : `${verdict}: ${detail}`
}
