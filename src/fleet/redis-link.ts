/**
 * One connection to Redis or Valkey, or to each node of a cluster: opened once, never reopened. `redis-store.ts` decides
 * when to open the next one. The client's own reconnecting is off: its defaults queue commands without a bound, stay with
 * a server that was demoted, and wait for a silent one for ever.
 *
 * The client is large, so this file is the only one that imports it, and is itself imported only if `fleet.store` is set.
 */

import { isIP, type LookupFunction } from 'node:net'
import type { SecureContext } from 'node:tls'
import { createClient, createCluster } from '@redis/client'
import { serverNameOf } from '../http1/host.ts'
import type { Secret } from '../secret.ts'

type StoreAddress = { readonly database: number } & (
  | { readonly kind: 'tcp'; readonly host: string; readonly port: number; readonly tls: boolean }
  | { readonly kind: 'unix'; readonly path: string }
)

export interface LinkOptions {
  readonly address: StoreAddress
  readonly cluster: boolean
  /** In the certificates, in place of the host. */
  readonly serverName?: string | undefined
  readonly username?: string | undefined
  /** Asked for each connection. */
  readonly password: () => Secret | undefined
  /** Replaces the CA certificates of the runtime. */
  readonly secureContext: SecureContext | undefined
  /** Finds the addresses of the server. */
  readonly lookup?: LookupFunction | undefined
}

export type Link = ReturnType<typeof openLink>

/** Calls `onLost` when the connection has ended by itself. Not for a cluster: there a node may go and come. */
export function openLink(options: LinkOptions, connectTimeoutMs: number, onLost: (cause: unknown) => void) {
  const { address, username, serverName, secureContext, lookup } = options
  const password = options.password()?.reveal()
  const common = {
    RESP: 2,
    ...(username !== undefined && { username }),
    ...(password !== undefined && { password }),
    disableOfflineQueue: true,
    // Each is a command more that an ACL would have to permit.
    disableClientInfo: true,
    maintNotifications: 'disabled',
  } as const
  const isTls = address.kind === 'tcp' && address.tls
  const socket = {
    reconnectStrategy: false,
    connectTimeout: connectTimeoutMs,
    ...(lookup && { lookup }),
    // Node gives each address but the last 250 ms, so it would never reach a store that is farther away than that.
    autoSelectFamilyAttemptTimeout: connectTimeoutMs / 2,
    ...(isTls && ({ tls: true, rejectUnauthorized: true, ...(secureContext && { secureContext }) } as const)),
  } as const
  const server = address.kind === 'unix' ? { path: address.path } : endpoint(address.host, address.port, serverName)
  // Nodes announce IP addresses unless told otherwise, and certificates of managed clusters have none.
  const nameOfNode = (host: string) => serverName ?? (address.kind === 'tcp' && isIP(host) !== 0 ? address.host : host)
  if (!options.cluster) {
    const client = createClient({ ...common, socket: { ...server, ...socket }, database: address.database })
    // Without a listener, an error ends the process. Each waiter of a command gets the error.
    client.on('error', () => undefined)
    client.on('terminated', onLost)
    return linkOf(client, client.connect(), (_, command) => client.sendCommand(command))
  }
  const cluster = createCluster({
    // This connection only asks for the nodes. Without a limit of its own, it would wait for a silent server for ever.
    rootNodes: [{ socket: { ...server, ...socket, socketTimeout: connectTimeoutMs } }],
    defaults: { ...common, socket },
    nodeAddressMap: (node) => {
      const portAt = node.lastIndexOf(':')
      const host = node.slice(0, portAt)
      return endpoint(host, Number(node.slice(portAt + 1)), nameOfNode(host))
    },
    RESP: 2,
    maxCommandRedirections: 3,
  })
  let cause: unknown
  cluster.on('error', (error) => {
    cause = error
  })
  const connected = cluster.connect().catch((error: unknown) => {
    throw cause ?? error // the client says only that no node could be reached, not why
  })
  return linkOf(cluster, connected, (key, command) => cluster.sendCommand(key, false, command))
}

function linkOf(
  client: { destroy(): void },
  connected: Promise<unknown>,
  send: (key: string, command: string[]) => Promise<unknown>,
) {
  let isClosed = false
  const opened = connected.then(() => isClosed && client.destroy()) // a cluster that is closed while it connects goes on
  opened.catch(() => undefined) // whoever uses the link gets the error
  return {
    /** Rejects if the connection fails. */
    opened,
    /** Runs the script on the keys, all of one slot. Rejects with the error of the server or the connection. */
    run: (script: string, keys: readonly string[], args: readonly string[]) =>
      send(keys[0] ?? '', ['EVAL', script, String(keys.length), ...keys, ...args]),
    /** Breaks off what is under way, also the opening. */
    close: () => {
      isClosed = true
      client.destroy()
    },
  }
}

/** Node sends no server name for TLS by itself. Without one, it verifies the certificate for the host. */
function endpoint(host: string, port: number, name = host) {
  const servername = serverNameOf(name)
  return { host, port, ...(servername !== '' && { servername }) }
}
