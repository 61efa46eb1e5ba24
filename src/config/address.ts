/**
 * Parsers of the addresses among the settings: listeners, the service, the store of a fleet, names of hosts.
 * No message repeats a URL, because it may contain a misplaced password.
 */

import { BlockList, isIP, isIPv6 } from 'node:net'
import type { ListenAddress } from '../listener/bind.ts'
import { throwFaults, Unsuitable } from './problem.ts'

/** Of `admin.address`. */
export const DEFAULT_ADMIN_ADDRESS = 'localhost:9090'

const NAME = /^(?!.*\.\.)[a-z0-9_][a-z0-9_.-]{0,252}$/
/** `sun_path` holds 108 bytes on Linux and 104 elsewhere; the last one is NUL. Node cuts a longer path in silence. */
const MAX_SOCKET_PATH_BYTES = process.platform === 'linux' ? 107 : 103
/** The socket is bound as `FOLDER/.01234567` first: see `bindUnix` of `listener/bind.ts`. */
const MAX_SOCKET_FOLDER_BYTES = MAX_SOCKET_PATH_BYTES - '/.01234567'.length

const loopback = new BlockList()
loopback.addSubnet('127.0.0.0', 8, 'ipv4')
loopback.addAddress('::1', 'ipv6')

/** @throws {Unsuitable} */
export function parseAddress(text: string): ListenAddress {
  return text.startsWith('unix:') ? parseUnix(text.slice('unix:'.length)) : parseTcp(text)
}

export function parseAddressOrOff(text: string): ListenAddress | 'off' {
  return text === 'off' ? 'off' : parseAddress(text)
}

export function parseSocketPath(text: string): string {
  return parseUnix(text, '/run/oap/billing/proxy.sock').path
}

function parseUnix(path: string, example = 'unix:/run/org-access-proxy/proxy.sock') {
  if (!path.startsWith('/') || path.endsWith('/')) throw new Unsuitable(`needs an absolute path: write ${example}`)
  const isTooLong = Buffer.byteLength(path) > MAX_SOCKET_PATH_BYTES || folderBytes(path) > MAX_SOCKET_FOLDER_BYTES
  if (isTooLong || path.includes('\0')) {
    const most = `at most ${MAX_SOCKET_PATH_BYTES} bytes, and that of its folder ${MAX_SOCKET_FOLDER_BYTES}`
    throw new Unsuitable(`is too long for a socket: its path may have ${most}`)
  }
  return { kind: 'unix', path } as const
}

function folderBytes(path: string): number {
  return Buffer.byteLength(path.slice(0, path.lastIndexOf('/')))
}

function parseTcp(text: string): ListenAddress {
  const [, bracketed, plain, digits] = /^(?:\[([^\]]*)\]|([^:[\]]*)):(\d{1,5})$/.exec(text) ?? []
  const host = (bracketed ?? plain)?.toLowerCase()
  const port = Number(digits)
  if (host === undefined || port > 65_535) {
    throw new Unsuitable('is not an address: write localhost:8080, [::1]:8080 or unix:/path')
  }
  if (host === '') throw new Unsuitable('has no host: write localhost:8080, or 0.0.0.0:8080 for every interface')
  if (bracketed === undefined ? !isNameOrIPv4(host) : !isIPv6(host)) {
    throw new Unsuitable('has an invalid host: write a name, an IPv4 address, or an IPv6 address in brackets')
  }
  return { kind: 'tcp', host, port }
}

/** Digits and dots are meant as an IPv4 address, so `127.1` and `300.0.0.1` are mistakes, not names. */
function isNameOrIPv4(host: string): boolean {
  return /^[\d.]+$/.test(host) ? isIP(host) === 4 : NAME.test(host)
}

export function formatAddress(address: ListenAddress): string {
  if (address.kind === 'unix') return `unix:${address.path}`
  return address.host.includes(':') ? `[${address.host}]:${address.port}` : `${address.host}:${address.port}`
}

/** Returns true if only this machine can reach the host. A name other than `localhost` may resolve to any address. */
export function isLoopback(host: string): boolean {
  if (host === 'localhost') return true
  const family = isIP(host)
  return family !== 0 && loopback.check(host, family === 4 ? 'ipv4' : 'ipv6')
}

/** A name as clients send it in `Host`, without the port; `*` for all. */
export function parseHostName(text: string): string {
  const name = text.toLowerCase()
  if (name !== '*' && !/^(\[[0-9a-f:.]+\]|[a-z0-9_.-]+)$/.test(name)) {
    throw new Unsuitable('is not a host name: write it without scheme and port, an IPv6 address in brackets')
  }
  return name
}

