/** The rules of admission that are in use: made from a configuration, and replaced in one step by a reload. */

import { createHash, randomBytes, timingSafeEqual } from 'node:crypto'
import type { LookupFunction } from 'node:net'
import { type Caller, type CallerRule, Callers, type JwtCredential, type VerifyJwt } from '../callers/callers.ts'
import { KeySets, type KeySetsObserver } from '../callers/key-sets.ts'
import type { Config } from '../config/schema.ts'
import type { AdmissionRules } from '../gateway/admission.ts'
import { tokenPathTest } from '../gateway/token-paths.ts'
import { HOSTS_ON_SOCKET, HostList, LOOPBACK_NAMES } from '../http1/host.ts'
import { targetPrefix } from '../http1/target.ts'
import type { ListenAddress } from '../listener/bind.ts'
import type { Secret } from '../secret.ts'
import { closedPath } from '../token/token-request.ts'
import { keySetDownload } from './origin.ts'
import type { Part } from './part.ts'

export class LiveRules implements Part {
  current: AdmissionRules
  /** The same for connections on unix sockets. */
  onSocket: AdmissionRules
  readonly #keySets: KeySets
  readonly #isTokenEndpoint: AdmissionRules['isTokenEndpoint']
  readonly #instance = randomBytes(9).toString('base64url')
  /** Tells who is a caller no more, or has to show another identity, since the last configuration was taken over. */
  isLost: (caller: Caller | undefined) => boolean = () => false

  constructor(config: Config, events: Omit<KeySetsObserver, 'keySetChanged'>, lookup?: LookupFunction) {
    this.#keySets = new KeySets(
      { ...events, keySetChanged: () => this.current.callers?.forgetTokens() },
      keySetDownload(lookup),
    )
    this.#isTokenEndpoint = tokenPathTest(closedPath({ baseUrl: config.baseUrl, endpoint: config.tokens.endpoint }))
    this.current = this.#rulesOf(config)
    this.onSocket = { ...this.current, hosts: HOSTS_ON_SOCKET }
  }

  /** The callers that are configured now. */
  get callers(): Callers['all'] {
    return this.current.callers?.all ?? []
  }

  /** The key sets of callers that cannot be fetched now. */
  get failingKeySets(): KeySets['failing'] {
    return this.#keySets.failing
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
    const { listen, origin, orgs, routes, baseUrl } = config
    const callers = config.callers.map(callerRule)
    this.#keySets.use(callers)
    const verify: VerifyJwt = (token, credential) => this.#keySets.verify(token, credential)
    return {
      hosts: new HostList([...LOOPBACK_NAMES, ...hostOf(listen.address), ...listen.hosts]),
      refuseForwarded: listen.refuseForwarded,
      isCallerKey: listen.callerKeyFile && callerKeyCheck(listen.callerKeyFile.content),
      callers: callers.length === 0 ? undefined : new Callers(callers, verify, former),
      orgPattern: orgs.pattern,
      allowedOrgs: new Set(orgs.allow),
      allowedRoutes: routes.allow,
      sendCookies: origin.sendCookies,
      isTokenEndpoint: this.#isTokenEndpoint,
      allowTokenEndpoint: routes.allowTokenEndpoint,
      appRoutes: config.appRoutes,
      targetPrefix: targetPrefix(baseUrl),
      instance: this.#instance,
      serviceHost: baseUrl.host,
    }
  }
}

function callerRule({ keyFiles, jwt, minterSocket, ...rule }: Config['callers'][number]): CallerRule {
  return {
    socket: minterSocket,
    ...rule,
    keys: keyFiles?.map(({ content }) => content),
    jwt: jwt && jwtCredential(jwt),
  }
}

function jwtCredential({ jwks, jwksCaFile, jwksTokenFile, ...claims }: JwtSettings): JwtCredential {
  if (typeof jwks !== 'string') return { ...claims, keySet: { path: jwks.path, keySet: jwks.content } }
  return { ...claims, keySet: { url: jwks, caCertificates: jwksCaFile?.content, tokenFile: jwksTokenFile } }
}

type JwtSettings = NonNullable<Config['callers'][number]['jwt']>

/** Names accepted in `Host` by the admin listener. */
export function adminHosts({ admin, listen }: Config): HostList {
  if (admin.address !== 'off' && admin.address.kind === 'unix') return HOSTS_ON_SOCKET
  return new HostList([...LOOPBACK_NAMES, ...hostOf(admin.address), ...listen.hosts])
}

/** The host as clients write it. */
function hostOf(address: ListenAddress | 'off'): string[] {
  if (address === 'off' || address.kind === 'unix') return []
  return [address.host.includes(':') ? `[${address.host}]` : address.host]
}

/** Compares in constant time. Digests have one length, so the time says nothing about the length of the key either. */
function callerKeyCheck(key: Secret): (value: string) => boolean {
  const digest = (text: string) => createHash('sha256').update(text, 'latin1').digest()
  const expected = digest(key.reveal())
  return (value) => timingSafeEqual(digest(value), expected)
}
