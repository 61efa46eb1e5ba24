/**
 * The callers of one configuration, ready to be asked by admission: who sent a request, and what may it do? Immutable: a
 * reload makes another one. A key is looked up by a fingerprint that depends on random numbers, and then compared in constant
 * time, so the time that this takes tells nothing about the keys. A JWT that was verified once is remembered until it expires;
 * only an unknown one is verified asynchronously, before the request is admitted.
 */

import { randomInt, timingSafeEqual } from 'node:crypto'
import { LRUCache } from 'lru-cache'
import { matchesRoute, type RoutePattern } from '../http/target.ts'
import { Secret } from '../secret.ts'
import { type ExpectedClaims, type KeySet, looksLikeJwt, readToken, type Verification } from './jwt.ts'

/** One caller of the configuration: its credential and its rights. */
export interface CallerRule {
  /** In the log, the metrics and on the status page. */
  readonly name: string
  readonly credential: SocketCredential | KeyCredential | JwtCredential
  /** Empty: none. */
  readonly orgs: readonly OrgRule[]
  /** Empty: all routes that the listener forwards. */
  readonly routes: readonly RoutePattern[]
  /** Most requests of this caller at once; undefined: only the listener's limit applies. */
  readonly maxInFlight: number | undefined
}

/** Every process that may open the socket counts as the caller. */
interface SocketCredential {
  readonly kind: 'socket'
  readonly path: string
}

/** Any of these keys, in `X-Proxy-Key`. */
interface KeyCredential {
  readonly kind: 'key'
  readonly keys: readonly Secret[]
}

/** A JWT with these claims, in `X-Proxy-Key`. */
export interface JwtCredential extends ExpectedClaims {
  readonly kind: 'jwt'
  readonly keySet: KeySetSource
}

export type KeySetSource =
  | { readonly kind: 'file'; readonly path: string; readonly keySet: KeySet }
  | {
      readonly kind: 'url'
      readonly url: string
      /** Further CA certificates in PEM, for the host of the URL. */
      readonly caCertificates: string | undefined
      /** File with a bearer token for the request, read again for each. */
      readonly tokenFile: string | undefined
    }

/** An org id, or with `isPrefix` the beginning of one. */
export interface OrgRule {
  readonly id: string
  readonly isPrefix: boolean
}

/** Counts the requests of a caller. Survives reloads, unlike the rules. */
export class CallerUsage {
  inFlight = 0
}

/** One caller: its name and its rules. */
export class Caller {
  readonly name: string
  readonly usage: CallerUsage
  readonly #maxInFlight: number
  readonly #orgs: ReadonlySet<string>
  readonly #orgPrefixes: readonly string[]
  readonly #routes: readonly RoutePattern[]

  constructor({ name, orgs, routes, maxInFlight }: CallerRule, usage: CallerUsage) {
    this.name = name
    this.usage = usage
    this.#maxInFlight = maxInFlight ?? Number.POSITIVE_INFINITY
    this.#orgs = new Set(orgs.filter(({ isPrefix }) => !isPrefix).map(({ id }) => id))
    this.#orgPrefixes = orgs.filter(({ isPrefix }) => isPrefix).map(({ id }) => id)
    this.#routes = routes
  }

  get hasRoom(): boolean {
    return this.usage.inFlight < this.#maxInFlight
  }

  mayNameOrg(org: string): boolean {
    return this.#orgs.has(org) || this.#orgPrefixes.some((prefix) => org.startsWith(prefix))
  }

  mayUseRoute(method: string, path: string): boolean {
    return this.#routes.length === 0 || matchesRoute(this.#routes, method, path)
  }
}

export interface CallersOptions {
  /** Verifies a token with the key set that the credential names. */
  readonly verify: (token: string, credential: JwtCredential) => Promise<Verification>
  /** The counter of the caller with this name. */
  readonly usageOf?: (name: string) => CallerUsage
  /** Wall clock in milliseconds: the expiry of a token is an instant of that clock. */
  readonly now?: () => number
}

/** Enough for every pod of a large cluster. */
const MAX_REMEMBERED = 10_000

/** The fingerprint of a JWT is made of this many last characters of its signature. */
const TAIL_LENGTH = 43

interface Remembered {
  /** The whole token: another one could have the same fingerprint, or even the same signature, and not be valid. */
  readonly token: Secret
  readonly caller: Caller
  readonly expiresAtMs: number
}

export class Callers {
  readonly all: readonly Caller[]
  readonly #options: CallersOptions
  readonly #now: () => number
  /** Random, so that nobody can choose a value for its fingerprint. The factor is odd, so that no multiplication loses a bit. */
  readonly #seed = randomInt(2 ** 32) | 0
  readonly #factor = randomInt(2 ** 32) | 1
  readonly #bySocket = new Map<string, Caller>()
  readonly #byKey = new Map<number, { readonly key: Secret; readonly caller: Caller }[]>()
  readonly #byToken: { readonly caller: Caller; readonly credential: JwtCredential }[] = []
  readonly #remembered = new LRUCache<number, Remembered>({ max: MAX_REMEMBERED })
  readonly #verifying = new Map<string, Promise<Caller | undefined>>()
  /** Grows with each change of a key set. */
  #generation = 0

