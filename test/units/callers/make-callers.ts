/** Callers with their real key sets, without a proxy. */

import { keySetDownload } from '../../../src/app/pools.ts'
import { Caller, type CallerRefusal, type CallerRule, Callers } from '../../../src/callers/callers.ts'
import { KeySets } from '../../../src/callers/key-sets.ts'
import { Secret } from '../../../src/secret.ts'

export const NO_OBSERVER = { keySetUnavailable() {}, keySetRecovered() {}, keySetChanged() {} }

/** It may name all Orgs, unless `more` says otherwise. */
export function rule(name: string, ...more: Partial<CallerRule>[]): CallerRule {
  return Object.assign({ name, orgs: [{ id: '', isPrefix: true }], routes: [] }, ...more)
}

export function byKey(...keys: string[]): Partial<CallerRule> {
  return { keyFiles: keys.map((key) => ({ content: new Secret(key) })) }
}

export function makeCallers(rules: readonly CallerRule[]): Callers {
  const keySets = new KeySets(NO_OBSERVER, keySetDownload())
  keySets.use(rules)
  return new Callers(rules, (token, credential) => keySets.verify(token, credential))
}

/** What a credential on the common listener amounts to, verified if necessary. */
export async function outcomeOf(callers: Callers, credential: string): Promise<Caller | CallerRefusal> {
  const found = callers.identify(ANY, 1, credential)
  return found === 'unverified' ? callers.verify(credential) : found
}

export async function callerOf(callers: Callers, credential: string): Promise<Caller | undefined> {
  const found = await outcomeOf(callers, credential)
  return found instanceof Caller ? found : undefined
}

/** A connection to the common listener, without a certificate. */
export const ANY = { callerSocket: undefined }
