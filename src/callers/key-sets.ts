/** The key sets of all callers with a `jwt`. Callers with the same source share one set, and the set survives reloads. */

import { request } from 'node:https'
import type { SecureContext } from 'node:tls'
import { contextTrusting } from '../trusted-certificates.ts'
import { readRegularFile } from '../watched-file.ts'
import type { CallerRule, JwtCredential, KeySetSource } from './callers.ts'
import { type KeySet, KeySetInvalid, openVerifier, parseKeySet, type Verification, type Verifier } from './jwt.ts'

export interface KeySetsObserver {
  /** `text` is a predicate of the URL. `isFormerInUse` is false if there was no good set before. */
  keySetUnavailable(url: string, text: string, isFormerInUse: boolean): void
  keySetRecovered(url: string): void
  /** Tokens that were verified with the former set have to be verified again. */
  keySetChanged(): void
}

interface Entry {
  verifier: Promise<Verifier> | undefined
  readonly remote: RemoteKeySet | undefined
}

/** Anyone can send a token that names an unknown key. Beyond this many that wait for a newer set, the next is refused at once. */
const MAX_WAITING = 256

export class KeySets {
  readonly #observer: KeySetsObserver
  #entries = new Map<string, Entry>()
  #waiting = 0

  constructor(observer: KeySetsObserver) {
    this.#observer = observer
  }

