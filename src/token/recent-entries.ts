/**
 * What is held of each org, in bounded room: the least recently used goes first. While orgs are few, a use is only
 * numbered, and the order made when somebody wants it, so that a request touches the memory of its own org and of no other.
 */

import { LRUCache } from 'lru-cache'
import type { OrgId } from '../http/org-id.ts'
import { EntryShortcuts } from './entry-shortcuts.ts'
import type { TokenEntry } from './token-entry.ts'

/**
 * Of more, the order is kept with each use. To put so many in order stops the program for about a millisecond, and for some
 * twenty the first time, before V8 has compiled it.
 */
const MAX_NUMBERED = 2_048
/** V8 keeps integers up to this one in place. */
const MAX_USES = 2 ** 30

export interface RecentEntriesOptions {
  readonly max: number
  readonly onEvict: (org: OrgId) => void
  /** After so many uses they are numbered from one again. */
  readonly maxUses?: number
}

export class RecentEntries {
  readonly #entries: LRUCache<OrgId, TokenEntry>
  /** At most half of the room, so that nothing is evicted before the order is kept. */
  readonly #maxNumbered: number
  readonly #maxUses: number
  /** Undefined once the order is kept with each use. */
  #shortcuts: EntryShortcuts | undefined
  #uses = 0

  constructor({ max, onEvict, maxUses = MAX_USES }: RecentEntriesOptions) {
    this.#maxNumbered = Math.min(Math.floor(max / 2), MAX_NUMBERED)
    this.#maxUses = maxUses
    this.#shortcuts = new EntryShortcuts(this.#maxNumbered)
    this.#entries = new LRUCache({
      max,
      dispose: (_, org, reason) => {
        if (reason === 'evict') onEvict(org)
      },
    })
  }

  /** Counts as a use. On every request. */
  get(org: OrgId): TokenEntry | undefined {
    if (this.#shortcuts === undefined) return this.#entries.get(org)
    const entry = this.#shortcuts.find(org) ?? this.#findAnew(org)
    if (entry !== undefined) entry.lastUse = this.#nextUse()
    return entry
  }

  /** Does not. */
  peek(org: OrgId): TokenEntry | undefined {
    return this.#shortcuts?.find(org) ?? this.#entries.peek(org)
  }

  has(org: OrgId): boolean {
    return this.#entries.has(org)
  }

  /** Its org has none. Counts as a use. */
  add(entry: TokenEntry): void {
    if (this.#entries.size >= this.#maxNumbered) this.#keepOrder()
    if (this.#shortcuts !== undefined) entry.lastUse = this.#nextUse()
    this.#entries.set(entry.org, entry)
  }

  delete(org: OrgId): boolean {
    this.#shortcuts?.forget(org)
    return this.#entries.delete(org)
  }

  clear(): void {
    this.#entries.clear()
    this.#shortcuts = new EntryShortcuts(this.#maxNumbered)
    this.#uses = 0
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
    if (entry !== undefined) this.#shortcuts?.remember(entry)
    return entry
  }

  #nextUse(): number {
    if (this.#uses >= this.#maxUses) this.#putInOrder()
    return ++this.#uses
  }

  #keepOrder(): void {
    this.#putInOrder()
    this.#shortcuts = undefined
  }

  #putInOrder(): void {
    if (this.#shortcuts === undefined) return
    const byUse = [...this.#entries.values()].sort((a, b) => a.lastUse - b.lastUse)
    this.#uses = 0
    for (const entry of byUse) {
      this.#entries.get(entry.org)
      entry.lastUse = ++this.#uses
    }
  }
}
