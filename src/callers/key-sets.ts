/** The key sets of all callers with a `jwt`. Callers with the same source share one set, and the set survives reloads. */

import { once } from 'node:events'
import type { IncomingMessage } from 'node:http'
import { request } from 'node:https'
import type { SecureContext } from 'node:tls'
import { contextTrusting } from '../trusted-certificates.ts'
import { FileUnreadable, readRegularFile } from '../watched-file.ts'
import type { CallerRule, JwtCredential, KeySetSource } from './callers.ts'
import { KeySetInvalid, openVerifier, parseKeySet, type Verification, type Verifier } from './jwt.ts'

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
  readonly timeoutMs: number
}

const TIMING: KeySetTiming = { refreshMs: 5 * 60_000, minIntervalMs: 10_000, timeoutMs: 5_000 }

/** Anyone can send a token that names an unknown key. Beyond this many that wait for a newer set, the next is refused at once. */
const MAX_WAITING = 256

type UrlSource = Extract<KeySetSource, { url: string }>
type Entry = Pick<RemoteKeySet, 'verifier'> & Partial<RemoteKeySet>

export class KeySets {
  readonly #observer: KeySetsObserver
  readonly #timing: KeySetTiming
  #entries = new Map<string, Entry>()
  #waiting = 0

  constructor(observer: KeySetsObserver, timing = TIMING) {
    this.#observer = observer
    this.#timing = timing
  }

  /** Keeps the sets that `rules` name, opens new ones and closes the others. */
  use(rules: readonly CallerRule[]): void {
    const former = this.#entries
    this.#entries = new Map()
    for (const { jwt } of rules) {
      if (jwt === undefined) continue
      const id = JSON.stringify(jwt.keySet)
      const entry = this.#entries.get(id) ?? former.get(id) ?? this.#open(jwt.keySet, former)
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
    return new RemoteKeySet(source, before?.verifier, this.#observer, this.#timing)
  }

  async verify(token: string, { keySet, ...expected }: JwtCredential): Promise<Verification> {
    const entry = this.#entries.get(JSON.stringify(keySet))
    const verify = async () => (await entry?.verifier)?.(token, expected) ?? 'no key set'
    const first = await verify()
    const mayBeNew = first === 'no key set' || first === 'unknown key id'
    if (!mayBeNew || entry?.refresh === undefined || this.#waiting >= MAX_WAITING) return first
    this.#waiting++
    await entry.refresh()
    this.#waiting--
    return verify()
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
  readonly #observer: KeySetsObserver
  readonly #timing: KeySetTiming
  readonly #abort = new AbortController()
  #timer: NodeJS.Timeout | undefined
  #fetching: Promise<void> | undefined
  #fetchedAt = Number.NEGATIVE_INFINITY
  #text: string | undefined
  #problem: string | undefined

  constructor(source: UrlSource, before: RemoteKeySet['verifier'], observer: KeySetsObserver, timing: KeySetTiming) {
    this.source = source
    this.verifier = before
    this.#secureContext = contextTrusting(source.caCertificates)
    this.#observer = observer
    this.#timing = timing
    void this.refresh()
  }

  /** Fetches the set, unless it was fetched a moment ago. Never rejects. */
  async refresh(): Promise<void> {
    if (this.#fetching === undefined) {
      const now = performance.now()
      if (this.#abort.signal.aborted || now - this.#fetchedAt < this.#timing.minIntervalMs) return
      this.#fetchedAt = now
      this.#fetching = this.#fetchOnce()
    }
    await this.#fetching
  }

  close(): void {
    this.#abort.abort()
    clearTimeout(this.#timer)
  }

  async #fetchOnce(): Promise<void> {
    const { refreshMs, minIntervalMs } = this.#timing
    const problem = await this.#take().catch(describeFailure)
    this.#fetching = undefined
    if (this.#abort.signal.aborted) return
    if (problem === undefined && this.#problem !== undefined) this.#observer.keySetRecovered(this.source.url)
    if (problem !== undefined && problem !== this.#problem) {
      this.#observer.keySetUnavailable(this.source.url, problem, this.verifier !== undefined)
    }
    this.#problem = problem
    const delayMs = problem === undefined ? refreshMs : minIntervalMs
    clearTimeout(this.#timer)
    this.#timer = setTimeout(() => this.refresh(), delayMs * (0.9 + Math.random() / 5)).unref()
  }

  async #take(): Promise<undefined> {
    const text = await this.#fetch()
    if (text === this.#text) return
    const isFirst = this.verifier === undefined
    this.verifier = await openVerifier(parseKeySet(text))
    this.#text = text
    if (!isFirst && !this.#abort.signal.aborted) this.#observer.keySetChanged()
  }

  async #fetch(): Promise<string> {
    const { url, tokenFile } = this.source
    const token = tokenFile && (await readRegularFile(tokenFile)).bytes.toString('latin1').trim()
    const headers = {
      accept: 'application/jwk-set+json, application/json',
      ...(token && { authorization: `Bearer ${token}` }),
    }
    const { signal } = this.#abort
    // Said here, because NODE_TLS_REJECT_UNAUTHORIZED=0 would turn it off: whoever answers decides who is a caller.
    const trust = { secureContext: this.#secureContext, rejectUnauthorized: true }
    const outgoing = request(url, { headers, signal, ...trust, agent: false })
    let isLate = false
    // No `AbortSignal.any` with a time limit: that of Node 20 is lost with the garbage (nodejs/node#57736).
    const timer = setTimeout(() => {
      isLate = true
      outgoing.destroy()
    }, this.#timing.timeoutMs)
    try {
      outgoing.on('error', () => undefined).end() // `once` and the response reject with it
      const [response] = (await once(outgoing, 'response')) as [IncomingMessage]
      const { statusCode = 0 } = response
      if (statusCode !== 200) throw new KeySetInvalid(`answers ${statusCode}`)
      const chunks: Buffer[] = []
      let length = 0
      for await (const chunk of response as AsyncIterable<Buffer>) {
        length += chunk.length
        if (length > MAX_BYTES) throw new KeySetInvalid('is larger than 64 KiB')
        chunks.push(chunk)
      }
      return Buffer.concat(chunks).toString('utf8')
    } catch (error) {
      throw isLate ? new KeySetInvalid('did not answer in time') : error
    } finally {
      clearTimeout(timer)
      outgoing.destroy()
    }
  }
}

/** The message of an unknown error could quote the response or the token, so only its code is reported. */
function describeFailure(error: unknown): string {
  if (error instanceof KeySetInvalid) return error.message
  if (error instanceof FileUnreadable) return `cannot be fetched: jwksTokenFile ${error.message}`
  const { name, code = name } = error as NodeJS.ErrnoException
  return `cannot be fetched (${code})`
}
