/** The rules of admission that are in use: made from a configuration, and replaced in one step by a reload. */

import { randomBytes } from 'node:crypto'
import type { LookupFunction } from 'node:net'
import { type Caller, Callers, type VerifyJwt } from '../callers/callers.ts'
import { KeySets, type KeySetsObserver } from '../callers/key-sets.ts'
import type { Config } from '../config/schema.ts'
import type { AdmissionRules } from '../gateway/admission.ts'
import { admissionRules } from '../gateway/admission-rules.ts'
import { tokenPathTest } from '../gateway/token-paths.ts'
import { HOSTS_ON_SOCKET } from '../http1/host.ts'
import type { PartWarnings, Status } from '../part.ts'
import { closedPath } from '../token/token-request.ts'
import { keySetDownload } from './pools.ts'
import type { Part } from './reload.ts'

export class LiveRules implements Part {
  current: AdmissionRules
  /** The same for connections on unix sockets. */
  onSocket: AdmissionRules
  readonly #keySets: KeySets
  readonly #own: Pick<AdmissionRules, 'isTokenEndpoint' | 'instance'>
  /** Tells who is a caller no more, or has to show another identity, since the last configuration was taken over. */
  isLost: (caller: Caller | undefined) => boolean = () => false

  constructor(config: Config, events: Omit<KeySetsObserver, 'keySetChanged'>, lookup?: LookupFunction) {
    this.#keySets = new KeySets(
      { ...events, keySetChanged: () => this.current.callers?.forgetTokens() },
      keySetDownload(lookup),
    )
    const { baseUrl, tokens } = config
    this.#own = {
      isTokenEndpoint: tokenPathTest(closedPath({ baseUrl, endpoint: tokens.endpoint })),
      instance: randomBytes(9).toString('base64url'),
    }
    this.current = this.#rulesOf(config)
    this.onSocket = { ...this.current, hosts: HOSTS_ON_SOCKET }
  }

  warnings(): PartWarnings {
    return this.#keySets.warnings()
  }

  status(): Partial<Status> {
    const callers = this.current.callers?.all ?? []
    return { callers: callers.map(({ name, usage }) => ({ name, requestsInFlight: usage.inFlight })) }
  }

  /** Later requests are admitted under the rules of `config`. */
  use(config: Config): void {
    const before = this.current
    this.current = this.#rulesOf(config, before.callers)
    this.onSocket = { ...this.current, hosts: HOSTS_ON_SOCKET }
    const { callers } = this.current
    const key = config.listen.callerKeyFile?.content
    const isNewKey = key !== undefined && before.isCallerKey?.(key.reveal()) !== true
    this.isLost = (caller) =>
      caller === undefined ? isNewKey || callers !== undefined : callers?.stillKnow(caller) !== true
  }

  close(): void {
    this.#keySets.close()
  }

  #rulesOf(config: Config, former?: Callers): AdmissionRules {
    const { callers } = config
    this.#keySets.use(callers)
    const verify: VerifyJwt = (token, credential) => this.#keySets.verify(token, credential)
    const all = callers.length === 0 ? undefined : new Callers(callers, verify, former)
    return admissionRules(config, { ...this.#own, callers: all })
  }
}
