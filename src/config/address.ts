/** Addresses to listen on: `host:port`, `[::1]:port` or `unix:/path`. */

import { BlockList, isIP, isIPv6 } from 'node:net'
import { Unsuitable } from './problem.ts'

export interface TcpAddress {
  readonly kind: 'tcp'
  /** A name or an IP address; IPv6 without brackets. `localhost` means 127.0.0.1 and ::1. */
  readonly host: string
  /** 0 lets the system choose a free port. */
  readonly port: number
}

export interface UnixAddress {
  readonly kind: 'unix'
  readonly path: string
}

export type ListenAddress = TcpAddress | UnixAddress

const NAME = /^(?!.*\.\.)[a-z0-9_][a-z0-9_.-]{0,252}$/
/** `sun_path` holds 108 bytes on Linux and 104 on macOS; the last one is NUL. */
const MAX_SOCKET_PATH_BYTES = 103

const loopback = new BlockList()
loopback.addSubnet('127.0.0.0', 8, 'ipv4')
loopback.addAddress('::1', 'ipv6')

/** @throws {Unsuitable} */
export function parseAddress(text: string): ListenAddress {
  return text.startsWith('unix:') ? parseUnix(text.slice('unix:'.length)) : parseTcp(text)
}

export function formatAddress(address: ListenAddress): string {
  if (address.kind === 'unix') return `unix:${address.path}`
  return isIPv6(address.host) ? `[${address.host}]:${address.port}` : `${address.host}:${address.port}`
}

/** Returns true if only this machine can reach the host. A name other than `localhost` may resolve to any address. */
export function isLoopback(host: string): boolean {
  if (host === 'localhost') return true
  const family = isIP(host)
  return family !== 0 && loopback.check(host, family === 4 ? 'ipv4' : 'ipv6')
}

function parseUnix(path: string): UnixAddress {
  if (!path.startsWith('/') || path.endsWith('/')) {
    throw new Unsuitable('needs an absolute path: write unix:/run/org-access-proxy/proxy.sock')
  }
  if (Buffer.byteLength(path) > MAX_SOCKET_PATH_BYTES || path.includes('\0')) {
    throw new Unsuitable(`is too long for a socket: at most ${MAX_SOCKET_PATH_BYTES} bytes after "unix:"`)
  }
  return { kind: 'unix', path }
}

function parseTcp(text: string): TcpAddress {
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
