/** Checks `Host` against a list of names. Compares the name, whatever its spelling, and ignores the port. Stops pages that rebind their name. */

import { BlockList, isIP } from 'node:net'

const HOST = /^(\[[0-9a-f:.]+\]|[a-z0-9_~!$&'()*+;=.-]+)(?::\d{0,5})?$/i

/** Names that always mean this machine. */
export const LOOPBACK_NAMES: readonly string[] = ['localhost', '127.0.0.1', '[::1]']

/** A fixed list of names. A lone `*` allows every well-formed host; with `''` beside it, an empty one, too. */
export class HostList {
  readonly #names: ReadonlySet<string>
  readonly allowsAll: boolean
  readonly #allowsEmpty: boolean
  /** Values that were allowed before. A client sends the same one with every request. */
  readonly #passed = new Set<string>()

  constructor(names: readonly string[]) {
    this.#names = new Set(names.map(canonical))
    this.allowsAll = names.includes('*')
    this.#allowsEmpty = names.includes('')
  }

  check(value: string): 'allowed' | 'refused' | 'invalid' {
    if (this.#passed.has(value)) return 'allowed'
    const match = HOST.exec(value)
    if (match === null) return value === '' && this.#allowsEmpty ? 'allowed' : 'invalid'
    if (!this.allowsAll && !this.#names.has(canonical(match[1] ?? ''))) return 'refused'
    if (this.#passed.size < 256) this.#passed.add(value)
    return 'allowed'
  }
}

/** A name in lower case without a dot at its end, or an IPv6 address in its shortest spelling. */
function canonical(name: string): string {
  const [, address = ''] = /^\[([0-9a-f:.]+)\]$/i.exec(name) ?? []
  if (isIP(address) === 6) return new URL(`http://${name}`).hostname
  return name.toLowerCase().replace(/(?<=.)\.$/, '')
}

/** For unix sockets, which no web page can reach. Clients send what their library makes of a path. */
export const HOSTS_ON_SOCKET = new HostList(['*', ''])

/** Where somebody listens. */
export type BoundAddress = { readonly kind: 'tcp'; readonly host: string } | { readonly kind: 'unix' }

/** The names accepted at this place, with `further` ones. */
export function hostsAt(address: BoundAddress | 'off', further: readonly string[]): HostList {
  if (address === 'off') return new HostList([...LOOPBACK_NAMES, ...further])
  if (address.kind === 'unix') return HOSTS_ON_SOCKET
  const host = address.host.includes(':') ? `[${address.host}]` : address.host // as clients write it
  return new HostList([...LOOPBACK_NAMES, host, ...further])
}

/** The name for TLS: an IP address is none, and it has no dot at its end (RFC 6066 §3). */
export function serverNameOf(host: string): string {
  return isIP(host) === 0 ? host.replace(/\.$/, '') : ''
}

/** True for one scheme, host and port, however they are written: in any case, with the usual port, or with a dot at the end of the name. */
export function isSameOrigin(a: URL, b: URL): boolean {
  const written = ({ protocol, hostname, port }: URL) => `${protocol}//${hostname.replace(/\.$/, '')}:${port}`
  return written(a) === written(b)
}

/** The addresses of a subnet such as `10.0.0.0/8` or `fd00::/8`; undefined if the text is none. */
export function parseSubnet(text: string): BlockList | undefined {
  const [, address = '', digits] = /^([^/]+)\/(\d{1,3})$/.exec(text) ?? []
  const [family, bits] = [isIP(address), Number(digits)]
  if (family === 0 || bits > (family === 4 ? 32 : 128)) return undefined
  const subnet = new BlockList()
  subnet.addSubnet(address, bits, family === 4 ? 'ipv4' : 'ipv6')
  return subnet
}