  constructor(rules: readonly CallerRule[], options: CallersOptions) {
    this.#options = options
    this.#now = options.now ?? Date.now
    this.all = rules.map((rule) => this.#add(rule, options.usageOf?.(rule.name) ?? new CallerUsage()))
  }

  #add(rule: CallerRule, usage: CallerUsage): Caller {
    const caller = new Caller(rule, usage)
    switch (rule.credential.kind) {
      case 'socket':
        this.#bySocket.set(rule.credential.path, caller)
        break
      case 'key':
        for (const key of rule.credential.keys) {
          const fingerprint = this.#fingerprint(key.reveal())
          this.#byKey.set(fingerprint, [...(this.#byKey.get(fingerprint) ?? []), { key, caller }])
        }
        break
      case 'jwt':
        this.#byToken.push({ caller, credential: rule.credential })
    }
    return caller
  }

  /**
   * Returns the caller that sent a request. Undefined: no caller sent it. `unverified`: it has a JWT that `verify` must
   * check first. `socket` is the path of the caller's socket that the connection came through; undefined for the common
   * listener. `keys` is the number of `X-Proxy-Key` fields, and `key` the value of the last.
   */
  identify(socket: string | undefined, keys: number, key: string): Caller | 'unverified' | undefined {
    // A second credential beside the socket could belong to another caller, so the request is refused.
    if (socket !== undefined) return keys === 0 ? this.#bySocket.get(socket) : undefined
    if (keys !== 1) return undefined
    if (this.#byToken.length === 0) return this.#callerWithKey(key)
    const remembered = this.#remembered.get(this.#fingerprintOfToken(key))
    // A client that reaches this comparison knows the end of the signature, so the time that it takes reveals nothing.
    if (remembered?.token.reveal() === key && remembered.expiresAtMs > this.#now()) return remembered.caller
    return this.#callerWithKey(key) ?? (looksLikeJwt(key) ? 'unverified' : undefined)
  }

  /** Verifies a token that `identify` called unverified. Requests with the same token share one verification. */
  verify(token: string): Promise<Caller | undefined> {
    let verifying = this.#verifying.get(token)
    if (verifying === undefined) {
      verifying = this.#verifyOnce(token).finally(() => this.#verifying.delete(token))
      this.#verifying.set(token, verifying)
    }
    return verifying
  }

  async #verifyOnce(token: string): Promise<Caller | undefined> {
    const claims = readToken(token)
    if (claims === undefined) return undefined
    const { issuer, audiences, subject } = claims
    const meant = this.#byToken.filter(
      ({ credential }) =>
        credential.issuer === issuer && credential.subject === subject && audiences.includes(credential.audience),
    )
    const [found] = meant
    // A token with the audiences of two callers would be two credentials in one.
    if (found === undefined || meant.length > 1) return undefined
    const generation = this.#generation
    const verification = await this.#options.verify(token, found.credential)
    if (verification.outcome !== 'valid' || verification.expiresAtMs <= this.#now()) return undefined
    // A key may have been withdrawn meanwhile. This request counts as verified; the next one is verified again.
    const { expiresAtMs } = verification
    if (generation === this.#generation) {
      const remembered = { token: new Secret(token), caller: found.caller, expiresAtMs }
      this.#remembered.set(this.#fingerprintOfToken(token), remembered)
    }
    return found.caller
  }

  /** Call it when a key set has changed: every token is then verified again. */
  forgetTokens(): void {
    this.#generation++
    this.#remembered.clear()
  }

  #callerWithKey(given: string): Caller | undefined {
    const candidates = this.#byKey.get(this.#fingerprint(given))
    if (candidates === undefined) return undefined
    for (const { key, caller } of candidates) if (isEqualInConstantTime(key.reveal(), given)) return caller
    return undefined
  }

  #fingerprintOfToken(token: string): number {
    return this.#fingerprint(token, Math.max(0, token.length - TAIL_LENGTH))
  }

  /** Its time depends only on the length. A cryptographic hash is not needed, because a comparison of the full text follows. */
  #fingerprint(text: string, from = 0): number {
    let sum = this.#seed
    for (let at = from; at < text.length; at++) sum = Math.imul(sum ^ text.charCodeAt(at), this.#factor)
    return sum
  }
}

/** Keys of the same length take the same time, however much of them is equal. */
function isEqualInConstantTime(one: string, other: string): boolean {
  return one.length === other.length && timingSafeEqual(Buffer.from(one, 'latin1'), Buffer.from(other, 'latin1'))
}
