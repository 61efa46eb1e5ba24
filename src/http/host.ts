/** `Host` against an allow-list: the exact name, any port (a page that rebinds its name cannot change what it sends). */

const HOST = /^(\[[0-9a-f:.]+\]|[a-z0-9_~!$&'()*+;=.-]+)(?::\d{1,5})?$/i

export type HostVerdict = 'allowed' | 'refused' | 'invalid'

/** Names that are always this machine. */
export const LOOPBACK_NAMES: readonly string[] = ['localhost', '127.0.0.1', '[::1]']

/** Compares hosts with a fixed list of names; a lone `*` allows every well-formed one. */
export class HostList {
  readonly #names: ReadonlySet<string>
  readonly #allowsAll: boolean
  /** Values that have passed, as they were written: a client repeats its own for ever. */
  readonly #passed = new Set<string>()

  constructor(names: readonly string[]) {
    this.#names = new Set(names.map((name) => name.toLowerCase()))
    this.#allowsAll = names.includes('*')
  }

  check(value: string): HostVerdict {
    if (this.#passed.has(value)) return 'allowed'
    const match = HOST.exec(value)
    if (match === null) return 'invalid'
    if (!this.#allowsAll && !this.#names.has((match[1] ?? '').toLowerCase())) return 'refused'
    if (this.#passed.size < 256) this.#passed.add(value)
    return 'allowed'
  }
}