  /** Keeps the sets that `rules` name, opens new ones and closes the others. */
  use(rules: readonly CallerRule[]): void {
    const former = this.#entries
    this.#entries = new Map()
    for (const { credential } of rules) {
      if (credential.kind !== 'jwt') continue
      const id = idOf(credential.keySet)
      if (!this.#entries.has(id)) this.#entries.set(id, former.get(id) ?? this.#open(credential.keySet, former))
    }
    for (const [id, { remote }] of former) if (!this.#entries.has(id)) remote?.close()
  }

  #open(source: KeySetSource, former: ReadonlyMap<string, Entry>): Entry {
    if (source.kind === 'file') return { verifier: verifierOf(source.keySet), remote: undefined }
    const { url, tokenFile, caCertificates } = source
    const remote = new RemoteKeySet({
      url,
      tokenFile,
      secureContext: contextTrusting(caCertificates),
      onChanged: (keySet) => {
        const isFirst = entry.verifier === undefined
        entry.verifier = verifierOf(keySet)
        if (!isFirst) this.#observer.keySetChanged()
      },
      onProblem: (text) => this.#observer.keySetUnavailable(url, text, entry.verifier !== undefined),
      onRecovered: () => this.#observer.keySetRecovered(url),
    })
    // With other certificates or another token for the same URL, the last good set stays until the next is there.
    const before = [...former.values()].find((each) => each.remote?.url === url)
    const entry: Entry = { verifier: before?.verifier, remote }
    return entry
  }

  async verify(token: string, credential: JwtCredential): Promise<Verification> {
    const entry = this.#entries.get(idOf(credential.keySet))
    if (entry === undefined) return 'no key set'
    const first = await verifyWith(entry, token, credential)
    const mayBeNew = first === 'no key set' || first === 'unknown key id'
    if (!mayBeNew || entry.remote === undefined || this.#waiting >= MAX_WAITING) return first
    this.#waiting++
    await entry.remote.refresh()
    this.#waiting--
    return verifyWith(entry, token, credential)
  }

  close(): void {
    for (const { remote } of this.#entries.values()) remote?.close()
    this.#entries.clear()
  }
}

async function verifyWith(entry: Entry, token: string, credential: JwtCredential): Promise<Verification> {
  const verifier = await entry.verifier
  return verifier === undefined ? 'no key set' : verifier(token, credential)
}

function verifierOf(keySet: KeySet): Promise<Verifier> {
  const verifier = openVerifier(keySet)
  verifier.catch(() => undefined) // each awaiter gets the failure
  return verifier
}

/** Sources with the same id have the same keys. */
function idOf(source: KeySetSource): string {
  if (source.kind === 'file') return JSON.stringify([source.path, source.keySet])
  return JSON.stringify([source.url, source.caCertificates, source.tokenFile])
}

export interface RemoteKeySetOptions {
  readonly url: string
  readonly secureContext: SecureContext | undefined
  /** File with a bearer token, read again for each request: Kubernetes replaces it every hour. */
  readonly tokenFile: string | undefined
  /** The set differs from the one before. */
  readonly onChanged: (keySet: KeySet) => void
  /** Called once when a problem begins, and when it changes. The text repeats nothing of the response. */
  readonly onProblem: (text: string) => void
  /** Called once when the set could be fetched again. */
  readonly onRecovered: () => void
  readonly refreshMs?: number
  readonly minIntervalMs?: number
  readonly timeoutMs?: number
  /** Monotonic milliseconds. */
  readonly now?: () => number
}

const REFRESH_MS = 5 * 60_000
/** After a failure, and between two fetches for unknown keys. A flood of made-up key ids must not reach the server. */
const MIN_INTERVAL_MS = 10_000
const TIMEOUT_MS = 5_000
const MAX_BYTES = 64 * 1024

/**
 * The key set of an issuer behind an https URL: fetched at start, every few minutes, and when a token names an unknown key.
 * The last good set stays in use while the server fails, which the remote key set of jose does not offer. Redirects are not
 * followed: the URL that was configured is the one that is trusted.
 */
export class RemoteKeySet {
  readonly url: string
  readonly #options: RemoteKeySetOptions
  readonly #abort = new AbortController()
  #timer: NodeJS.Timeout | undefined
  #fetching: Promise<void> | undefined
  #fetchedAt = Number.NEGATIVE_INFINITY
  #text: string | undefined
  #problem: string | undefined

  constructor(options: RemoteKeySetOptions) {
    this.url = options.url
    this.#options = options
    void this.refresh()
  }

  /** Fetches the set, unless it was fetched a moment ago. Never rejects. */
  async refresh(): Promise<void> {
    const { minIntervalMs = MIN_INTERVAL_MS, now = () => performance.now() } = this.#options
    if (this.#fetching === undefined) {
      if (this.#abort.signal.aborted || now() - this.#fetchedAt < minIntervalMs) return
      this.#fetchedAt = now()
      this.#fetching = this.#fetchOnce()
    }
    await this.#fetching
  }

  close(): void {
    this.#abort.abort()
    clearTimeout(this.#timer)
  }

  async #fetchOnce(): Promise<void> {
    const { refreshMs = REFRESH_MS, minIntervalMs = MIN_INTERVAL_MS, onProblem } = this.#options
    const settled = this.#fetch().then((text) => ({ text, keySet: parseKeySet(text) }))
    const latest = await settled.catch(describeFailure)
    this.#fetching = undefined
    if (this.#abort.signal.aborted) return
    const problem = typeof latest === 'string' ? latest : undefined
    if (problem !== undefined && problem !== this.#problem) onProblem(problem)
    if (typeof latest !== 'string') this.#take(latest.text, latest.keySet)
    this.#problem = problem
    const delayMs = problem === undefined ? refreshMs : minIntervalMs
    clearTimeout(this.#timer)
    this.#timer = setTimeout(() => this.refresh(), delayMs * (0.9 + Math.random() / 5)).unref()
  }

  #take(text: string, keySet: KeySet): void {
    if (this.#problem !== undefined) this.#options.onRecovered()
    if (text !== this.#text) this.#options.onChanged(keySet)
    this.#text = text
  }

  async #fetch(): Promise<string> {
    const { url, tokenFile, secureContext, timeoutMs = TIMEOUT_MS } = this.#options
    const token =
      tokenFile === undefined ? undefined : (await readRegularFile(tokenFile)).bytes.toString('latin1').trim()
    const headers = {
      accept: 'application/jwk-set+json, application/json',
      ...(token !== undefined && { authorization: `Bearer ${token}` }),
    }
    const signal = AbortSignal.any([this.#abort.signal, AbortSignal.timeout(timeoutMs)])
    // Said here, because NODE_TLS_REJECT_UNAUTHORIZED=0 would turn it off: whoever answers decides who is a caller.
    const options = { headers, signal, secureContext, rejectUnauthorized: true, agent: false as const }
    return await new Promise<string>((resolve, reject) => {
      const outgoing = request(url, options, (response) => {
        const { statusCode = 0 } = response
        if (statusCode !== 200) {
          outgoing.destroy(new KeySetInvalid(describeStatus(statusCode)))
          return
        }
        const chunks: Buffer[] = []
        let length = 0
        response.on('data', (chunk: Buffer) => {
          length += chunk.length
          if (length > MAX_BYTES) outgoing.destroy(new KeySetInvalid('is larger than 64 KiB'))
          else chunks.push(chunk)
        })
        response.once('end', () => resolve(Buffer.concat(chunks).toString('utf8')))
        response.once('error', reject)
      })
      outgoing.once('error', reject)
      outgoing.end()
    })
  }
}

function describeStatus(status: number): string {
  if (status >= 300 && status < 400) return `answers ${status}: redirects are not followed, so name the final URL`
  if (status === 401 || status === 403) return `answers ${status}: does it need jwksTokenFile?`
  return `answers ${status}`
}

/** The message of an unknown error could quote the response or the token, so only its code is reported. */
function describeFailure(error: unknown): string {
  if (error instanceof KeySetInvalid) return error.message
  if (!(error instanceof Error)) return 'cannot be fetched'
  if (error.name === 'TimeoutError' || error.name === 'AbortError') return 'did not answer in time'
  if (error.name === 'FileUnreadable') return `cannot be fetched: jwksTokenFile ${error.message}`
  const code = 'code' in error ? String(error.code) : error.name
  const isCertificate = /CERT|SELF_SIGNED|ISSUER|SIGNATURE/.test(code)
  return `cannot be fetched (${code})${isCertificate ? ': does it need jwksCaFile?' : ''}`
}
