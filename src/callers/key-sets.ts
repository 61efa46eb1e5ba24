/** The key sets of all callers with a `jwt`. Callers with the same source share one set, and the set survives reloads. */

import { contextTrusting } from '../trusted-certificates.ts'
import type { CallerRule, JwtCredential, KeySetSource } from './caller-rule.ts'
import { JwtVerifier, readToken, type Verification } from './jwt.ts'
import type { KeySet } from './key-set.ts'
import { RemoteKeySet } from './remote-key-set.ts'

export interface KeySetsObserver {
  /** `text` is a predicate of the URL. */
  keySetUnavailable(url: string, text: string): void
  keySetRecovered(url: string): void
  /** Tokens that were verified with the former set have to be verified again. */
  keySetChanged(): void
}

interface Entry {
  verifier: Promise<JwtVerifier> | undefined
  readonly remote: RemoteKeySet | undefined
}

export class KeySets {
  readonly #observer: KeySetsObserver
  #entries = new Map<string, Entry>()

  constructor(observer: KeySetsObserver) {
    this.#observer = observer
  }

  /** Keeps the sets that `rules` name, opens new ones and closes the others. */
  use(rules: readonly CallerRule[]): void {
    const former = this.#entries
    const entries = new Map<string, Entry>()
    for (const { credential } of rules) {
      if (credential.kind !== 'jwt') continue
      const id = idOf(credential.keySet)
      entries.set(id, entries.get(id) ?? former.get(id) ?? this.#open(credential.keySet))
    }
    this.#entries = entries
    for (const [id, { remote }] of former) if (!entries.has(id)) remote?.close()
  }

  #open(source: KeySetSource): Entry {
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
      onProblem: (text) => this.#observer.keySetUnavailable(url, text),
      onRecovered: () => this.#observer.keySetRecovered(url),
    })
    const entry: Entry = { verifier: undefined, remote }
    return entry
  }

  async verify(token: string, credential: JwtCredential): Promise<Verification> {
    const entry = this.#entries.get(idOf(credential.keySet))
    if (entry === undefined) return { outcome: 'invalid' }
    if (entry.verifier === undefined) await entry.remote?.refresh()
    const first = await verifyWith(entry, token, credential)
    // The issuer may have a new key. For a token without a key id, a newer set would change nothing.
    if (first.outcome !== 'unknown_key' || entry.remote === undefined) return first
    if (readToken(token)?.keyId === undefined) return first
    await entry.remote.refresh()
    return verifyWith(entry, token, credential)
  }

  close(): void {
    for (const { remote } of this.#entries.values()) remote?.close()
    this.#entries.clear()
  }
}

async function verifyWith(entry: Entry, token: string, credential: JwtCredential): Promise<Verification> {
  const verifier = await entry.verifier
  return verifier === undefined ? { outcome: 'unknown_key' } : verifier.verify(token, credential, Date.now())
}

function verifierOf(keySet: KeySet): Promise<JwtVerifier> {
  const verifier = JwtVerifier.create(keySet)
  verifier.catch(() => undefined) // each awaiter gets the failure
  return verifier
}

/** Sources with the same id have the same keys. */
function idOf(source: KeySetSource): string {
  if (source.kind === 'file') return JSON.stringify([source.path, source.keySet])
  return JSON.stringify([source.url, source.caCertificates, source.tokenFile])
}
