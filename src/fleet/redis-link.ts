/**
 * One connection to Redis or Valkey, or to each node of a cluster: opened once, never reopened. `redis-store.ts` decides
 * when to open the next one. The client's own reconnecting is off: its defaults queue commands without a bound, stay with
 * a server that was demoted, and wait for a silent one for ever.
 *
 * The client is large, so this file is the only one that imports it, and is itself imported only if `fleet.store` is set.
 */

import { isIP } from 'node:net'
import type { SecureContext } from 'node:tls'
import { createClient, createCluster } from '@redis/client'
import type { Secret } from '../secret.ts'
import type { Script } from './scripts.ts'

type StoreAddress =
  | {
      readonly kind: 'tcp'
      readonly host: string
      readonly port: number
      readonly tls: boolean
      readonly database: number
    }
  | { readonly kind: 'unix'; readonly path: string; readonly database: number }

export interface LinkOptions {
  readonly address: StoreAddress
  readonly isCluster: boolean
  readonly username: string | undefined
  readonly password: Secret | undefined
  /** Replaces the CA certificates of the runtime. */
  readonly secureContext: SecureContext | undefined
  readonly connectTimeoutMs: number
  /** Called when the connection has ended by itself. Not called for a cluster: there a node may go and come. */
  readonly onLost: (cause: unknown) => void
}

export interface Link {
  /** Rejects if the connection fails. */
  readonly opened: Promise<void>
  /** Runs it on the keys, all of one slot. Rejects with the error of the server or the connection. */
  run(script: Script<unknown>, keys: readonly string[], args: readonly string[]): Promise<unknown>
  /** Breaks off what is under way, also the opening. */
  close(): void
}

export function openLink(options: LinkOptions): Link {
  return options.isCluster ? openCluster(options) : openSingle(options)
}

function openSingle(options: LinkOptions): Link {
  const { address, onLost } = options
  const client = createClient({ ...commonOptions(options), socket: socketOptions(options), database: address.database })
  // Without a listener, an error ends the process. Each waiter of a command gets the error.
  client.on('error', () => undefined)
  client.on('terminated', onLost)
  return linkOf(client, client.connect(), (_, command) => client.sendCommand(command))
}

function openCluster(options: LinkOptions): Link {
  const cluster = createCluster({
    // This connection only asks for the nodes. Without a limit of its own, it would wait for a silent server for ever.
    rootNodes: [{ socket: { ...socketOptions(options), socketTimeout: options.connectTimeoutMs } }],
    defaults: { ...commonOptions(options), socket: connectionOptions(options) },
    nodeAddressMap: (address) => {
      const portAt = address.lastIndexOf(':')
      return endpoint(address.slice(0, portAt), Number(address.slice(portAt + 1)))
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
): Link {
  let isClosed = false
  const close = () => {
    isClosed = true
    client.destroy()
  }
  const opened = connected.then(() => {
    if (isClosed) client.destroy() // a client that is closed while it connects may go on
  })
  opened.catch(() => undefined) // whoever uses the link gets the error
  return {
    opened,
    close,
    // Sends the digest of the script. The text is sent once after each start of the server.
    run: async (script, keys, args) => {
      const [key = ''] = keys
      const operands = [String(keys.length), ...keys, ...args]
      try {
        return await send(key, ['EVALSHA', script.sha1, ...operands])
      } catch (error) {
        if (!(error instanceof Error) || !error.message.startsWith('NOSCRIPT')) throw error
        return await send(key, ['EVAL', script.text, ...operands])
      }
    },
  }
}

function commonOptions({ username, password }: LinkOptions) {
  return {
    RESP: 2,
    ...(username !== undefined && { username }),
    ...(password !== undefined && { password: password.reveal() }),
    disableOfflineQueue: true,
    // Each is a command more that an ACL would have to permit.
    disableClientInfo: true,
    maintNotifications: 'disabled',
  } as const
}

function socketOptions(options: LinkOptions) {
  const { address } = options
  if (address.kind === 'unix') return { path: address.path, reconnectStrategy: false } as const
  return { ...endpoint(address.host, address.port), ...connectionOptions(options) } as const
}

/** Node sends no server name for TLS by itself (RFC 6066 §3). An IP address is none. */
function endpoint(host: string, port: number) {
  return { host, port, ...(isIP(host) === 0 && { servername: host }) }
}

function connectionOptions({ address, secureContext, connectTimeoutMs }: LinkOptions) {
  const common = { reconnectStrategy: false, connectTimeout: connectTimeoutMs } as const
  if (address.kind !== 'tcp' || !address.tls) return common
  return { ...common, tls: true, rejectUnauthorized: true, ...(secureContext && { secureContext }) } as const
}
