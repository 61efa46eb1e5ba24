/**
 * What is held of each org, in bounded room: the least recently used goes first. A use is only numbered; the order is
 * made from the numbers when somebody wants it. So a request touches the memory of its own org and of no other.
 */

import { LRUCache } from 'lru-cache'
import type { OrgId } from '../http/org-id.ts'
import { EntryShortcuts } from './entry-shortcuts.ts'
import type { TokenEntry } from './token-entry.ts'

/** So many entries are put in order within some tenths of a millisecond. */
const MAX_UNORDERED = 2_048
/** V8 keeps integers up to this one in place. */
const MAX_USES = 2 ** 30

export interface RecentEntriesOptions {
  readonly max: number
  readonly onEvict: (org: OrgId) => void
  /** So many entries used since the order was made have it made anew. */
  readonly maxUnordered?: number
  /** After so many uses they are numbered from one again. */
  readonly maxUses?: number
}

export class RecentEntries {
  readonly #max: number
  readonly #maxUnordered: number
  readonly #maxUses: number
  /** In the order of their uses up to `#orderedUses`. */
  readonly #entries: LRUCache<OrgId, TokenEntry>
  readonly #shortcuts: EntryShortcuts
  /** Those used since then, each once. */
  #unordered: TokenEntry[] = []
  #orderedUses = 0
  #uses = 0

  constructor({ max, onEvict, maxUnordered = MAX_UNORDERED, maxUses = MAX_USES }: RecentEntriesOptions) {
    this.#max = max
    this.#maxUnordered = maxUnordered
    this.#maxUses = maxUses
    this.#shortcuts = new EntryShortcuts(max)
    this.#entries = new LRUCache({
      max,
      dispose: (entry, org, reason) => {
        this.#shortcuts.forget(entry)
        if (reason === 'evict') onEvict(org)
      },
    })
  }

  /** Counts as a use. On every request. */
  get(org: OrgId): TokenEntry | undefined {
    const entry = this.#shortcuts.find(org) ?? this.#findAnew(org)
    if (entry !== undefined) this.#noteUse(entry)
    return entry
  }

  /** Does not. */
  peek(org: OrgId): TokenEntry | undefined {
    return this.#shortcuts.find(org) ?? this.#entries.peek(org)
  }

  has(org: OrgId): boolean {
    return this.peek(org) !== undefined
  }

  /** Its org has none. Counts as a use. */
  add(entry: TokenEntry): void {
    if (this.#entries.size >= this.#max) this.#putInOrder()
    this.#entries.set(entry.org, entry)
    this.#shortcuts.remember(entry)
    this.#noteUse(entry)
  }

  delete(org: OrgId): boolean {
    this.#putInOrder() // nothing else here may hold what is deleted
    return this.#entries.delete(org)
  }

  clear(): void {
    this.#unordered = []
    this.#entries.clear()
  }

  get size(): number {
    return this.#entries.size
  }

  /** Most recently used first. */
  list(): TokenEntry[] {
    this.#putInOrder()
    return [...this.#entries.values()]
  }

  #findAnew(org: OrgId): TokenEntry | undefined {
    const entry = this.#entries.peek(org)
    if (entry !== undefined) this.#shortcuts.remember(entry)
    return entry
  }

  #noteUse(entry: TokenEntry): void {
    if (entry.lastUse <= this.#orderedUses) this.#unordered.push(entry)
    entry.lastUse = ++this.#uses
    if (this.#unordered.length >= this.#maxUnordered || this.#uses >= this.#maxUses) this.#putInOrder()
  }

  #putInOrder(): void {
    this.#unordered.sort((a, b) => a.lastUse - b.lastUse)
    for (const { org } of this.#unordered) this.#entries.get(org)
    this.#unordered = []
    if (this.#uses >= this.#maxUses) {
      for (const entry of this.#entries.values()) entry.lastUse = 0
      this.#uses = 0
    }
    this.#orderedUses = this.#uses
  }
}
