/** Opens and closes listening sockets: TCP on loopback in both families, and unix sockets. Knows which peers are local. */

import { randomBytes } from 'node:crypto'
import { linkSync, lstatSync, renameSync, type Stats, unlinkSync } from 'node:fs'
import { connect, type ListenOptions, type Server, type Socket } from 'node:net'
import { dirname, join } from 'node:path'
import { checkInherited } from './inherited-sockets.ts'

export type ListenAddress =
  | { readonly kind: 'tcp'; readonly host: string; readonly port: number }
  | { readonly kind: 'unix'; readonly path: string }

export interface Bound {
  /** As it stands in a URL or a log line: `localhost:8080`, `[::1]:8080`, `unix:/run/proxy.sock`. */
  readonly address: string
  /** Stops listening. Resolves when the last connection has ended. May be called again. */
  close(): Promise<void>
}

/** Connections that may wait to be accepted. With Node's 511, the kernel resets clients of a burst. It takes at most `somaxconn`. */
const BACKLOG = 4_096
/** Number of attempts if a port that is free in one family is taken in the other. */
const PORT_ATTEMPTS = 10

/**
 * True for a peer on this machine. Unix sockets have no address. A packet from another machine can reach a socket on loopback
 * if the host is misconfigured (`route_localnet`, the proxy of a container engine).
 */
export function isLocalPeer(socket: Socket): boolean {
  const address = socket.remoteAddress
  return address === undefined || address.startsWith('127.') || address === '::1' || address.startsWith('::ffff:127.')
}

/** Rejects with the system's error if the address is in use or not available. With `inherited` descriptors, binds nothing. */
export async function bind(
  address: ListenAddress,
  newServer: () => Server,
  socketMode = 0o660,
  inherited: readonly number[] = [],
): Promise<Bound> {
  if (inherited.length > 0) return bindInherited(address, newServer, inherited)
  if (address.kind === 'unix') return bindUnix(address.path, newServer, socketMode)
  if (address.host.toLowerCase() === 'localhost') return bindLoopback(address.port, newServer)
  const server = newServer()
  const port = await listen(server, { host: unbracketed(address.host), port: address.port })
  const host = unbracketed(address.host)
  return boundTo(host.includes(':') ? `[${host}]:${port}` : `${host}:${port}`, [server])
}

async function bindInherited(
  address: ListenAddress,
  newServer: () => Server,
  descriptors: readonly number[],
): Promise<Bound> {
  const servers: Server[] = []
  let port = 0
  for (const fd of descriptors) {
    const server = newServer()
    port = await listen(server, { fd })
    checkInherited(address, server)
    servers.push(server)
  }
  return boundTo(address.kind === 'unix' ? `unix:${address.path}` : `${address.host}:${port}`, servers)
}

/** `localhost` is 127.0.0.1 and, if the machine has it, ::1, on one port. */
async function bindLoopback(wanted: number, newServer: () => Server): Promise<Bound> {
  for (let attempt = 1; ; attempt++) {
    const first = newServer()
    const port = await listen(first, { host: '127.0.0.1', port: wanted })
    const second = newServer()
    try {
      await listen(second, { host: '::1', port, ipv6Only: true })
      return boundTo(`localhost:${port}`, [first, second])
    } catch (error) {
      if (isWithoutIpv6(error)) return boundTo(`localhost:${port}`, [first])
      await new Promise((resolve) => first.close(resolve))
      if (wanted !== 0 || attempt === PORT_ATTEMPTS) throw error
    }
  }
}

function isWithoutIpv6(error: unknown): boolean {
  const code = codeOf(error)
  return code === 'EADDRNOTAVAIL' || code === 'EAFNOSUPPORT'
}

function boundTo(address: string, servers: readonly Server[], stop = () => {}): Bound {
  return {
    address,
    close: async () => {
      stop()
      await Promise.all(servers.map((server) => new Promise((resolve) => server.close(resolve))))
    },
  }
}

/**
 * Binds under a temporary name, and links the socket to its place. On closing, Node unlinks the name that it has bound. By then,
 * that file may belong to another process: a stopping instance would remove the socket of its successor.
 */
async function bindUnix(path: string, newServer: () => Server, mode: number): Promise<Bound> {
  await removeStale(path)
  const server = newServer()
  const temporary = temporaryName(path)
  // The umask makes the mode exact. A `chmod` would follow a symlink that somebody has put in place of the socket.
  const before = process.umask(0o777 & ~mode)
  try {
    const listening = listen(server, { path: temporary }) // binds before it returns
    process.umask(before)
    await listening
    // A symlink in its place would lead the clients elsewhere.
    if (!lstatSync(temporary).isSocket()) throw new Error(`somebody has replaced the socket for ${path}`)
    linkSync(temporary, path)
    unlinkSync(temporary)
  } catch (error) {
    process.umask(before)
    server.close()
    if (codeOf(error) === 'EEXIST') throw inUse(path)
    // The user knows the path of the setting, not the temporary one.
    throw error instanceof Error ? Object.assign(error, { address: path }) : error
  }
  const own = lstatSync(path)
  return boundTo(`unix:${path}`, [server], () => {
    try {
      if (isSame(lstatSync(path), own)) unlinkSync(path)
    } catch {
      // The next instance removes a socket that is left behind.
    }
  })
}

function temporaryName(path: string): string {
  return join(dirname(path), `.${randomBytes(4).toString('hex')}`)
}

/** The number of an inode is soon used again. A socket is never modified, so this is when it was made. */
function isSame(one: Stats, other: Stats): boolean {
  return one.dev === other.dev && one.ino === other.ino && one.mtimeMs === other.mtimeMs
}

function inUse(path: string): Error {
  return Object.assign(new Error(`${path} is in use`), { code: 'EADDRINUSE', address: path })
}

/** Removes a socket that nobody answers on. Leaves anything else in the way alone, symlinks too, and fails. */
async function removeStale(path: string): Promise<void> {
  const found = lstatSync(path, { throwIfNoEntry: false })
  if (found === undefined) return
  if (!found.isSocket()) {
    const message = `${path} exists and is not a socket: choose another path, or remove it`
    throw Object.assign(new Error(message), { code: 'EEXIST' })
  }
  if (await answers(path)) throw inUse(path)
  const aside = temporaryName(path)
  try {
    renameSync(path, aside)
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return // another instance was faster
    throw error
  }
  // Meanwhile, another instance may have removed the stale socket, and put its own there.
  const isStale = isSame(lstatSync(aside), found)
  if (!isStale) linkSync(aside, path)
  unlinkSync(aside)
  if (!isStale) throw inUse(path)
}

function answers(path: string): Promise<boolean> {
  return new Promise((resolve) => {
    const probe = connect(path)
    probe.once('connect', () => {
      probe.destroy()
      resolve(true)
    })
    probe.once('error', (error) => resolve(codeOf(error) !== 'ECONNREFUSED'))
  })
}

/** Resolves with the port that was bound, 0 for a unix socket. */
function listen(server: Server, options: ListenOptions | { readonly fd: number }): Promise<number> {
  return new Promise((resolve, reject) => {
    server.once('error', reject)
    server.listen({ ...options, backlog: BACKLOG }, () => {
      server.off('error', reject)
      const bound = server.address()
      resolve(typeof bound === 'object' && bound !== null ? bound.port : 0)
    })
  })
}

function unbracketed(host: string): string {
  return host.startsWith('[') && host.endsWith(']') ? host.slice(1, -1) : host
}

function codeOf(error: unknown): unknown {
  return error instanceof Error && 'code' in error ? error.code : undefined
}
