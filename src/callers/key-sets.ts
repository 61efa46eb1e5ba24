/** The key sets of all callers with a `jwt`. Callers with the same source share one set, and the set survives reloads. */

import type { SecureContext } from 'node:tls'
import * as clock from '../clock.ts'
import type { WholeResponse } from '../http1/response-parser.ts'
import { pathOf } from '../http1/target.ts'
import type { PartWarnings } from '../part.ts'
import { contextTrusting } from '../trusted-certificates.ts'
import { USER_AGENT } from '../version.ts'
import { FileUnreadable, readRegularFile } from '../watched-file.ts'
import type { CallerRule, JwtCredential } from './callers.ts'
import { type KeySet, KeySetInvalid, openVerifier, parseKeySet, type Verification, type Verifier } from './jwt.ts'

export interface KeySetsObserver {
  /** `text` is a predicate of the URL, and repeats nothing of the response. `isFormerInUse` is false if there was no good set before. */
  keySetUnavailable(url: string, text: string, isFormerInUse: boolean): void
  keySetRecovered(url: string): void
  /** Tokens that were verified with the former set have to be verified again. */
  keySetChanged(): void
}

export interface KeySetTiming {
  readonly refreshMs: number
  /** After a failure, and between two fetches for unknown keys: a flood of made-up key ids must not reach the server. */
  readonly minIntervalMs: number
  /** The same as long as there is no set at all, because its callers get nothing but errors. */
  readonly retryMs: number
  readonly timeoutMs: number
}

/** Sends a GET over a connection of its own, and reads at most 64 KiB of the answer to a success. Rejects with an `OriginError`. */
export type Download = (request: {
  readonly url: URL
  readonly fields: readonly string[]
  readonly secureContext: SecureContext | undefined
  readonly timeoutMs: number
  readonly signal: AbortSignal
}) => Promise<WholeResponse>

/** `retryMs` and `timeoutMs` together are less than ten seconds: so long may callers wait after the server is back. */
const TIMING: KeySetTiming = { refreshMs: 5 * 60_000, minIntervalMs: 10_000, retryMs: 3_000, timeoutMs: 5_000 }

interface UrlSource {
  readonly url: string
  readonly caCertificates: string | undefined
  readonly tokenFile: string | undefined
}

type KeySetSource = UrlSource | { readonly path: string; readonly keySet: KeySet }

function sourceOf({ jwks, jwksCaFile, jwksTokenFile }: JwtCredential): KeySetSource {
  if (typeof jwks !== 'string') return { path: jwks.path, keySet: jwks.content }
  return { url: jwks, caCertificates: jwksCaFile?.content, tokenFile: jwksTokenFile }
}

type Entry = Pick<RemoteKeySet, 'verifier'> & Partial<RemoteKeySet>

interface Surroundings {
  readonly observer: KeySetsObserver
  readonly download: Download
  readonly timing: KeySetTiming
}

export class KeySets {
  readonly #surroundings: Surroundings
  #entries = new Map<string, Entry>()

  constructor(observer: KeySetsObserver, download: Download, timing = TIMING) {
    this.#surroundings = { observer, download, timing }
  }

  /** Keeps the sets that `rules` name, opens new ones and closes the others. */
  use(rules: readonly CallerRule[]): void {
    const former = this.#entries
    this.#entries = new Map()
    for (const { jwt } of rules) {
      if (jwt === undefined) continue
      const source = sourceOf(jwt)
      const id = JSON.stringify(source)
      const entry = this.#entries.get(id) ?? former.get(id) ?? this.#open(source, former)
      this.#entries.set(id, entry)
    }
    for (const [id, entry] of former) if (!this.#entries.has(id)) entry.close?.()
  }

  #open(source: KeySetSource, former: ReadonlyMap<string, Entry>): Entry {
    if ('keySet' in source) {
      const verifier = openVerifier(source.keySet)
      verifier.catch(() => undefined) // `verify` rejects with it
      return { verifier }
    }
    // With other certificates or another token for the same URL, the last good set stays until the next is there.
    const before = [...former.values()].find((entry) => entry.source?.url === source.url)
    return new RemoteKeySet(source, before?.verifier, this.#surroundings)
  }

  async verify(token: string, credential: JwtCredential): Promise<Verification> {
    const entry = this.#entries.get(JSON.stringify(sourceOf(credential)))
    const verify = async () => (await entry?.verifier)?.(token, credential) ?? 'no key set'
    const first = await verify()
    const mayBeNew = first === 'no key set' || first === 'unknown key id'
    if (!mayBeNew || entry?.refresh === undefined) return first
    await entry.refresh()
    return verify()
  }

  warnings(): PartWarnings {
    const texts = [...this.#entries.values()].flatMap(({ source, problem, verifier }) => {
      if (source === undefined || problem === undefined) return []
      const effect =
        verifier !== undefined
          ? 'The last good one stays in use, and new keys are unknown'
          : 'Until it is here, callers whose JWTs need it get 503 caller_keys_unavailable'
      return `The key set of callers at ${pathOf(source.url)} ${problem}. ${effect}. Correct its server, jwks, jwksCaFile or jwksTokenFile.`
    })
    return { key_set_unavailable: texts.length === 0 ? undefined : texts.join(' ') }
  }

