/**
 * Listening sockets passed by systemd (`sd_listen_fds(3)`). systemd keeps them open while the proxy restarts, so connections
 * wait in them and none is refused.
 */

import type { Server } from 'node:net'
import type { ListenAddress } from './bind.ts'

/** The sockets for each listener. */
export interface InheritedSockets {
  /** Every descriptor that is not named `admin`. */
  readonly proxy: readonly number[]
  /** Descriptors named `admin` (`FileDescriptorName=admin`). */
  readonly admin: readonly number[]
}

const FIRST_DESCRIPTOR = 3

/** Reads and removes `LISTEN_PID`, `LISTEN_FDS` and `LISTEN_FDNAMES`, so that no child process takes the sockets for its own. */
export function takeInheritedSockets(env: Record<string, string | undefined>, pid: number): InheritedSockets {
  const { LISTEN_PID, LISTEN_FDS = '', LISTEN_FDNAMES = '' } = env
  for (const name of ['LISTEN_PID', 'LISTEN_FDS', 'LISTEN_FDNAMES']) delete env[name]
  if (LISTEN_PID !== String(pid) || !/^\d{1,3}$/.test(LISTEN_FDS)) return { proxy: [], admin: [] }
  const names = LISTEN_FDNAMES.split(':')
  const sockets = Array.from({ length: Number(LISTEN_FDS) }, (_, i) => ({ fd: FIRST_DESCRIPTOR + i, name: names[i] }))
  const descriptorsOf = (isAdmin: boolean) =>
    sockets.filter(({ name }) => (name === 'admin') === isAdmin).map(({ fd }) => fd)
  return { proxy: descriptorsOf(false), admin: descriptorsOf(true) }
}

/**
 * Refuses a socket whose address is not the configured one: the checks of the configuration, such as `listen.allowRemote`,
 * were made for that address.
 * @throws {Error} with both addresses
 */
export function checkInherited(address: ListenAddress, server: Server): void {
  const found = server.address()
  if (found === null) throw new Error('a socket passed by systemd has no address')
  if (typeof found === 'string') {
    if (address.kind === 'unix' && address.path === found) return
    throw mismatch(`unix:${found}`, address)
  }
  if (address.kind === 'tcp' && (address.port === found.port || address.port === 0)) {
    const host = address.host.replace(/^\[(.*)\]$/, '$1').toLowerCase()
    const hosts = host === 'localhost' ? ['127.0.0.1', '::1'] : [host]
    if (hosts.includes(found.address)) return
  }
  throw mismatch(
    found.family === 'IPv6' ? `[${found.address}]:${found.port}` : `${found.address}:${found.port}`,
    address,
  )
}

function mismatch(found: string, address: ListenAddress): Error {
  const configured = address.kind === 'unix' ? `unix:${address.path}` : `${address.host}:${address.port}`
  return new Error(
    `systemd passed a socket for ${found}, but the configured address is ${configured}: make them the same`,
  )
}
