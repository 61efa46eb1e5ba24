/** Callers with their real key sets, without a proxy. */

import { type Caller, type CallerRule, Callers, CallerUsage } from '../../src/callers/callers.ts'
import { KeySets } from '../../src/callers/key-sets.ts'
import { Secret } from '../../src/secret.ts'

export const NO_OBSERVER = { keySetUnavailable() {}, keySetRecovered() {}, keySetChanged() {} }

export function rule(name: string, credential: CallerRule['credential'], more: Partial<CallerRule> = {}): CallerRule {
  return { name, credential, orgs: [{ id: '', isPrefix: true }], routes: [], maxInFlight: undefined, ...more }
}

export function byKey(...keys: string[]): CallerRule['credential'] {
  return { kind: 'key', keys: keys.map((key) => new Secret(key)) }
}

export function makeCallers(rules: readonly CallerRule[], now: () => number = Date.now): Callers {
  const keySets = new KeySets(NO_OBSERVER)
  keySets.use(rules)
  return new Callers(rules, {
    verify: (token, credential) => keySets.verify(token, credential),
    usageOf: () => new CallerUsage(),
    now,
  })
}

/** The caller of a credential on the common listener, verified if necessary. */
export async function callerOf(callers: Callers, credential: string): Promise<Caller | undefined> {
  const found = callers.identify(undefined, 1, credential)
  return found === 'unverified' ? callers.verify(credential) : found
}