  close(): void {
    this.use([])
  }
}

const MAX_BYTES = 64 * 1024

/**
 * The key set of an issuer behind an https URL: fetched at start, every few minutes, and when a token names an unknown key.
 * The last good set stays in use while the server fails, which the remote key set of jose does not offer. Redirects are not
 * followed: the URL that was configured is the one that is trusted.
 */
class RemoteKeySet {
  readonly source: UrlSource
  /** Of the last good set. */
  verifier: Verifier | Promise<Verifier> | undefined
  readonly #secureContext: SecureContext | undefined
  readonly #surroundings: Surroundings
  readonly #closing = new AbortController()
  #timer: clock.Timer | undefined
  #fetching: Promise<void> | undefined
  #fetchedAt = Number.NEGATIVE_INFINITY
  #text: string | undefined
  /** Of the last fetch. */
  problem: string | undefined

  constructor(source: UrlSource, before: RemoteKeySet['verifier'], surroundings: Surroundings) {
    this.source = source
    this.verifier = before
    this.#secureContext = contextTrusting(source.caCertificates)
    this.#surroundings = surroundings
    void this.refresh()
  }

  /** Fetches the set, unless it was fetched a moment ago and is not due. Never rejects. */
  async refresh(isDue = clock.now() - this.#fetchedAt >= this.#pauseMs): Promise<void> {
    if (isDue && !this.#closing.signal.aborted) this.#fetching ??= this.#fetchOnce()
    await this.#fetching
  }

  /** The least time between two fetches. */
  get #pauseMs(): number {
    const { retryMs, minIntervalMs } = this.#surroundings.timing
    return this.verifier === undefined ? retryMs : minIntervalMs
  }

  close(): void {
    this.#closing.abort()
    this.#timer?.cancel()
  }

  async #fetchOnce(): Promise<void> {
    this.#fetchedAt = clock.now()
    const problem = await this.#get().catch(describeFailure)
    this.#fetching = undefined
    if (this.#closing.signal.aborted) return
    const { observer, timing } = this.#surroundings
    if (problem === undefined && this.problem !== undefined) observer.keySetRecovered(pathOf(this.source.url))
    if (problem !== undefined && problem !== this.problem) {
      observer.keySetUnavailable(pathOf(this.source.url), problem, this.verifier !== undefined)
    }
    this.problem = problem
    const delayMs = problem === undefined ? timing.refreshMs : this.#pauseMs
    this.#timer?.cancel()
    this.#timer = clock.after(delayMs * (0.9 + clock.random() / 5), () => void this.refresh(true))
  }

  async #get(): Promise<undefined> {
    const { url, tokenFile } = this.source
    const token = tokenFile && (await readRegularFile(tokenFile)).bytes.toString('latin1').trim()
    if (token && !/^[\x21-\x7e]+$/.test(token)) throw new KeySetInvalid('cannot be fetched: jwksTokenFile has no token')
    const { download, observer, timing } = this.#surroundings
    const { status, content } = await download({
      url: new URL(url),
      fields: [
        ...['accept', 'application/jwk-set+json, application/json'],
        ...['user-agent', USER_AGENT], // some firewalls refuse calls without one
        ...(token ? ['authorization', `Bearer ${token}`] : []),
      ],
      secureContext: this.#secureContext,
      timeoutMs: timing.timeoutMs,
      signal: this.#closing.signal,
    })
    if (status !== 200) throw new KeySetInvalid(`answers ${status}`)
    const text = plainTextOf(content)
    if (text === this.#text) return
    const isFirst = this.verifier === undefined
    this.verifier = await openVerifier(parseKeySet(text))
    this.#text = text
    if (!isFirst && !this.#closing.signal.aborted) observer.keySetChanged()
  }
}

/** Some servers compress unasked (RFC 1952): seldom, so the module is loaded when it is needed. */
function plainTextOf(content: Buffer): string {
  if (content[0] !== 0x1f) return content.toString()
  return process.getBuiltinModule('node:zlib').gunzipSync(content, { maxOutputLength: MAX_BYTES }).toString()
}

/** The message of an unknown error could quote the response or the token, so only its code is reported. */
function describeFailure(error: unknown): string {
  if (error instanceof KeySetInvalid) return error.message
  if (error instanceof FileUnreadable) return `cannot be fetched: jwksTokenFile ${error.message}`
  const { code, name, cause } = error as NodeJS.ErrnoException
  if (code === 'connection_timeout' || code === 'http_response_timeout') return 'did not answer in time'
  return `cannot be fetched (${cause instanceof Error && 'code' in cause ? cause.code : (code ?? name)})`
}
