/**
 * Opens and closes listening sockets: TCP on loopback in both families, unix sockets, and those that systemd passes
 * (`sd_listen_fds(3)`). systemd keeps its sockets open while the proxy restarts, so connections wait in them and none is refused.
 */

import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { linkSync, lstatSync, renameSync, type Stats, unlinkSync } from 'node:fs'
import { connect, type ListenOptions, type Server, type Socket } from 'node:net'
import { dirname, join } from 'node:path'

/**
 * A host is a name in lower case or an IP address; IPv6 without brackets. `localhost` means 127.0.0.1 and ::1. Port 0 takes a
 * free one.
 */
export type ListenAddress =
  | { readonly kind: 'tcp'; readonly host: string; readonly port: number }
  | { readonly kind: 'unix'; readonly path: string }

export interface Bound {
  /** As it stands in a URL or a log line: `localhost:8080`, `[::1]:8080`, `unix:/run/proxy.sock`. */
  readonly address: string
  /** Stops listening. Resolves when the last connection has ended. May be called again. */
  close(): Promise<void>
}

/** Descriptors of systemd. `admin`: those with that name (`FileDescriptorName=admin`). */
export interface InheritedSockets {
  readonly proxy: readonly number[]
  readonly admin: readonly number[]
}

/** Connections that may wait to be accepted. With Node's 511, the kernel resets clients of a burst. It takes at most `somaxconn`. */
const BACKLOG = 4_096
const FIRST_DESCRIPTOR = 3
const NO_IPV6: readonly unknown[] = ['EADDRNOTAVAIL', 'EAFNOSUPPORT']

/**
 * Tells whether a peer is on this machine. A packet from another machine can reach a socket on loopback if the host is
 * misconfigured (`route_localnet`, the proxy of a container engine).
 *
 * Call it in the `connection` event, and remember the result. Once a peer has reset, the system no longer knows its address,
 * but its bytes can still be read. Such a peer is `unknown`: close its connection.
 */
export function locationOfPeer(socket: Socket, accepted: ListenAddress['kind']): 'here' | 'elsewhere' | 'unknown' {
  if (accepted === 'unix') return 'here'
  const address = socket.remoteAddress
  if (address === undefined) return 'unknown'
  const isHere = address.startsWith('127.') || address === '::1' || address.startsWith('::ffff:127.')
  return isHere ? 'here' : 'elsewhere'
}

/** Reads and removes `LISTEN_PID`, `LISTEN_FDS` and `LISTEN_FDNAMES`, so that no child process takes the sockets for its own. */
export function takeInheritedSockets(env: Record<string, string | undefined>, pid: number): InheritedSockets {
  const { LISTEN_PID, LISTEN_FDS = '', LISTEN_FDNAMES = '' } = env
  for (const name of ['LISTEN_PID', 'LISTEN_FDS', 'LISTEN_FDNAMES']) delete env[name]
  const isOurs = LISTEN_PID === String(pid) && /^\d{1,3}$/.test(LISTEN_FDS)
  const names = LISTEN_FDNAMES.split(':')
  const descriptors = Array.from({ length: isOurs ? Number(LISTEN_FDS) : 0 }, (_, i) => FIRST_DESCRIPTOR + i)
  const isAdmin = (fd: number) => names[fd - FIRST_DESCRIPTOR] === 'admin'
  return { proxy: descriptors.filter((fd) => !isAdmin(fd)), admin: descriptors.filter(isAdmin) }
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
  if (address.host === 'localhost') return bindLoopback(address.port, newServer)
  const server = newServer()
  // Without a host, Node takes every address of both families, or 0.0.0.0 if the machine has no IPv6.
  const { host, port } = address
  await listen(server, host === '::' ? { port } : { host, port })
  return boundTo([server])
}

async function bindInherited(
  address: ListenAddress,
  newServer: () => Server,
  descriptors: readonly number[],
): Promise<Bound> {
  const servers: Server[] = []
  for (const fd of descriptors) {
    const server = newServer()
    await listen(server, { fd })
    // The checks of the configuration, such as `listen.allowRemote`, were made for the configured address.
    if (!isBoundTo(server, address)) {
      const configured = address.kind === 'unix' ? `unix:${address.path}` : `${address.host}:${address.port}`
      const message = `systemd passed a socket for ${addressOf(server)}, but the configured address is ${configured}`
      throw new Error(`${message}: make them the same`)
    }
    servers.push(server)
  }
  const isLocalhost = address.kind === 'tcp' && address.host === 'localhost'
  return boundTo(servers, isLocalhost ? `localhost:${portOf(servers[0])}` : undefined)
}