/** Of a TLS server: RFC 6066 §3 permits no IP address. @throws {Unsuitable} */
export function parseServerName(text: string): string {
  const name = text.toLowerCase()
  if (/^[\d.]+$/.test(name) || !NAME.test(name)) {
    throw new Unsuitable('is not a host name: write the name in the certificate, such as cache.example.com')
  }
  return name
}

/** `example` and `credentials` are remedies. */
function parseHttpUrl(text: string, example: string, credentials: string): URL {
  // Checked before `new URL`, which drops an empty query, trims, and reads a backslash as a slash.
  const [, authority, path = '', rest] = /^https?:\/\/([^/?#\\]+)([^?#]*)(.*)$/is.exec(text) ?? []
  if (authority === undefined) throw new Unsuitable(`is not an http(s) URL: ${example}`)
  const faults = [
    [authority.includes('@'), `contains a user name or password: ${credentials}`],
    [/[{}]/.test(authority), `has braces in its host: ${example}`],
    [rest !== '', `has a query or a fragment: ${example}`],
  ] as const
  throwFaults(faults)
  if (!URL.canParse(text)) throw new Unsuitable(`is not an http(s) URL: ${example}`)
  const url = new URL(text)
  // The parser rewrites dot segments, blanks, backslashes and non-ASCII: the result would be another path.
  if (url.pathname !== (path === '' ? '/' : path) || path.includes('//')) {
    throw new Unsuitable('has a path with "." or ".." segments, "//", "\\", blanks or non-ASCII: write a plain path')
  }
  return url
}

export function parseBaseUrl(text: string): URL {
  const example = 'write https://api.example.com or https://example.com/prefix'
  return parseHttpUrl(text, example, 'remove it, the App authenticates with appId and its secret')
}

/** Collectors take spans at a path of theirs. Without one, every span would be lost. */
export function parseTracesEndpoint(text: string): URL {
  const example = 'write http://collector:4318/v1/traces'
  const url = parseHttpUrl(text, example, 'put a header into OTEL_EXPORTER_OTLP_HEADERS instead')
  if (url.pathname === '/') throw new Unsuitable(`has no path, but collectors have one: ${example}`)
  return url
}

/** Returns true if the network can read what is sent to this URL, the App secret included. */
export function isReadableOnTheWay(url: URL): boolean {
  return url.protocol === 'http:' && !isLoopback(url.hostname.replace(/^\[|\]$/g, ''))
}

/** Where a sidecar gets its tokens. */
export interface MinterUrl {
  /** Only scheme, host and port count. */
  readonly baseUrl: URL
  /** Of a unix socket; undefined for TCP. */
  readonly socketPath: string | undefined
  /** As people read it. */
  readonly text: string
}

const MINTER_EXAMPLE = 'write https://minter.example.com:8443, or unix:/path'

/** @throws {Unsuitable} */
export function parseMinterUrl(text: string): MinterUrl {
  if (text.startsWith('unix:')) {
    const { path } = parseUnix(text.slice('unix:'.length), 'unix:/run/oap/minter.sock')
    return { baseUrl: new URL('http://127.0.0.1'), socketPath: path, text }
  }
  const baseUrl = parseHttpUrl(text, MINTER_EXAMPLE, MINTER_EXAMPLE)
  if (baseUrl.pathname !== '/') throw new Unsuitable(`has a path: ${MINTER_EXAMPLE}`)
  if (isReadableOnTheWay(baseUrl)) throw new Unsuitable('is plain http to another machine: use https')
  return { baseUrl, socketPath: undefined, text: baseUrl.origin }
}

const STORE_EXAMPLE = 'write redis://host:6379, rediss://host:6379/0 or redis+unix:///run/redis.sock'

/** @throws {Unsuitable} */
export function parseFleetStore(text: string) {
  if (text.includes('@')) {
    throw new Unsuitable('holds a user name or password: take it out and set fleet.username and fleet.passwordFile')
  }
  const [, path] = /^redis\+unix:\/\/(\/\S+)$/.exec(text) ?? []
  if (path !== undefined && Buffer.byteLength(path) <= MAX_SOCKET_PATH_BYTES) {
    return { kind: 'unix', path, database: 0 } as const
  }
  const match = /^(rediss?):\/\/(?:\[([\da-f:.]+)\]|([\w.-]+))(?::([1-9]\d{0,4}))?(?:\/(\d{0,4}))?$/i.exec(text)
  if (match === null) throw new Unsuitable(`is not the URL of a store: ${STORE_EXAMPLE}`)
  const [, protocol, ipv6, name = '', port = '6379', database] = match
  return {
    kind: 'tcp',
    host: ipv6 ?? name,
    port: Number(port),
    tls: protocol === 'rediss',
    database: Number(database ?? 0),
  } as const
}
