/**
 * The callers of one configuration, ready to be asked by admission: who sent a request, and what may it do? Immutable: a
 * reload makes another one. Keys and tokens are looked up by a salted digest, so the time that this takes tells nothing about
 * them. A JWT that was verified once is remembered until it expires; only an unknown one is verified asynchronously, before
 * the request is admitted.
 */

import { hash, randomBytes } from 'node:crypto'
import { LRUCache } from 'lru-cache'
import * as clock from '../clock.ts'
import type { Secret } from '../secret.ts'
import {
  type ExpectedClaims,
  type KeySet,
  looksLikeJwt,
  readClaims,
  type TokenProblem,
  type Verification,
} from './jwt.ts'

/** One caller of the configuration: its rights, and one kind of credential. */
export interface CallerRule {
  readonly name: string
  /** Path of a unix socket, of the listener for apps or of the minter. Every process that may open it counts as the caller. */
  readonly socket?: string | undefined
  readonly minterSocket?: string | undefined
  /** Any of these, in `X-Proxy-Key`. */
  readonly keyFiles?: readonly { readonly content: Secret }[] | undefined
  /** A JWT with these claims, in `X-Proxy-Key`. */
  readonly jwt?: JwtCredential | undefined
  /** A name in a client certificate, as `certificateNames` writes it. */
  readonly certificate?: string | undefined
  /** Empty: none. */
  readonly orgs: readonly OrgRule[]
  /** Empty: all routes that the listener forwards, except those of the App. */
  readonly routes: readonly RoutePattern[]
  /** It may ask a minter for tokens. */
  readonly tokens?: boolean | undefined
  /** Most requests of this caller at once; undefined: only the listener's limit applies. */
  readonly maxInFlight?: number | undefined
}

export interface JwtCredential extends ExpectedClaims {
  /** The key set of the issuer: that of a file, or its URL. */
  readonly jwks: { readonly path: string; readonly content: KeySet } | string
  /** Further CA certificates in PEM, for the host of the URL. */
  readonly jwksCaFile?: { readonly content: string } | undefined
  /** File with a bearer token for the request, read again for each. */
  readonly jwksTokenFile?: string | undefined
}

/** `"METHOD /path"` of the configuration, taken apart. */
export interface RoutePattern {
  /** `*` stands for any method. */
  readonly method: string
  /** Without the trailing `*` where `isPrefix`. */
  readonly path: string
  readonly isPrefix: boolean
}

/** An org id, or with `isPrefix` the beginning of one. */
export interface OrgRule {
  readonly id: string
  readonly isPrefix: boolean
}

/** A caller as one of its credentials names it. */
export class Caller {
  readonly name: string
  /** Tells its credentials apart, also across reloads. Says nothing about a key. */
  readonly credential: string
  /** Survives reloads, unlike the rules. */
  readonly usage: { inFlight: number }
  /** It may ask a minter for tokens. */
  readonly mayHaveTokens: boolean
  readonly #maxInFlight: number
  readonly #orgs: ReadonlySet<string>
  readonly #orgPrefixes: readonly string[]
  readonly #routes: readonly RoutePattern[]

  constructor(
    { name, orgs, routes, tokens = false, maxInFlight }: CallerRule,
    credential: string,
    usage: Caller['usage'],
  ) {
    this.name = name
    this.credential = credential
    this.usage = usage
    this.mayHaveTokens = tokens
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

  get hasRoutes(): boolean {
    return this.#routes.length > 0
  }

  /** A route of the App carries the App's own credentials, so a caller has to name it. */
  mayUseRoute(method: string, path: string, isAppRoute: boolean): boolean {
    return this.#routes.length === 0 ? !isAppRoute : matchesRoute(this.#routes, method, path)
  }
}

/** The facts about a connection that can be a credential. */
export interface Peer {
  /** Path of the caller's own socket that the connection came through; undefined for the common address. */
  readonly callerSocket: string | undefined
  /** Of the verified client certificate, as `certificateNames` writes them. Empty or absent without one. */
  readonly certificateNames?: readonly string[] | undefined
}

/** Why a request has no caller. For the log and the metrics, never for the answer. */
export type CallerRefusal =
  | 'no credential'
  | 'several credentials'
  | 'unknown socket'
  | 'unknown key'
  | 'unknown certificate'
  | 'certificate of several callers'
  | 'no_tokens'
  | TokenProblem

/** Enough for every pod of a large cluster. */
const MAX_REMEMBERED = 10_000

function identityOf({ name, credential }: Caller): string {
  return JSON.stringify([name, credential])
}

function newMemory() {
  return new LRUCache<string, { readonly caller: Caller; readonly expiresAtMs: number }>({ max: MAX_REMEMBERED })
}

/** Verifies a JWT with the keys of its issuer. */
export type VerifyJwt = (token: string, credential: JwtCredential) => Promise<Verification>

export class Callers {
  /** Each once, whatever its credentials. */
  readonly all: readonly Pick<Caller, 'name' | 'usage'>[]
  readonly #verify: VerifyJwt
  /** Random, so that nobody can choose a value for its digest. Survives reloads, so that credentials can be compared. */
  readonly #salt: string
  readonly #bySocket = new Map<string, Caller>()
  readonly #byCertificate = new Map<string, Caller>()
  readonly #byKey = new Map<string, Caller>()
  readonly #identities = new Set<string>()
  readonly #byToken: { readonly caller: Caller; readonly credential: JwtCredential }[] = []
  #remembered = newMemory()