function isBoundTo(server: Server, address: ListenAddress): boolean {
  const found = server.address()
  if (found === null || typeof found === 'string') return address.kind === 'unix' && address.path === found
  if (address.kind === 'unix' || (address.port !== found.port && address.port !== 0)) return false
  const { host } = address
  return host === found.address || (host === 'localhost' && ['127.0.0.1', '::1'].includes(found.address))
}

/** `localhost` is 127.0.0.1 and, if the machine has it, ::1, on one port. */
async function bindLoopback(wanted: number, newServer: () => Server): Promise<Bound> {
  for (;;) {
    const first = newServer()
    await listen(first, { host: '127.0.0.1', port: wanted })
    const port = portOf(first)
    const second = newServer()
    try {
      await listen(second, { host: '::1', port, ipv6Only: true })
      return boundTo([first, second], `localhost:${port}`)
    } catch (error) {
      if (NO_IPV6.includes(codeOf(error))) return boundTo([first], `localhost:${port}`)
      await new Promise((resolve) => first.close(resolve))
      if (wanted !== 0 || codeOf(error) !== 'EADDRINUSE') throw error // another port may be free in both families
    }
  }
}

/**
 * Binds under a temporary name, and moves the socket to its place. On closing, Node unlinks the name that it has bound. By then,
 * that file may belong to another process: a stopping instance would remove the socket of its successor.
 */
async function bindUnix(path: string, newServer: () => Server, mode: number): Promise<Bound> {
  const server = newServer()
  const temporary = join(dirname(path), `.${randomBytes(4).toString('hex')}`) // parseAddress leaves room for it
  // The umask makes the mode exact. A `chmod` would follow a symlink that somebody has put in place of the socket.
  const before = process.umask(0o777 & ~mode)
  try {
    const listening = listen(server, { path: temporary }) // binds before it returns
    process.umask(before)
    await listening
    // A symlink in its place would lead the clients elsewhere.
    if (!lstatSync(temporary).isSocket()) throw new Error(`somebody has replaced the socket for ${path}`)
    await moveTo(path, temporary)
  } catch (error) {
    process.umask(before)
    server.close()
    // The user knows the path of the setting, not the temporary one. For a folder that is missing, libuv says EACCES, too.
    if (codeOf(error) === 'EACCES')
      throw new Error(`listen ${path}: its folder does not exist, or this user may not write to it`)
    const code = codeOf(error) === 'EEXIST' ? 'EADDRINUSE' : codeOf(error)
    throw error instanceof Error ? Object.assign(error, { address: path, code }) : error
  }
  const own = lstatSync(path)
  return boundTo([server], `unix:${path}`, () => {
    try {
      if (isSame(lstatSync(path), own)) unlinkSync(path)
    } catch {
      // The next instance removes a socket that is left behind.
    }
  })
}

/** Replaces a socket that nobody answers on. Leaves anything else in the way alone, symlinks too, and fails. */
async function moveTo(path: string, temporary: string): Promise<void> {
  const found = lstatSync(path, { throwIfNoEntry: false })
  if (found === undefined) {
    linkSync(temporary, path) // fails if another instance was faster
    unlinkSync(temporary)
    return
  }
  if (!found.isSocket()) throw new Error(`${path} exists and is not a socket: choose another path, or remove it`)
  const isInUse = await answers(path)
  // Meanwhile, another instance may have put its own socket there.
  const isStale = !isInUse && isSame(lstatSync(path), found)
  if (!isStale) throw Object.assign(new Error(`${path} is in use`), { code: 'EADDRINUSE' })
  renameSync(temporary, path)
}

/** The number of an inode is soon used again. A socket is never modified, so this is when it was made. */
function isSame(one: Stats, other: Stats): boolean {
  return one.dev === other.dev && one.ino === other.ino && one.mtimeMs === other.mtimeMs
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

async function listen(server: Server, options: ListenOptions | { readonly fd: number }): Promise<void> {
  server.listen({ ...options, backlog: BACKLOG })
  await once(server, 'listening')
}

function boundTo(servers: readonly Server[], address = addressOf(servers[0]), stop = () => {}): Bound {
  return {
    address,
    close: async () => {
      stop()
      await Promise.all(servers.map((server) => new Promise((resolve) => server.close(resolve))))
    },
  }
}

function addressOf(server: Server | undefined): string {
  const bound = server?.address() ?? ''
  if (typeof bound === 'string') return `unix:${bound}`
  return bound.address.includes(':') ? `[${bound.address}]:${bound.port}` : `${bound.address}:${bound.port}`
}

function portOf(server: Server | undefined): number {
  const bound = server?.address()
  return typeof bound === 'object' && bound !== null ? bound.port : 0
}

function codeOf(error: unknown): unknown {
  return error instanceof Error && 'code' in error ? error.code : undefined
}
