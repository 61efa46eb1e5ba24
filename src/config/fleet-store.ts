/** `fleet.store`: where the replicas share their tokens. No message repeats the text, because it may hold a password. */

import { Unsuitable } from './problem.ts'

export type FleetStoreAddress =
  | {
      readonly kind: 'tcp'
      /** IPv6 without brackets. */
      readonly host: string
      readonly port: number
      readonly tls: boolean
      readonly database: number
    }
  | { readonly kind: 'unix'; readonly path: string; readonly database: 0 }

const EXAMPLE = 'write redis://host:6379, rediss://host:6379/0 or redis+unix:///run/redis.sock'
const DEFAULT_PORT = 6379

/** @throws {Unsuitable} */
export function parseFleetStore(text: string): FleetStoreAddress {
  if (!/^(rediss?|redis\+unix):\/\/[^\s]*$/.test(text) || !URL.canParse(text)) {
    throw new Unsuitable(`is not the URL of a store: ${EXAMPLE}`)
  }
  const { protocol, username, password, hostname, port, pathname, search, hash } = new URL(text)
  if (username !== '' || password !== '' || /^[^/]*\/\/[^/]*@/.test(text)) {
    throw new Unsuitable('holds a user name or password: take it out and set fleet.username and fleet.passwordFile')
  }
  const isUnix = protocol === 'redis+unix:'
  if ((hostname === '') !== isUnix || search !== '' || hash !== '' || (isUnix && pathname.length < 2)) {
    throw new Unsuitable(`is not the URL of a store: ${EXAMPLE}`)
  }
  if (isUnix) return { kind: 'unix', path: decodePath(pathname), database: 0 }
  if (port === '0') throw new Unsuitable(`has no port of a server: ${EXAMPLE}`)
  return {
    kind: 'tcp',
    host: hostname.replace(/^\[|\]$/g, ''),
    port: port === '' ? DEFAULT_PORT : Number(port),
    tls: protocol === 'rediss:',
    database: parseDatabase(pathname.slice(1)),
  }
}

/** @throws {Unsuitable} */
function decodePath(pathname: string): string {
  try {
    return decodeURIComponent(pathname)
  } catch (error) {
    throw new Unsuitable(`has a broken % in its path: ${EXAMPLE}`, { cause: error })
  }
}

/** As it is shown to people. */
export function formatFleetStore(address: FleetStoreAddress): string {
  if (address.kind === 'unix') return `redis+unix://${address.path}`
  const host = address.host.includes(':') ? `[${address.host}]` : address.host
  return `${address.tls ? 'rediss' : 'redis'}://${host}:${address.port}/${address.database}`
}

function parseDatabase(text: string): number {
  if (text === '') return 0
  if (!/^\d{1,4}$/.test(text)) throw new Unsuitable('has a path that is no database number: write redis://host:6379/0')
  return Number(text)
}

/** Begins every key. Braces would move the hash tag that keeps the keys of one org in one slot of a cluster. */
export function parseFleetPrefix(text: string): string {
  if (!/^[\w.:-]{1,64}$/.test(text)) throw new Unsuitable('is not 1 to 64 letters, digits or any of _ . : -')
  return text
}