  /** `former` are those before a reload: a caller keeps its count, because its requests in flight still count. */
  constructor(rules: readonly CallerRule[], verify: VerifyJwt, former?: Callers) {
    this.#verify = verify
    this.#salt = former === undefined ? randomBytes(32).toString('base64') : former.#salt
    const usageOf = (name: string) => former?.all.find((caller) => caller.name === name)?.usage
    this.all = rules.map((rule) => this.#add(rule, usageOf(rule.name) ?? { inFlight: 0 }))
  }

  #add(rule: CallerRule, usage: Caller['usage']) {
    const { name, minterSocket, socket = minterSocket, keyFiles = [], jwt, certificate } = rule
    const callerBy = (credential: string) => {
      const caller = new Caller(rule, credential, usage)
      this.#identities.add(identityOf(caller))
      return caller
    }
    if (socket !== undefined) this.#bySocket.set(socket, callerBy(socket))
    if (certificate !== undefined) this.#byCertificate.set(certificate, callerBy(certificate))
    if (jwt !== undefined) {
      const { issuer, audience, subject } = jwt
      this.#byToken.push({ caller: callerBy(JSON.stringify([issuer, audience, subject])), credential: jwt })
    }
    for (const { content } of keyFiles) {
      const digest = this.#digest(content.reveal())
      this.#byKey.set(digest, callerBy(digest))
    }
    return { name, usage }
  }

  /** Returns true if the credential that a caller had before a reload still names it. */
  stillKnow(caller: Caller): boolean {
    return this.#identities.has(identityOf(caller))
  }

  /**
   * Returns the caller that sent a request, or why there is none. `unverified`: it has a JWT that `verify` must check first.
   * `keys` is the number of `X-Proxy-Key` fields, and `key` the value of the last.
   */
  identify(peer: Peer, keys: number, key: string): Caller | 'unverified' | CallerRefusal {
    if (keys > 1) return 'several credentials'
    const connected = this.#identifyPeer(peer)
    // A second credential could belong to another caller, so the request is refused.
    if (connected !== undefined) return keys === 0 ? connected : 'several credentials'
    if (keys === 0) return (peer.certificateNames ?? []).length > 0 ? 'unknown certificate' : 'no credential'
    const digest = this.#digest(key)
    const remembered = this.#remembered.get(digest)
    if (remembered !== undefined && remembered.expiresAtMs > clock.day()) return remembered.caller
    const owner = this.#byKey.get(digest)
    if (owner !== undefined) return owner
    return this.#byToken.length > 0 && looksLikeJwt(key) ? 'unverified' : 'unknown key'
  }

  /** Undefined if the connection says nothing: a certificate may be another's business, such as that of a mesh. */
  #identifyPeer({ callerSocket, certificateNames = [] }: Peer): Caller | CallerRefusal | undefined {
    if (callerSocket !== undefined) return this.#bySocket.get(callerSocket) ?? 'unknown socket'
    const [found, ...others] = new Set(certificateNames.flatMap((name) => this.#byCertificate.get(name) ?? []))
    return others.length > 0 ? 'certificate of several callers' : found
  }

  /** Verifies a token that `identify` called unverified. */
  async verify(token: string): Promise<Caller | CallerRefusal> {
    const claims = await readClaims(token)
    if (claims === undefined) return 'malformed token'
    const ofIssuer = this.#byToken.filter(({ credential }) => credential.issuer === claims.issuer)
    const ofSubject = ofIssuer.filter(({ credential }) => credential.subject === claims.subject)
    const [found, ...others] = ofSubject.filter(({ credential }) => claims.audiences.includes(credential.audience))
    if (ofIssuer.length === 0) return 'unknown issuer'
    if (ofSubject.length === 0) return 'unknown subject'
    if (found === undefined) return 'wrong audience'
    // A token with the audiences of two callers would be two credentials in one.
    if (others.length > 0) return 'token of several callers'
    const remembered = this.#remembered
    const expiresAtMs = await this.#verify(token, found.credential)
    if (typeof expiresAtMs === 'string') return expiresAtMs
    // The clocks may differ at the begin of a token's life. After its `exp`, it is good for nobody.
    if (expiresAtMs <= clock.day()) return 'expired'
    // A key may have been withdrawn meanwhile. This request counts as verified; the next one is verified again.
    remembered.set(this.#digest(token), { caller: found.caller, expiresAtMs })
    return found.caller
  }

  /** Call it when a key set has changed: every token is then verified again. */
  forgetTokens(): void {
    this.#remembered = newMemory()
  }

  #digest(text: string): string {
    return hash('sha256', this.#salt + text, 'base64')
  }
}

/** HEAD is GET without the content (RFC 9110 §9.3.2), so a pattern for GET matches it. */
export function matchesRoute(patterns: readonly RoutePattern[], method: string, path: string): boolean {
  return patterns.some(
    (pattern) =>
      (pattern.method === '*' || pattern.method === method || (pattern.method === 'GET' && method === 'HEAD')) &&
      matchesPath(pattern, path),
  )
}

export function matchesPath({ path: pattern, isPrefix }: RoutePattern, path: string): boolean {
  return isPrefix ? path.startsWith(pattern) : path === pattern
}
