/**
 * One connection to Redis or Valkey, or to each node of a cluster: opened once, never reopened. `redis-store.ts` decides
 * when to open the next one. The client's own reconnecting is off: its defaults queue commands without a bound, stay with
 * a server that was demoted, and wait for a silent one for ever.
 *
 * The client is large, so this file is the only one that imports it, and is itself imported only if `fleet.store` is set.
 */

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
  /** Runs it on the keys, all of one slot. Rejects with the error of the server or the connection. */
  run(script: Script<unknown>, keys: readonly string[], args: readonly string[]): Promise<unknown>
  /** Breaks off what is under way. */
  close(): void
}

type Send = (key: string, command: string[]) => Promise<unknown>

export async function openLink(options: LinkOptions): Promise<Link> {
  return options.isCluster ? await openCluster(options) : await openSingle(options)
}

async function openSingle(options: LinkOptions): Promise<Link> {
  const client = createClient({
    ...commonOptions(options),
    socket: socketOptions(options),
    database: options.address.database,
  })
  // Without a listener, an error ends the process. Each waiter of a command gets the error.
  client.on('error', () => undefined)
  client.on('terminated', options.onLost)
  const close = () => client.destroy()
  try {
    await client.connect()
  } catch (error) {
    close()
    throw error
  }
  return { run: runnerOf((_, command) => client.sendCommand(command)), close }
}

async function openCluster(options: LinkOptions): Promise<Link> {
  const cluster = createCluster({
    rootNodes: [{ socket: socketOptions(options) }],
    defaults: { ...commonOptions(options), socket: nodeSocketOptions(options) },
    RESP: 2,
    maxCommandRedirections: 3,
  })
  let cause: unknown
  cluster.on('error', (error) => {
    cause = error
  })
  const close = () => cluster.destroy()
  try {
    await cluster.connect()
  } catch (error) {
    close()
    throw cause ?? error // the client says only that no node could be reached, not why
  }
  return { run: runnerOf((key, command) => cluster.sendCommand(key, false, command)), close }
}

/** Sends the digest of the script. The text is sent once after each start of the server. */
function runnerOf(send: Send): Link['run'] {
  return async (script, keys, args) => {
    const [key = ''] = keys
    const operands = [String(keys.length), ...keys, ...args]
    try {
      return await send(key, ['EVALSHA', script.sha1, ...operands])
    } catch (error) {
      if (!(error instanceof Error) || !error.message.startsWith('NOSCRIPT')) throw error
      return await send(key, ['EVAL', script.text, ...operands])
    }
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
  return { host: address.host, port: address.port, ...nodeSocketOptions(options) } as const
}

function nodeSocketOptions({ address, secureContext, connectTimeoutMs }: LinkOptions) {
  const common = { reconnectStrategy: false, connectTimeout: connectTimeoutMs } as const
  if (address.kind !== 'tcp' || !address.tls) return common
  return { ...common, tls: true, rejectUnauthorized: true, ...(secureContext && { secureContext }) } as const
}
