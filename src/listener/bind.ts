/** Listening sockets: loopback in both families, a port of the system's choosing, unix sockets without stale ones in the way. */

import { chmodSync, lstatSync, unlinkSync } from 'node:fs'
import { connect, type ListenOptions, type Server } from 'node:net'

export type ListenAddress =
  | { readonly kind: 'tcp'; readonly host: string; readonly port: number }
  | { readonly kind: 'unix'; readonly path: string }

export interface Bound<S extends Server> {
  readonly servers: readonly S[]
  /** As it stands in a URL or a log line: `localhost:8080`, `[::1]:8080`, `unix:/run/proxy.sock`. */
  readonly address: string
}

/** Tries again where a port free in one family is taken in the other. */
const PORT_ATTEMPTS = 10

export async function bind<S extends Server>(
  address: ListenAddress,
  newServer: () => S,
  socketMode?: number,
): Promise<Bound<S>> {
  if (address.kind === 'unix') return bindUnix(address.path, newServer, socketMode)
  if (address.host.toLowerCase() === 'localhost') return bindLoopback(address.port, newServer)
  const server = newServer()
  const port = await listen(server, { host: unbracketed(address.host), port: address.port })
  const host = unbracketed(address.host)
  return { servers: [server], address: host.includes(':') ? `[${host}]:${port}` : `${host}:${port}` }
}

/** `localhost` is 127.0.0.1 and, where the machine has it, ::1, on one port. */
async function bindLoopback<S extends Server>(wanted: number, newServer: () => S): Promise<Bound<S>> {
  for (let attempt = 1; ; attempt++) {
    const first = newServer()
    const port = await listen(first, { host: '127.0.0.1', port: wanted })
    const second = newServer()
    try {
      await listen(second, { host: '::1', port, ipv6Only: true })
      return { servers: [first, second], address: `localhost:${port}` }
    } catch (error) {
      if (isWithoutIpv6(error)) return { servers: [first], address: `localhost:${port}` }
      await new Promise((resolve) => first.close(resolve))
      if (wanted !== 0 || attempt === PORT_ATTEMPTS) throw error
    }
  }
}

function isWithoutIpv6(error: unknown): boolean {
  const code = codeOf(error)
  return code === 'EADDRNOTAVAIL' || code === 'EAFNOSUPPORT'
}

async function bindUnix<S extends Server>(path: string, newServer: () => S, mode = 0o660): Promise<Bound<S>> {
  await removeStale(path)
  const server = newServer()
  // The socket must never be open wider than its mode, not even between bind and chmod.
  const before = process.umask(0o777 & ~mode)
  try {
    const listening = listen(server, { path })
    process.umask(before)
    await listening
  } finally {
    process.umask(before)
  }
  chmodSync(path, mode)
  return { servers: [server], address: `unix:${path}` }
}

/** Removes a socket that nobody answers on; anything else in the way is left, and is refused by the bind or here. */
async function removeStale(path: string): Promise<void> {
  const found = lstatSync(path, { throwIfNoEntry: false })
  if (found === undefined) return
  if (!found.isSocket()) throw Object.assign(new Error(`${path} exists and is not a socket`), { code: 'EEXIST' })
  if (await answers(path)) throw Object.assign(new Error(`${path} is in use`), { code: 'EADDRINUSE', address: path })
  unlinkSync(path)
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

/** The port that was bound; 0 for a unix socket. */
function listen(server: Server, options: ListenOptions): Promise<number> {
  return new Promise((resolve, reject) => {
    server.once('error', reject)
    server.listen(options, () => {
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
