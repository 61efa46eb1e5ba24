/** The rules of admission that are in use: made from a configuration, and replaced in one step by a reload. */

import { createHash, randomBytes, timingSafeEqual } from 'node:crypto'
import { type Caller, Callers, CallerUsage } from '../callers/callers.ts'
import { KeySets, type KeySetsObserver } from '../callers/key-sets.ts'
import type { Config } from '../config/schema.ts'
import { HostList, LOOPBACK_NAMES } from '../http/host.ts'
import { targetPrefix } from '../http/target.ts'
import type { AdmissionRules } from '../listener/admission.ts'
import type { ListenAddress } from '../listener/bind.ts'
import type { Secret } from '../secret.ts'

export type RulesObserver = Omit<KeySetsObserver, 'keySetChanged'>

export class LiveRules {
  readonly #keySets: KeySets
  readonly #instance = randomBytes(9).toString('base64url')
  readonly #usages = new Map<string, CallerUsage>()
  #current: AdmissionRules
  #adminHosts: HostList

  constructor(config: Config, observer: RulesObserver) {
    this.#keySets = new KeySets({
      keySetUnavailable: (url, text, isFormerInUse) => observer.keySetUnavailable(url, text, isFormerInUse),
      keySetRecovered: (url) => observer.keySetRecovered(url),
      keySetChanged: () => this.#current.callers?.forgetTokens(),
    })
    this.#current = this.#rulesOf(config)
    this.#adminHosts = adminHostsOf(config)
    this.#keySets.use(config.callers)
  }

  /** Names accepted in `Host` by the admin listener. */
  get adminHosts(): HostList {
    return this.#adminHosts
  }

  get current(): AdmissionRules {
    return this.#current
  }

  /** The callers that are configured now. */
  get callers(): readonly Caller[] {
    return this.#current.callers?.all ?? []
  }

  /** Later requests are admitted under the rules of `config`. */
  use(config: Config): void {
    const rules = this.#rulesOf(config)
    this.#keySets.use(config.callers)
    this.#current = rules
    this.#adminHosts = adminHostsOf(config)
  }

  close(): void {
    this.#keySets.close()
  }

  #rulesOf(config: Config): AdmissionRules {
    const { listen, orgs, routes, baseUrl } = config
    return {
      hosts: new HostList([...LOOPBACK_NAMES, ...hostOf(listen.address), ...listen.hosts]),
      refusesForwarded: listen.refuseForwarded,
      isCallerKey: listen.callerKey === undefined ? undefined : callerKeyCheck(listen.callerKey),
      callers: this.#callersOf(config),
      orgPattern: orgs.pattern,
      allowedOrgs: new Set(orgs.allow),
      allowedRoutes: routes.allow,
      allowsTokenEndpoint: routes.allowTokenEndpoint,
      appRoutes: config.appRoutes,
      targetPrefix: targetPrefix(baseUrl),
      instance: this.#instance,
      originHost: baseUrl.host,
    }
  }

  #callersOf({ callers }: Config): Callers | undefined {
    if (callers.length === 0) return undefined
    return new Callers(callers, {
      verify: (token, credential) => this.#keySets.verify(token, credential),
      usageOf: (name) => this.#usageOf(name),
    })
  }

  /** A caller keeps its count over a reload, because its requests in flight still count. */
  #usageOf(name: string): CallerUsage {
    let usage = this.#usages.get(name)
    if (usage === undefined) {
      usage = new CallerUsage()
      this.#usages.set(name, usage)
    }
    return usage
  }
}

function adminHostsOf({ admin, listen }: Config): HostList {
  const own = admin.address === 'off' ? [] : hostOf(admin.address)
  return new HostList([...LOOPBACK_NAMES, ...own, ...listen.hosts])
}

/** The host as clients write it. */
function hostOf(address: ListenAddress): string[] {
  if (address.kind === 'unix') return []
  return [address.host.includes(':') ? `[${address.host}]` : address.host]
}

/** The paths of the sockets that callers have to themselves. */
export function callerSockets({ callers }: Config): string[] {
  return callers.flatMap(({ credential }) => (credential.kind === 'socket' ? [credential.path] : []))
}

/** Compares in constant time. Digests have one length, so the time says nothing about the length of the key either. */
function callerKeyCheck(key: Secret): (value: string) => boolean {
  const digest = (text: string) => createHash('sha256').update(text, 'latin1').digest()
  const expected = digest(key.reveal())
  return (value) => timingSafeEqual(digest(value), expected)
}
