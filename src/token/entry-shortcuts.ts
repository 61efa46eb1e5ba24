/**
 * Entries by a hash of their orgs: one look at a table and one at the entry, where a `Map` reads all keys of a chain. Of
 * two orgs with the same place the one used last has it, so that a miss here says nothing.
 */

import type { OrgId } from '../http/org-id.ts'
import type { TokenEntry } from './token-entry.ts'

/** Few orgs share a place. */
const PLACES_PER_ORG = 4
/** FNV-1a, 32 bits. */
const OFFSET_BASIS = 0x811c9dc5
const PRIME = 0x01000193

export class EntryShortcuts {
  readonly #places: (TokenEntry | undefined)[]
  readonly #mask: number

  constructor(maxOrgs: number) {
    const places = 2 ** Math.ceil(Math.log2(Math.max(1, maxOrgs) * PLACES_PER_ORG))
    this.#places = new Array<TokenEntry | undefined>(places).fill(undefined)
    this.#mask = places - 1
  }

  find(org: OrgId): TokenEntry | undefined {
    const entry = this.#places[this.#placeOf(org)]
    return entry !== undefined && entry.org === org ? entry : undefined
  }

  remember(entry: TokenEntry): void {
    this.#places[this.#placeOf(entry.org)] = entry
  }

  /** May forget the org that shares its place instead: that one is found anew. */
  forget(org: OrgId): void {
    this.#places[this.#placeOf(org)] = undefined
  }

  #placeOf(org: OrgId): number {
    let hash = OFFSET_BASIS
    for (let i = 0; i < org.length; i++) hash = Math.imul(hash ^ org.charCodeAt(i), PRIME)
    return (hash ^ (hash >>> 15)) & this.#mask
  }
}
