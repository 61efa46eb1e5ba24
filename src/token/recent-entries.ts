/**
 * What is held of each org, in bounded room: the least recently used goes first. While they are few, a use is only
 * numbered, and the order made when somebody wants it: to move an entry to the end of a list is to touch its neighbours,
 * too, which the processor's caches no longer hold.
 */

import { LRUCache } from 'lru-cache'
import type { OrgId } from '../http/org-id.ts'
import type { TokenEntry } from './token-entry.ts'

/** Of more, the order is kept with each use. So many are put in order within some milliseconds. */
const MAX_NUMBERED = 4_096
/** V8 keeps integers of this size in place. */
const MAX_USES = 2 ** 30

export interface RecentEntriesOptions {
  readonly max: number
  readonly onEvict: (org: OrgId) => void
  /** After so many uses, the entries are numbered anew. */
  readonly maxUses?: number
}

export class RecentEntries {
  readonly #entries: LRUCache<OrgId, TokenEntry>
  /** At most half of the room: nothing is evicted before the order is kept. */
  readonly #maxNumbered: number
  readonly #maxUses: number
  #isNumbering = true
  #uses = 0

  constructor({ max, onEvict, maxUses = MAX_USES }: RecentEntriesOptions) {
    this.#maxNumbered = Math.min(Math.floor(max / 2), MAX_NUMBERED)
    this.#maxUses = maxUses
    this.#entries = new LRUCache({
      max,
      dispose: (_, org, reason) => {
        if (reason === 'evict') onEvict(org)
      },
    })
  }

  /** Counts as a use. On every request. */
  get(org: OrgId): TokenEntry | undefined {
    if (!this.#isNumbering) return this.#entries.get(org)
    const entry = this.#entries.peek(org)
    if (entry !== undefined) entry.lastUse = this.#nextUse()
    return entry
  }

  /** Does not. */
  peek(org: OrgId): TokenEntry | undefined {
    return this.#entries.peek(org)
  }

  has(org: OrgId): boolean {
    return this.#entries.has(org)
  }

  /** Counts as a use. */
  set(org: OrgId, entry: TokenEntry): void {
    if (this.#isNumbering && this.#entries.size >= this.#maxNumbered) {
      this.#putInOrder()
      this.#isNumbering = false
    }
    if (this.#isNumbering) entry.lastUse = this.#nextUse()
    this.#entries.set(org, entry)
  }

  delete(org: OrgId): boolean {
    return this.#entries.delete(org)
  }

  clear(): void {
    this.#entries.clear()
    this.#isNumbering = true
    this.#uses = 0
  }

  get size(): number {
    return this.#entries.size
  }

  /** Most recently used first. */
  list(): (readonly [OrgId, TokenEntry])[] {
    this.#putInOrder()
    return [...this.#entries.entries()]
  }

  #nextUse(): number {
    if (this.#uses >= this.#maxUses) this.#putInOrder()
    return ++this.#uses
  }

  #putInOrder(): void {
    if (!this.#isNumbering) return
    const byUse = [...this.#entries.entries()].sort(([, a], [, b]) => a.lastUse - b.lastUse)
    this.#uses = 0
    for (const [org, entry] of byUse) {
      this.#entries.get(org)
      entry.lastUse = ++this.#uses
    }
  }
}
